"""Conformance suites that packages from outside subclass, and what their tests need: see `docs/engines.md` (Adding one)."""
