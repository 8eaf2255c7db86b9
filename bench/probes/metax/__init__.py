"""MetaX boards."""
