"""Micro-benchmarks of what runs for every chunk: framing, event splitting, decoding, metrics. Run: make bench"""

from __future__ import annotations

import json

import httptools
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.load import parse_request, split_events
from bench.load.protocols import wire_protocol
from bench.load.spill import End
from bench.records import Outcome
from bench.timing import SPECS, measure
from benchmarks.metrics import a_trial, telemetry

TOKENS = 1000


def _chunk(index: int) -> bytes:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": f"word{index} "}, "finish_reason": None}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


@pytest.fixture(scope="module")
def answer() -> bytes:
    """A thousand content events, the usage, and the end."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1000,"total_tokens":1009}}\n\n'
    finish = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
    return b"".join(_chunk(i) for i in range(TOKENS)) + finish + usage + b"data: [DONE]\n\n"


def test_http_framing(benchmark: BenchmarkFixture, answer: bytes) -> None:
    """`httptools` with a bytearray behind it: one event a read, chunked framing."""
    events = [event + b"\n\n" for event in answer.split(b"\n\n")[:TOKENS]]
    reads = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    class Sink:
        def __init__(self) -> None:
            self.body = bytearray()
            self.on_body = self.body.extend

    def feed() -> int:
        sink = Sink()
        parser = httptools.HttpResponseParser(sink)
        parser.feed_data(head)
        for read in reads:
            parser.feed_data(read)
        return len(sink.body)

    assert benchmark(feed) == sum(len(event) for event in events)


def test_event_splitting(benchmark: BenchmarkFixture, answer: bytes) -> None:
    payloads, ends = benchmark(split_events, answer)
    assert len(payloads) == len(ends) == TOKENS + 3


def test_decoding_a_thousand_events(benchmark: BenchmarkFixture, answer: bytes) -> None:
    protocol = wire_protocol("openai-chat")
    stamps = np.arange(1, 101, dtype=np.int64)
    ends = np.linspace(len(answer) // 100, len(answer), 100).astype(np.int64)
    parsed = benchmark(parse_request, protocol, answer, stamps, ends, end=End.COMPLETE, status=200)
    assert parsed.outcome is Outcome.OK
    assert len(parsed.chunk_ns) == TOKENS


def test_a_million_chunks_through_every_metric(benchmark: BenchmarkFixture) -> None:
    case, load = a_trial(1_000_000)
    measured = benchmark.pedantic(  # type: ignore[no-untyped-call]
        measure, args=(case, load, telemetry(boards=8), {}, {}), rounds=3
    )
    assert measured.metrics["output_tok_per_s"].value > 0
    assert set(measured.metrics) <= set(SPECS)
