"""The header of a GGUF file, written: the counterpart of `bench.gguf`.

Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), version 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.gguf import MAGIC, Scalar, Value

F32, BF16 = 0, 30
"""Types of a tensor (`ggml_type`)."""
MOSTLY_BF16 = 32
"""`general.file_type` of a file whose matrices are BF16 (`llama_ftype`)."""
ALIGNMENT_B = 32
"""Where tensors may begin, counted from the end of the header [bytes]: what readers take when no field says otherwise."""
_VERSION = 3
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """A tensor of `kind` with its rows before its columns, and its size [bytes]."""

    name: str
    dims: tuple[int, ...]
    kind: int
    size_b: int


def header_bytes(fields: Mapping[str, Value], tensors: Sequence[TensorInfo]) -> bytes:
    """The header up to the first tensor. Tensors follow in this order, each filled up to `ALIGNMENT_B`."""
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(fields))]
    parts += [_text(name) + _typed(value) for name, value in fields.items()]
    offset = 0
    for one in tensors:
        dims = one.dims[::-1]
        parts.append(_text(one.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, one.kind, offset))
        offset += one.size_b + padding_b(one.size_b)
    header = b"".join(parts)
    return header + bytes(padding_b(len(header)))


def padding_b(size_b: int) -> int:
    """How many bytes are missing to a place where a tensor may begin [bytes]."""
    return -size_b % ALIGNMENT_B


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(value: Value) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool):  # counts and ids: unsigned by themselves, signed in arrays
        return struct.pack("<II", 4, value)
    if not isinstance(value, tuple):
        kind, data = _scalar(value)
        return struct.pack("<I", kind) + data
    scalars = [_scalar(one) for one in value]
    kinds = {kind for kind, _ in scalars}
    if len(kinds) != 1:
        raise ValueError(f"an array of {len(value)} values of {len(kinds)} types")
    return struct.pack("<IIQ", _ARRAY, kinds.pop(), len(value)) + b"".join(data for _, data in scalars)


def _scalar(value: Scalar) -> tuple[int, bytes]:
    """Its type in GGUF, and its bytes."""
    if isinstance(value, str):
        return _STRING, _text(value)
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 5, struct.pack("<i", value)
    return 6, struct.pack("<f", value)
