"""A mock engine with an exact schedule, and its own truth."""
