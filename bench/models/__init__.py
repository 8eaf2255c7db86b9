"""Where weights come from: the model store and what it can tell of cached models."""

from bench.models.store import CachedModel, ModelStore

__all__ = ["CachedModel", "ModelStore"]
