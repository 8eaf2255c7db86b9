"""Compressed bodies, undone after the measurement: what each read brought is what its bytes let us decompress. Pure.

We ask for `identity`; a proxy in between may compress all the same.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import numpy as np

from bench.records import IntArray

_MOST_B = 1 << 30
_GZIP, _ZLIB, _RAW = 31, 15, -15
GZIP_MAGIC = b"\x1f\x8b"


class Coding(IntEnum):
    """How a body is compressed. `OTHER`: in a way that can't be undone here."""

    IDENTITY = 0
    GZIP = 1
    DEFLATE = 2
    OTHER = 3


_CODINGS = {b"": Coding.IDENTITY, b"identity": Coding.IDENTITY, b"gzip": Coding.GZIP, b"x-gzip": Coding.GZIP}
_CODINGS |= {b"deflate": Coding.DEFLATE}


def coding_of(header: bytes) -> Coding:
    """The coding that a `Content-Encoding` header names."""
    return _CODINGS.get(header.strip().lower(), Coding.OTHER)


class Inflater:
    """Decompresses one body, piece by piece."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._engine = zlib.decompressobj(_GZIP) if coding is Coding.GZIP else None
        self._head = b""
        self._total_b = 0

    def feed(self, piece: bytes) -> bytes:
        """What becomes readable with `piece`. Raises: zlib.error."""
        if self._coding is Coding.IDENTITY:
            return piece
        if self._engine is None:
            piece = self._head = self._head + piece
            if len(piece) < 2:
                return b""
            self._engine = zlib.decompressobj(_ZLIB if _zlib_header(piece) else _RAW)
        found = bytearray(self._engine.decompress(piece, _MOST_B - self._total_b))
        while self._engine.eof and self._coding is Coding.GZIP and self._engine.unused_data.startswith(GZIP_MAGIC):
            rest, self._engine = self._engine.unused_data, zlib.decompressobj(_GZIP)
            found += self._engine.decompress(rest, _MOST_B - self._total_b)
        self._total_b += len(found)
        if self._total_b >= _MOST_B:
            raise zlib.error(f"it is larger than {_MOST_B >> 20} MiB")
        return bytes(found)


def _zlib_header(data: bytes) -> bool:
    """Some servers send deflate without the wrapper that the standard asks for."""
    return data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


def inflate(body: bytes, ends_b: IntArray, coding: Coding) -> tuple[bytes, IntArray]:
    """The body as it was meant, and how far each read had filled it. Raises: zlib.error."""
    inflater, plain = Inflater(coding), bytearray()
    ends = np.zeros(len(ends_b), np.int64)
    before = 0
    for read, end in enumerate(ends_b.tolist()):
        plain += inflater.feed(body[before:end])
        ends[read], before = len(plain), end
    return bytes(plain), ends
