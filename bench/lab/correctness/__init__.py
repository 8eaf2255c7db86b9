"""Correctness before speed: what an engine says with some weights, against the reference run of the same weights."""
