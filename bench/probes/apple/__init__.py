"""Apple silicon."""
