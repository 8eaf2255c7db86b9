"""Enflame GCU cards."""
