"""The server that the benchmarks of clients share: prepared chunks on an exact schedule, every write stamped.

It runs in a process of its own, on a core of its own where there are two: `with StreamServer() as server: ...`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter_ns
from types import TracebackType
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from bench.mock.listener import Listener, listen_tcp

MODEL = "m"
PROMPT_TOKENS = 64
ALL_CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
TruthNs = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Each request gets `chunks` chunks of one token, the first `ttft_ms` after it was read, one every `gap_ms` from there."""

    ttft_ms: float = 50.0
    gap_ms: float = 20.0
    chunks: int = 128


@dataclass(slots=True)
class _Stamps:
    """What the server did [ns]: request read, first content written, and each later write with its gap to the one before."""

    asked: array[int] = field(default_factory=lambda: array("q"))
    first: array[int] = field(default_factory=lambda: array("q"))
    gap_at: array[int] = field(default_factory=lambda: array("q"))
    gap: array[int] = field(default_factory=lambda: array("q"))


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1790000000, "model": MODEL}
    return _framed(b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    """An HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _tail(chunks: int) -> bytes:
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": chunks, "total_tokens": PROMPT_TOKENS + chunks}
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    return _event({}, "length") + _framed(last) + _framed(b"data: [DONE]\n\n") + _framed(b"")


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_CHUNK = _event({"content": " token"})
_MODELS = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
_LIST = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_MODELS), _MODELS)


class _Stream(asyncio.Protocol):
    """Answers each POST by the schedule, each GET with the list of models."""

    def __init__(self, loop: asyncio.AbstractEventLoop, schedule: Schedule, stamps: _Stamps) -> None:
        self._loop, self._schedule, self._stamps = loop, schedule, stamps
        self._tail = _tail(schedule.chunks)
        self._pending = b""
        self._sent = 0
        self._asked_ns = self._last_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        self._pending += data
        head, gap, body = self._pending.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length: ")
        if not gap or (at >= 0 and len(body) < int(head[at + 16 :].split(b"\r\n")[0])):
            return
        self._pending = b""
        if head.startswith(b"GET"):
            self._transport.write(_LIST)
            return
        self._asked_ns, self._sent = perf_counter_ns(), 0
        self._transport.write(_HEAD)
        self._after(self._schedule.ttft_ms)

    def _after(self, offset_ms: float) -> None:
        self._loop.call_later(max(0.0, (self._asked_ns + offset_ms * 1e6 - perf_counter_ns()) / 1e9), self._write)

    def _write(self) -> None:
        if self._transport.is_closing():
            return
        now_ns = perf_counter_ns()
        if self._sent == 0:
            self._stamps.asked.append(self._asked_ns)
            self._stamps.first.append(now_ns)
        else:
            self._stamps.gap_at.append(now_ns)
            self._stamps.gap.append(now_ns - self._last_ns)
        self._last_ns = now_ns
        self._sent += 1
        if self._sent == self._schedule.chunks:
            self._transport.write(_CHUNK + self._tail)
        else:
            self._transport.write(_CHUNK)
            self._after(self._schedule.ttft_ms + self._sent * self._schedule.gap_ms)


def _serve(pipe: Connection, schedule: Schedule) -> None:
    """Serve until asked for the truth."""
    import uvloop

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    stamps = _Stamps()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        listening = listen_tcp("127.0.0.1", 0, backlog=4096)
        Listener(loop, listening, lambda: _Stream(loop, schedule, stamps))
        pipe.send(listening.getsockname()[1])
        asked = asyncio.Event()
        loop.add_reader(pipe.fileno(), asked.set)
        await asked.wait()
        loop.remove_reader(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)  # the loop had it otherwise
        pipe.recv()
        pipe.send({name: np.array(getattr(stamps, name), np.int64) for name in ("asked", "first", "gap_at", "gap")})

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(run())


class StreamServer:
    """The server in a process of its own; leaving its `with` block ends it. `pinned`: it gets the second core, and what is
    started from here on the first, where there are two.
    """

    def __init__(self, schedule: Schedule = Schedule(), *, pinned: bool = True) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, schedule), daemon=True)
        self._process.start()
        self.port = int(self._pipe.recv())
        self.url = f"http://127.0.0.1:{self.port}"
        if pinned and len(ALL_CORES) >= 2:
            os.sched_setaffinity(self._process.pid or 0, {ALL_CORES[1]})
            os.sched_setaffinity(0, {ALL_CORES[0]})

    def truth(self) -> TruthNs:
        """What it did [ns]: `asked`, `first` (one a request), `gap_at`, `gap` (one a later chunk). Ends it."""
        self._pipe.send("truth")
        found = cast("TruthNs", self._pipe.recv())
        self._process.join()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()
