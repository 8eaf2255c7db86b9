"""Biren GPUs."""
