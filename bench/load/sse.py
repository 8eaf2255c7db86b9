"""Server-sent events out of a body that has been read to its end: payloads, and where in the body each event ended. Pure.

Framing happens on whole bodies after the measurement, so it can't be thrown by where reads were split.
"""

from __future__ import annotations

import re

import numpy as np

from bench.records import IntArray

_BOM = b"\xef\xbb\xbf"
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|\Z)")


def split_events(body: bytes) -> tuple[list[bytes], IntArray]:
    """`data` payloads in order, and for each the offset just behind the blank line that ended its event.

    Follows the event-stream format of the HTML standard: LF, CRLF or CR, comments, `data:` with or without the space,
    several `data` lines joined by LF. An event that lacks its blank line at the end of the body still counts (servers close
    right after `data: [DONE]`); its offset is the body's length.
    """
    plain = _plain_payloads(body)
    if plain is None:
        return _any_payloads(body)
    lengths = np.fromiter(map(len, plain), np.int64, len(plain))
    return plain, np.cumsum(lengths + 8)


def _plain_payloads(body: bytes) -> list[bytes] | None:
    """The shape nearly all servers send, `data: X LF LF` and nothing else, in three passes of C; None for any other."""
    if not body.startswith(b"data: ") or not body.endswith(b"\n\n"):
        return None
    payloads = body[6:-2].split(b"\n\ndata: ")
    if b"\r" in body or body.count(b"\n") != 2 * len(payloads):
        return None
    return payloads


def _any_payloads(body: bytes) -> tuple[list[bytes], IntArray]:
    payloads: list[bytes] = []
    ends: list[int] = []
    data: list[bytes] = []
    start = len(_BOM) if body.startswith(_BOM) else 0
    for line in _LINE.finditer(body, start):
        text = line[1]
        if text:
            value = _data_value(text)
            if value is not None:
                data.append(value)
        elif data and (line[2] or line.end() == len(body)):
            payloads.append(b"\n".join(data))
            ends.append(line.end())
            data = []
    if data:
        payloads.append(b"\n".join(data))
        ends.append(len(body))
    return payloads, np.array(ends, dtype=np.int64)


def _data_value(line: bytes) -> bytes | None:
    """The value of a `data` line; an `error` line (older llama.cpp) is carried as one too. None for all others."""
    name, _, value = line.partition(b":")
    if name == b"error" and value:
        return b'{"error":' + value.strip() + b"}"
    if name != b"data":
        return None
    return value.removeprefix(b" ")


def last_complete(body: bytes) -> int:
    """Offset behind the last blank line in `body`, 0 where it holds no complete event: for reading a stream as it comes."""
    best = 0
    for end in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        at = body.rfind(end)
        if at >= 0:
            best = max(best, at + len(end))
    return best
