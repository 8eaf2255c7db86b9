"""Events and readings to metrics, energy and validity. Pure."""
