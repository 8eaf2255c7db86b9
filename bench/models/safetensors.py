"""Safetensors folders: the shape that `config.json` and the shard headers give. Both are hostile input.

Source: the safetensors format (8 bytes of little-endian header length, then JSON) and transformers' `config.json` names.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bench.records import ModelShape

_MAX_HEADER_B = 100_000_000
_MAX_CONFIG_B = 10_000_000
_WHOLE_WEIGHTS = frozenset({"F64", "F32", "F16", "BF16"})
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_NOT_PARAMETERS = ".rotary_emb.inv_freq"
"""Constants that older converters saved beside the weights."""
_EXPERT = ".experts."
"""In the name of a tensor that some tokens go past; experts that all tokens meet are called otherwise (`.shared_experts.`)."""


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]


def shape(folder: Path, shards: Iterable[Path]) -> ModelShape:
    """The shape of the model in `folder`; None for what can't be read or is not said."""
    config = _config(folder / "config.json")
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    even = hidden // heads if hidden and heads and hidden % heads == 0 else None
    experts = next((n for name in _EXPERTS if (n := _count(config, name))), None)
    used = _count(config, "num_experts_per_tok") if experts else None
    share = used / experts if used and experts and used <= experts else None
    latent, rotary = _count(config, "kv_lora_rank"), _count(config, "qk_rope_head_dim")
    total, routed = _sizes(shards)
    return ModelShape(
        parameters=total,
        layers=_count(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads") or heads,
        head_dim=_count(config, "head_dim") or even,
        hidden=hidden,
        vocab=_count(config, "vocab_size"),
        experts=experts,
        experts_used=used,
        active_parameters=round(total - routed * (1.0 - share)) if total and routed and share else None,
        kv_width=latent + rotary if latent and rotary else None,
    )


def parameters(shards: Iterable[Path]) -> int | None:
    """Number of weights in all shards; None when one is unreadable, or packed (4-bit, FP8 with scales): then elements
    are not weights.
    """
    return _sizes(shards)[0]


def _sizes(shards: Iterable[Path]) -> tuple[int | None, int]:
    """As `parameters`, and how many of them are experts'."""
    total = routed = 0
    for path in shards:
        tensors = _header(path)
        if tensors is None or any(t.dtype not in _WHOLE_WEIGHTS or min(t.shape, default=1) < 0 for t in tensors.values()):
            return None, 0
        sizes = {name: math.prod(t.shape) for name, t in tensors.items() if not name.endswith(_NOT_PARAMETERS)}
        total += sum(sizes.values())
        routed += sum(size for name, size in sizes.items() if _EXPERT in name)
    return total or None, routed


def _header(path: Path) -> dict[str, _Tensor] | None:
    try:
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            if length > min(_MAX_HEADER_B, path.stat().st_size - 8):
                return None
            entries = msgspec.json.decode(file.read(length), type=dict[str, Any])
        entries.pop("__metadata__", None)
        return {name: msgspec.convert(entry, type=_Tensor) for name, entry in entries.items()}
    except (OSError, ValueError, struct.error):
        return None


def _config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_CONFIG_B:
            return {}
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, ValueError):
        return {}
    text = found.get("text_config")  # models that also see or hear keep the language part apart
    return {**found, **text} if isinstance(text, dict) else found


def _count(config: dict[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
