"""Which engine a model is measured with where nobody says, and whether it fits into the memory that is here. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.catalog.models import lookup
from bench.errors import UsageError
from bench.models.choosing import choose_source
from bench.precision import spelled
from bench.records import Case, DeviceInfo
from bench.runners.sizing import size_for
from bench.timing.roofline import costs
from bench.units import format_bytes


def default_engine(model: str, precision: str | None, model_source: str | None = None) -> str:
    """llamacpp where the weights are a GGUF file, else vllm."""
    if model_source is not None:
        return "llamacpp" if model_source.lower().endswith(".gguf") else "vllm"
    known = lookup(model)
    if known is None:
        return "vllm"
    try:
        choose_source(known, precision, ("gguf",))
    except UsageError:
        return "vllm"
    return "llamacpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Memory [bytes] that a case needs: its weights, and the 16-bit KV cache of `tokens`, all its requests at full length."""

    weights_b: float
    kv_cache_b: float
    tokens: int

    @property
    def total_b(self) -> float:
        """Both together."""
        return self.weights_b + self.kv_cache_b


def need_of(case: Case) -> Need | None:
    """What the catalogue's shape of the model says; None for a model or a precision that it does not tell."""
    known = lookup(case.model)
    if known is None:
        return None
    precision = spelled(case.precision or next(iter(known.sources)))
    entry = known.sources.get(precision)
    cost = costs(known.shape, precision, size_b=entry.size_b if entry else None)
    if isinstance(cost, str):
        return None
    tokens = size_for([case], {}).context_tokens
    return Need(weights_b=cost.parameters * cost.weight_b, kv_cache_b=cost.kv_b * tokens, tokens=tokens)


def fit_line(case: Case, boards: Sequence[DeviceInfo], memory_b: int) -> str | None:
    """What `case` needs beside what `boards` (without any: this host, with `memory_b`) have; None where either is not known."""
    need = need_of(case)
    totals = [board.memory_total_b for board in boards] or [memory_b]
    if need is None or None in totals:
        return None
    here_b = sum(total for total in totals if total is not None)
    where = f"{len(boards)} accelerators here have" if boards else "no accelerator is here, and this host has"
    fits = "it fits" if need.total_b <= here_b else "it does not fit"
    kv_cache = f"up to {format_bytes(need.kv_cache_b)} of KV cache ({need.tokens} tokens)"
    return f"{case.model} needs {format_bytes(need.weights_b)} of weights and {kv_cache}; {where} {format_bytes(here_b)}: {fits}"
