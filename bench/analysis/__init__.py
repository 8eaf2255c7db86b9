"""Pooling of repeats, comparison, gates. Pure."""
