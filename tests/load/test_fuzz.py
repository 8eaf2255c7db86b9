"""Fuzz of everything that reads bytes from a server: HTTP framing, compression, event framing, events of every protocol.

Two properties. Whatever the bytes: no crash, and columns that fit together. A known answer, cut into any network reads, HTTP
chunks and codings: the same chunks as when it is read whole.

`pytest -m proof tests/load/test_fuzz.py` searches on for as long as `FUZZ_SECONDS` says (600).
"""

from __future__ import annotations

import os
import time
import zlib
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.load.inflate import Coding, inflate
from bench.load.parse import ParsedRequest, parse_request
from bench.load.protocols import PROTOCOLS, wire_protocol
from bench.load.spill import End
from bench.load.sse import last_complete, split_events
from bench.load.watch import ContentWatch
from bench.load.wire import Connection
from bench.records import IntArray, Outcome
from tests.load.protocols.test_conformance import FOLDER, STREAMED, TRANSCRIPTS
from tests.load.scripted import answer, chat, chunked, sized


class Sink:
    """Keeps what a connection hands over."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.stamps: list[int] = []
        self.ends: list[int] = []
        self.ended: list[tuple[End, int, str | None, Coding]] = []

    def data(self, request: int, stamps_ns: array[int], ends_b: array[int], body: bytearray) -> None:
        self.ends += [len(self.body) + end for end in ends_b]
        self.stamps += stamps_ns
        self.body += body

    def end(
        self, request: int, opened_ns: int, closed_ns: int, end: End, *, status: int, error: str | None, coding: Coding
    ) -> None:
        self.ended.append((end, status, error, coding))


class Owner:
    def __init__(self) -> None:
        self.sink = Sink()
        self.first = 0

    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None: ...

    def unanswered(self, connection: Connection) -> None: ...

    def first_content(self, connection: Connection) -> None:
        self.first += 1


class Transport:
    """Swallows requests."""

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None: ...


def received(reads: list[bytes], *, flush: bool = False, lost: bool = False) -> Owner:
    """What a connection makes of these network reads."""
    owner = Owner()
    connection = Connection(owner, None, tls=True)  # type: ignore[arg-type]  # a TLS connection never touches its socket
    connection.connection_made(Transport())  # type: ignore[arg-type]
    connection.watch = ContentWatch(wire_protocol("openai-chat"))
    connection.send(0, b"request", -1)
    for read in reads:
        connection.data_received(read)
        if flush:
            connection.flush()
    if lost:
        connection.connection_lost(None)
    connection.flush()
    return owner


def parsed_of(sink: Sink, protocol: str = "openai-chat") -> ParsedRequest:
    end, status, error, coding = sink.ended[0] if sink.ended else (None, -1, None, Coding.IDENTITY)
    stamps, ends = np.array(sink.stamps, dtype=np.int64), np.array(sink.ends, dtype=np.int64)
    body = bytes(sink.body)
    return parse_request(wire_protocol(protocol), body, stamps, ends, end=end, status=status or -1, error=error, coding=coding)


def fits_together(parsed: ParsedRequest, stamps: IntArray) -> None:
    count = len(parsed.chunk_ns)
    assert len(parsed.chunk_kind) == len(parsed.chunk_tokens) == len(parsed.chunk_bytes) == count
    assert np.all(np.diff(parsed.chunk_ns) >= 0)
    assert set(parsed.chunk_ns.tolist()) <= set(stamps.tolist())
    assert np.all(parsed.chunk_bytes > 0)
    assert np.all(parsed.chunk_tokens >= -1)
    assert (parsed.error is None) or parsed.error
    assert parsed.outcome is not Outcome.EMPTY or count == 0


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    points = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in pairwise(points)]


CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)
GRAMMAR = [
    b"data: ",
    b"data:",
    b"data",
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b": c\n\n",
    b"event: error\n",
    b"error: ",
    b"id: 7\n",
    b"\xef\xbb\xbf",
    b"[DONE]",
    b'{"choices":[',
    b'{"delta":{"content":"a"}}',
    b'{"text":"b","token_ids":[1,2]}',
    b"]}",
    b"{",
    b"}",
    b"[",
    b"]",
    b'"usage":{"completion_tokens":3}',
    b'{"usage":{"completion_tokens":-3}}',
    b'{"error":{"message":"x"}}',
    b'"error"',
    b",",
    b'"',
    b"\\ud83d",
    "é日🙂".encode(),
    b"\xf0\x9f",
    b"\x00",
    b"\xff",
    b"null",
    b"-1",
    b"1e400",
    b'{"content":"x","tokens":[1],"tokens_predicted":1}',
    b'{"stop":true,"tokens_predicted":9,"tokens_evaluated":2}',
    b'{"text":"so far","meta_info":{"completion_tokens":2}}',
    b'{"text_output":["a"],"num_output_tokens":[1]}',
    b'{"text_output":"a","num_output_tokens":1}',
    b'{"finish_reason":["length"]}',
]
SOUP = st.lists(st.one_of(st.sampled_from(GRAMMAR), st.binary(max_size=6)), max_size=40).map(b"".join)
HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 500 No\r\n",
    b"HTTP/1.1 302 Found\r\n",
    b"HTTP/1.1 204 None\r\n",
    b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 20\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Content-Encoding: deflate\r\n",
    b"Content-Encoding: br\r\n",
    b"Connection: close\r\n",
    b"Retry-After: 99999999999999999999\r\n",
    b"Retry-After: \xff\r\n",
    b"Location: \xff/?a\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"ffffffffffffffffff\r\n",
    b"A;b=c\r\n",
]
WIRE = st.lists(st.one_of(st.sampled_from(HEADS), SOUP), max_size=16).map(b"".join)
PROTOCOL = st.sampled_from(sorted(PROTOCOLS))


def any_events(body: bytes, cuts: list[int], protocol: str, end: End | None, status: int) -> None:
    """Any body, read in any pieces."""
    pieces = cut(body, cuts)
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    stamps = np.arange(len(ends), dtype=np.int64) * 10
    parsed = parse_request(wire_protocol(protocol), body, stamps, ends, end=end, status=status)
    fits_together(parsed, stamps)
    payloads, offsets = split_events(body)
    assert len(payloads) == len(offsets)
    assert 0 <= last_complete(body) <= len(body)


def any_wire(reads: list[bytes], protocol: str, flush: bool, lost: bool) -> None:
    """Any bytes on a connection, in any reads."""
    owner = received(reads, flush=flush, lost=lost)
    assert len(owner.sink.ended) <= 1 + sum(read.count(b"HTTP/1.") for read in [b"".join(reads)])
    assert owner.sink.ends == sorted(owner.sink.ends)
    assert len(owner.sink.stamps) == len(owner.sink.ends)
    fits_together(parsed_of(owner.sink, protocol), np.array(owner.sink.stamps, dtype=np.int64))


def any_coding(body: bytes, cuts: list[int], coding: Coding) -> None:
    """Any bytes as a compressed body."""
    pieces = cut(body, cuts)
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    try:
        plain, plain_ends = inflate(body, ends, coding)
    except zlib.error:
        return
    assert len(plain_ends) == len(ends)
    assert np.all(np.diff(plain_ends) >= 0)
    assert len(plain_ends) == 0 or plain_ends[-1] == len(plain)


def packed(body: bytes, coding: Coding, flush_every: int) -> bytes:
    engine = zlib.compressobj(wbits=31 if coding is Coding.GZIP else 15)
    out = b""
    for at in range(0, len(body), flush_every):
        out += engine.compress(body[at : at + flush_every]) + engine.flush(zlib.Z_SYNC_FLUSH)
    return out + engine.flush()


NAMES = {Coding.GZIP: b"Content-Encoding: gzip\r\n", Coding.DEFLATE: b"Content-Encoding: deflate\r\n", Coding.IDENTITY: b""}


def any_cut(name: str, cuts: list[int], size: int, coding: Coding, flush: bool) -> None:
    """A known answer in any framing: the same chunks as read whole."""
    wanted = TRANSCRIPTS[name]
    body = (FOLDER / name).read_bytes()
    if coding is not Coding.IDENTITY:
        body = packed(body, coding, max(1, size * 3))
    wire = chunked(body, size=size) if size < 200 else sized(body, extra=NAMES[coding])
    if size < 200:
        wire = wire.replace(b"\r\n", b"\r\n" + NAMES[coding], 1)
    owner = received(cut(wire, cuts), flush=flush)
    parsed = parsed_of(owner.sink, wanted.protocol)
    assert (parsed.outcome, parsed.error) == (Outcome.OK, None)
    assert parsed.chunk_tokens.tolist() == wanted.tokens
    assert parsed.chunk_bytes.tolist() == wanted.bytes_
    fits_together(parsed, np.array(owner.sink.stamps, dtype=np.int64))


ENDS = st.sampled_from([*End, None])
TARGETS: dict[str, tuple[Callable[..., None], dict[str, st.SearchStrategy[Any]]]] = {
    "any_events": (
        any_events,
        {"body": SOUP, "cuts": CUTS, "protocol": PROTOCOL, "end": ENDS, "status": st.sampled_from([200, -1, 500, 302])},
    ),
    "any_wire": (
        any_wire,
        {
            "reads": st.builds(cut, WIRE, CUTS),
            "protocol": PROTOCOL,
            "flush": st.booleans(),
            "lost": st.booleans(),
        },
    ),
    "any_coding": (
        any_coding,
        {
            "body": st.one_of(st.binary(max_size=60), st.binary(max_size=60).map(lambda b: packed(b, Coding.GZIP, 7)[:-2])),
            "cuts": CUTS,
            "coding": st.sampled_from([Coding.GZIP, Coding.DEFLATE]),
        },
    ),
    "any_cut": (
        any_cut,
        {
            "name": st.sampled_from(STREAMED),
            "cuts": CUTS,
            "size": st.integers(1, 400),
            "coding": st.sampled_from(list(NAMES)),
            "flush": st.booleans(),
        },
    ),
}


@pytest.mark.parametrize("target", TARGETS)
def test_fuzz(target: str) -> None:
    check, strategies = TARGETS[target]
    settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))(given(**strategies)(check))()


@pytest.mark.proof
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz_for_long(target: str) -> None:
    check, strategies = TARGETS[target]
    until = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "600")) / len(TARGETS)
    longer = settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    while time.monotonic() < until:
        longer(given(**strategies)(check))()


def test_the_fuzzed_connection_reads_a_plain_answer() -> None:
    """What the fuzz drives is the real thing."""
    owner = received([chunked(answer(3))])
    assert owner.first == 1
    assert parsed_of(owner.sink).chunk_bytes.tolist() == [3, 3, 3]
    lost = received([chunked(chat({"content": "a"}))[:-9]], lost=True)
    assert lost.sink.ended[0][0] is End.BROKEN
