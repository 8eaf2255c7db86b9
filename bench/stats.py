"""Quantiles, intervals and Student's t. Pure numpy."""
