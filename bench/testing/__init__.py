"""Conformance suites that packages from outside subclass: see `docs/architecture.md`."""
