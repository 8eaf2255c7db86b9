"""Shards (the truth) and `lab.duckdb` (a cache of them)."""
