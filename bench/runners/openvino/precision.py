"""The formats that OpenVINO runs: what its weights are, what it is told to compute in, and what its log says that it does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import gguf
from bench.errors import UsageError
from bench.precision import FLOATS, GGUF, QUANTISED, read_back, spelled
from bench.records import LocalModel
from bench.runners.checkpoint import Checkpoint
from bench.runners.weights import Menu

_HINTS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
"""The project's words as `INFERENCE_PRECISION_HINT`; OpenVINO's devices call them FP32, FP16, BF16."""
_FILE_TYPES = {0: "fp32", 1: "fp16", 32: "bf16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 14: "q4_k_s", 15: "q4_k_m"}
"""`general.file_type` of GGUF files that OpenVINO runs as they are; it unpacks others to fp16, or refuses them. Sources:
llama.cpp, `llama_ftype`; OpenVINO GenAI, `gguf_utils`.
"""
_ELEMENTS = {
    **dict.fromkeys(("i4", "u4"), "int4"),
    **dict.fromkeys(("i8", "u8"), "int8"),
    **dict.fromkeys(("f8e4m3", "f8e5m2"), "fp8"),
    "f4e2m1": "mxfp4",
    **{hint: name for name, hint in _HINTS.items()},
}
"""OpenVINO's element types. Source: `openvino/core/type/element_type.hpp`."""
_CONSTANT = re.compile(rb'<layer id="\d+" name="([^"]*)" type="Const"[^>]*>\s*<data element_type="(\w+)"[^>]* size="(\d+)"')
_ENDS = re.compile(rb"embed|lm_head", re.IGNORECASE)
"""Embeddings, and the last layer that may share them: quantisers leave these alone, or at 8 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is known of weights before they are loaded: their format, and the longest context that they were made for [tokens]."""

    checkpoint: Checkpoint
    context: int | None


def menu_of(computes: frozenset[str]) -> Menu:
    """What a device runs: plain weights in the formats that it computes in, quantised ones as they are."""
    plain = {name: (hint,) for name, hint in _HINTS.items() if name.upper() in computes}
    quantised = (name for name in QUANTISED if name not in ("fp6", "nvfp4"))
    return Menu(engine="openvino", plain=plain, stored=(*quantised, *(name for name in _FILE_TYPES.values() if name in GGUF)))


def read_weights(model: LocalModel) -> Weights:
    """What `model` holds. Raises: UsageError where OpenVINO would not run it as it is, ModelError where it can't be read."""
    return _of_gguf(Path(model.path)) if model.format == "gguf" else _of_folder(Path(model.path))


def _of_gguf(path: Path) -> Weights:
    values = gguf.read_header(path).values
    kind = values.get("general.file_type")
    word = _FILE_TYPES.get(kind) if isinstance(kind, int) else None
    if kind is not None and word is None:
        raise UsageError(
            f"OpenVINO does not run {path.name} as it is (general.file_type: {kind})",
            hint=f"choose a GGUF file in one of: {', '.join(_FILE_TYPES.values())}; or a folder in OpenVINO's own format",
        )
    context = _whole(values.get(f"{values.get('general.architecture')}.context_length"))
    return Weights(checkpoint=_checkpoint(word, "gguf"), context=context)


def _of_folder(folder: Path) -> Weights:
    """By the type that most bytes of the constants have in OpenVINO's own description of the model."""
    sizes_b: dict[str, int] = {}
    for name, element, size_b in _CONSTANT.findall((folder / "openvino_model.xml").read_bytes()):
        if not _ENDS.search(name):
            sizes_b[element.decode()] = sizes_b.get(element.decode(), 0) + int(size_b)
    main = max(sizes_b, key=lambda element: sizes_b[element], default=None)
    config = _config(folder / "config.json")
    word = None if main is None else _ELEMENTS.get(main, main)
    return Weights(checkpoint=_checkpoint(word, "openvino"), context=_whole(config.get("max_position_embeddings")))


def _checkpoint(word: str | None, method: str) -> Checkpoint:
    return Checkpoint(dtype=word) if word is None or word in FLOATS else Checkpoint(quantisation=word, method=method)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _config(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


_MODEL = re.compile(r"^Model: [^\n]*LLM[^\n]*\n((?:  \S[^\n]*\n)*)", re.MULTILINE)


def compiled(log: str) -> dict[str, str]:
    """The properties of the compiled model as its log has them (`OPENVINO_LOG_LEVEL`), tokenizers left out."""
    found = _MODEL.findall(log)
    lines = (line.strip().partition(": ") for line in found[-1].splitlines()) if found else ()
    return {name: value for name, _, value in lines if value}


def told(properties: Mapping[str, str], asked: str | None, checkpoint: Checkpoint) -> str | None:
    """The precision that runs: the format of quantised weights, else what the compiled model computes in."""
    if checkpoint.quantisation is not None:
        return read_back(asked, checkpoint.quantisation)
    hint = properties.get("INFERENCE_PRECISION_HINT")
    return None if hint is None else read_back(asked, _ELEMENTS.get(hint, spelled(hint)))
