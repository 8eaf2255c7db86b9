"""AMD boards."""
