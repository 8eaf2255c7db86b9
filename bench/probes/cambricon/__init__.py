"""Cambricon MLU cards."""
