"""Data files: models, and later accelerators and prices."""
