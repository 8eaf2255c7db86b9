"""Records to JSON and back: the one place where records are (de)serialised."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_builtins(record: Any) -> Any:
    """A record as dicts, lists and scalars (enums as their values)."""
    return msgspec.to_builtins(record, enc_hook=_plain_number)


def encode(record: Any) -> bytes:
    """A record as compact UTF-8 JSON. NaN and infinities become null."""
    return msgspec.json.encode(record, enc_hook=_plain_number)


def encode_pretty(record: Any) -> bytes:
    """A record as indented UTF-8 JSON with a final newline."""
    return msgspec.json.format(encode(record), indent=2) + b"\n"


def decode(data: bytes | str, kind: type[T]) -> T:
    """JSON as a record of type `kind`.

    Raises: ValueError that names the path of the wrong value (msgspec's `ValidationError` and `DecodeError` are ones).
    """
    return msgspec.json.decode(data, type=kind)


def convert(value: Any, kind: type[T]) -> T:
    """Builtins as a record of type `kind`. Raises: ValueError that names the path of the wrong value."""
    return msgspec.convert(value, type=kind)


def _plain_number(value: Any) -> Any:
    """A numpy scalar that slipped into a record, as Python's own number: it must not cost a trial."""
    if type(value).__module__ == "numpy":  # told by its name: a process without arrays need not import numpy
        return value.item()
    raise TypeError(f"{type(value).__name__} can't be stored: {value!r}")
