"""Benchmarks of our own code: what they print is quoted in `docs/measurements.md`."""
