"""What an OpenAI-compatible server says it serves (`GET /v1/models`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.records import Scalar
from bench.runners.http import Answer, get

_LARGEST_COUNT = 1 << 53
"""Where JSON numbers, and the floats of whoever reads them, stop being exact."""
_LONGEST_TEXT = 200


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
        return count(self.meta.get("n_vocab"))

    @property
    def weights_type(self) -> str | None:
        """llama.cpp's name for how the weights are stored, such as `Q4_1`."""
        return told(self.meta.get("ftype"))

    def settings(self) -> dict[str, Scalar]:
        """What of it is a setting of the engine, under the project's names; what isn't told is absent."""
        found: dict[str, Scalar | None] = {
            "n_vocab": self.vocab_size,
            "n_params": count(self.meta.get("n_params")),
            "n_ctx_train": count(self.meta.get("n_ctx_train")),
            "ftype": self.weights_type,
            "max_model_len": self.max_model_len,
            "served_by": self.owned_by,
        }
        return {name: value for name, value in found.items() if value is not None}


def first_served(base_url: str) -> ServedModel | None:
    """The first model of a running server's list; None where it gives none."""
    answer = get(base_url + "/v1/models")
    models = served_models(answer.json()) if isinstance(answer, Answer) else None
    return models[0] if models else None


def version_at(url: str) -> str | None:
    """The `version` in the JSON at `url`; None where there is none."""
    answer = get(url)
    return told(answer.json_object().get("version")) if isinstance(answer, Answer) else None


def served_models(document: Any) -> list[ServedModel] | None:
    """The entries of a decoded `/v1/models` answer; None where it isn't such an answer."""
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    return [_entry(entry) for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _entry(entry: dict[str, Any]) -> ServedModel:
    aliases = entry.get("aliases")
    meta = entry.get("meta")
    return ServedModel(
        name=entry["id"],
        aliases=tuple(alias for alias in aliases if isinstance(alias, str)) if isinstance(aliases, list) else (),
        owned_by=told(entry.get("owned_by")),
        max_model_len=count(entry.get("max_model_len")),
        meta=meta if isinstance(meta, dict) else {},
    )


def slots_told(props: Mapping[str, Any]) -> dict[str, Scalar]:
    """Slots, and the context of each [tokens], out of llama.cpp's `/props`; what isn't told is absent."""
    defaults = props.get("default_generation_settings")
    found = {
        "n_slots": count(props.get("total_slots")),
        "n_ctx_slot": count(defaults.get("n_ctx")) if isinstance(defaults, dict) else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def count(value: Any) -> int | None:
    """A number of things that a server tells; None where it isn't a whole number that can be one."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= _LARGEST_COUNT else None


def told(value: Any) -> str | None:
    """A short text that a server tells, cut where it is long; None where it is none."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None
