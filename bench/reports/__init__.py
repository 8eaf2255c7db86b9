"""Records to tables and bytes."""
