"""The project's precisions as what transformers loads, and torch's word for what runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.precision import FLOATS, QUANTISED, read_back, spelled
from bench.runners.checkpoint import Checkpoint
from bench.runners.weights import Menu


def menu_of(device: str, platform: str) -> Menu:
    """What torch runs: plain weights in any float format, quantised ones as they are. tf32 is NVIDIA's."""
    plain = {word: (word,) for word in FLOATS if word != "tf32" or (device, platform) == ("cuda", "cuda")}
    return Menu(engine="torch", plain=plain, stored=QUANTISED)


def told(info: Mapping[str, Any], asked: str | None, weights: Checkpoint) -> str | None:
    """The precision that runs, by the type that most bytes of the loaded weights have; packed integers are what the checkpoint
    says that they are.
    """
    dtype = info.get("dtype")
    if not isinstance(dtype, str):
        return None
    found = spelled(dtype)
    if found == "fp32" and info.get("float32_matmul") in ("high", "medium") and str(info.get("device")).startswith("cuda"):
        found = "tf32"
    if found not in (*FLOATS, "fp8"):
        found = weights.quantisation or found
    return read_back(asked, found)
