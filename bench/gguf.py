"""GGUF metadata: what a header says of a model. The header is hostile input: every length is checked before it is used.

Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from bench.errors import ModelError
from bench.records import ModelShape

MAGIC = b"GGUF"
_MAX_PAIRS = 100_000
_MAX_TENSORS = 1_000_000
_MAX_DIMS = 8
_MAX_KEPT_STRING_B = 65_536
_MAX_ELEMENTS = 8_000_000
_MAX_KEPT_ELEMENTS = 4096
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_NOT_PARAMETERS = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
"""Tensors that hold constants, which some converters add."""

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a GGUF header says. `values` holds scalars and short arrays; `lengths` the length of every array;
    `parameters` the number of weights in all tensors.
    """

    version: int
    values: dict[str, Value] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    parameters: int = 0


class _Reader:
    """Reads a header in order and never past the end of the file."""

    def __init__(self, file: BinaryIO, size_b: int, name: str, *, keep_all: bool) -> None:
        self._file = file
        self._left = size_b
        self._name = name
        self._elements = 0
        self._keep_all = keep_all

    def bad(self, why: str) -> ModelError:
        return ModelError(
            f"{self._name} is not a usable GGUF file: {why}", hint="fetch the file again, or check where it comes from"
        )

    def take(self, count: int) -> bytes:
        if count > self._left:
            raise self.bad(f"it ends {count - self._left} bytes too early")
        data = self._file.read(count)
        self._left -= count
        if len(data) != count:
            raise self.bad("it ends too early")
        return data

    def skip(self, count: int) -> None:
        if count > self._left:
            raise self.bad(f"it ends {count - self._left} bytes too early")
        self._file.seek(count, 1)
        self._left -= count

    def number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack(self.take(kind.size))[0]
        return value

    def u32(self) -> int:
        return self.number(_SCALARS[4])

    def u64(self, most: int, what: str) -> int:
        value = self.number(_SCALARS[10])
        if value > most:
            raise self.bad(f"{value} {what} is more than the {most} allowed")
        return value

    def string(self, *, keep: bool = True) -> str:
        length = self.u64(self._left, "bytes of text")
        if keep and length <= _MAX_KEPT_STRING_B:
            return self.take(length).decode("utf-8", "replace")
        self.skip(length)
        return ""

    def value(self, kind: int) -> tuple[Value | None, int | None]:
        """The value (None if it is not kept) and the length if it is an array."""
        if kind == _STRING:
            return self.string(), None
        if kind in _SCALARS:
            return self._scalar(kind), None
        if kind == _ARRAY:
            return self._array()
        raise self.bad(f"unknown value type {kind}")

    def _scalar(self, kind: int) -> Scalar:
        value: Scalar = _SCALARS[kind].unpack(self.take(_SCALARS[kind].size))[0]
        return value

    def _array(self) -> tuple[Value | None, int]:
        kind = self.u32()
        if kind != _STRING and kind not in _SCALARS:
            raise self.bad(f"an array of type {kind}")
        size = 8 if kind == _STRING else _SCALARS[kind].size
        count = self.u64(self._left // size, "array elements")
        self._elements += count
        if self._elements > _MAX_ELEMENTS:
            raise self.bad(f"over {_MAX_ELEMENTS} array elements")
        if kind == _STRING:
            texts = tuple(self.string(keep=self._keep_all) for _ in range(count))
            return (texts if self._keep_all else None), count
        if count > _MAX_KEPT_ELEMENTS and not self._keep_all:
            self.skip(count * size)
            return None, count
        return tuple(self._scalar(kind) for _ in range(count)), count

    def tensor_parameters(self) -> int:
        """Number of weights in the tensor described next."""
        name = self.string()
        dims = self.u32()
        if dims > _MAX_DIMS:
            raise self.bad(f"tensor {name!r} has {dims} dimensions")
        count = 1
        for _ in range(dims):
            count *= self.u64(1 << 48, "elements in one dimension")
        self.skip(4 + 8)  # type, offset
        return 0 if name in _NOT_PARAMETERS else count


def read_header(path: Path, *, keep_all: bool = False) -> GgufHeader:
    """What the header of a GGUF file says; with `keep_all` also its long arrays and those of text.

    Raises: ModelError if it is not GGUF, is cut short, or is of another version or byte order.
    """
    try:
        with path.open("rb") as file:
            return _read(_Reader(file, path.stat().st_size, path.name, keep_all=keep_all))
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror}", hint="check the path and its permissions") from error


def _read(reader: _Reader) -> GgufHeader:
    if reader.take(4) != MAGIC:
        raise reader.bad("it does not begin with GGUF")
    version = reader.u32()
    if version not in (2, 3):
        raise reader.bad(f"version {version} (this reader knows 2 and 3, little-endian)")
    tensors = reader.u64(_MAX_TENSORS, "tensors")
    pairs = reader.u64(_MAX_PAIRS, "metadata pairs")
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(pairs):
        key = reader.string()
        value, length = reader.value(reader.u32())
        if value is not None:
            values[key] = value
        if length is not None:
            lengths[key] = length
    parameters = sum(reader.tensor_parameters() for _ in range(tensors))
    return GgufHeader(version=version, values=values, lengths=lengths, parameters=parameters)


def shape(header: GgufHeader) -> ModelShape:
    """The model's shape as far as the header gives it. Values that differ by layer are None."""
    arch = header.values.get("general.architecture")

    def count(name: str) -> int | None:
        value = header.values.get(f"{arch}.{name}")
        if isinstance(value, tuple) and value:
            value = value[0] if len(set(value)) == 1 else None
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    heads, hidden = count("attention.head_count"), count("embedding_length")
    even = hidden // heads if hidden and heads and hidden % heads == 0 else None
    latent, rotary = count("attention.kv_lora_rank"), count("rope.dimension_count")
    per_layer_kv = isinstance(header.values.get(f"{arch}.attention.head_count_kv"), tuple)
    return ModelShape(
        parameters=header.parameters or None,
        layers=count("block_count"),
        heads=heads,
        kv_heads=count("attention.head_count_kv") or (None if per_layer_kv else heads),
        head_dim=count("attention.key_length") or even,
        hidden=hidden,
        vocab=header.lengths.get("tokenizer.ggml.tokens") or count("vocab_size"),
        experts=count("expert_count"),
        experts_used=count("expert_used_count"),
        kv_width=latent + rotary if latent and rotary else None,
    )


def licence(header: GgufHeader) -> str | None:
    """The licence that the header names."""
    value = header.values.get("general.license")
    return value if isinstance(value, str) and value else None
