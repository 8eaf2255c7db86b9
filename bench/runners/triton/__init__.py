"""Triton Inference Server: what is installed, its model repository, the words of its log, and the runner."""
