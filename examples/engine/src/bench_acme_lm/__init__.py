"""Acme's engine for `bench`."""
