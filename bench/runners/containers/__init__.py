"""Engines in containers: the client program, the flags of each vendor's devices, the command line, and what is left to remove."""
