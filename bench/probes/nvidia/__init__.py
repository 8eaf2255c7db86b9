"""NVIDIA boards."""
