"""What an OpenAI-compatible server says it serves (`GET /v1/models`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.records import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One entry of the list. `meta` and `max_model_len` are there on some servers only."""

    name: str
    aliases: tuple[str, ...] = ()
    owned_by: str | None = None
    max_model_len: int | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int | None:
        """Size of the vocabulary, where the server tells it."""
        return _count(self.meta.get("n_vocab"))

    @property
    def weights_type(self) -> str | None:
        """llama.cpp's name for how the weights are stored, such as `Q4_1`."""
        found = self.meta.get("ftype")
        return found if isinstance(found, str) and found else None

    def settings(self) -> dict[str, Scalar]:
        """What of it is a setting of the engine, under the project's names; what isn't told is absent."""
        told: dict[str, Scalar | None] = {
            "n_vocab": self.vocab_size,
            "n_params": _count(self.meta.get("n_params")),
            "n_ctx_train": _count(self.meta.get("n_ctx_train")),
            "ftype": self.weights_type,
            "max_model_len": self.max_model_len,
            "served_by": self.owned_by,
        }
        return {name: value for name, value in told.items() if value is not None}


def served_models(document: Any) -> list[ServedModel] | None:
    """The entries of a decoded `/v1/models` answer; None where it isn't such an answer."""
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    return [_entry(entry) for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _entry(entry: dict[str, Any]) -> ServedModel:
    aliases = entry.get("aliases")
    owner = entry.get("owned_by")
    meta = entry.get("meta")
    return ServedModel(
        name=entry["id"],
        aliases=tuple(str(alias) for alias in aliases) if isinstance(aliases, list) else (),
        owned_by=owner if isinstance(owner, str) and owner else None,
        max_model_len=_count(entry.get("max_model_len")),
        meta=meta if isinstance(meta, dict) else {},
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
