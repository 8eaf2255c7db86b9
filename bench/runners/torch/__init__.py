"""torch: transformers on any device that torch has, stepped by a server of ours in the engine's own Python."""
