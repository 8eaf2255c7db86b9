"""The load generator: prompts, arrivals, the wire client and its worker processes, parsing after the fact."""
