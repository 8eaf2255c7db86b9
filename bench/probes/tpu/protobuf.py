"""As much of the protobuf wire format as the TPU runtime's metrics need, so that no generated code is. Pure.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_LONGEST_VARINT = 10

Value = int | float | bytes
"""A varint as a signed 64-bit integer, a double, a float, or the bytes of a text or message."""


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Numbers and values of a message's fields, in order. Raises: ValueError where it is cut off or no message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value - (1 << 64) if value >= 1 << 63 else value
        elif kind in (_FIXED_64, _FIXED_32):
            end = at + (8 if kind == _FIXED_64 else 4)
            yield key >> 3, struct.unpack("<d" if kind == _FIXED_64 else "<f", _slice(message, at, end))[0]
            at = end
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield key >> 3, _slice(message, at, at + size)
            at += size
        else:
            raise ValueError(f"a field of wire type {kind}")


def inside(message: bytes, number: int) -> Iterator[bytes]:
    """The messages in field `number`. Raises: ValueError."""
    for found, value in fields(message):
        if found == number and isinstance(value, bytes):
            yield value


def text_field(number: int, text: str) -> bytes:
    """A message with one text, of fewer than 128 bytes."""
    encoded = text.encode()
    return bytes([number << 3 | _BYTES, len(encoded)]) + encoded


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = _slice(message, at + place, at + place + 1)[0]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + place + 1
    raise ValueError("a number of more than 64 bits")


def _slice(message: bytes, begin: int, end: int) -> bytes:
    if end > len(message):
        raise ValueError(f"the message ends after {len(message)} of {end} bytes")
    return message[begin:end]
