"""One module an engine: how to start it, know that it is ready, read its settings, and stop it."""
