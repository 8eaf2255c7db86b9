"""Intel Gaudi cards."""
