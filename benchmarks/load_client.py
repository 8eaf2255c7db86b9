"""What the load generator costs and how true it is: `python benchmarks/load_client.py [--streams 200 1000] [--seconds 10]`.

A server in a process of its own sends prepared chunks on an exact schedule and stamps every write. Printed per point: CPU per
streamed chunk of the whole client (worker and harness, less their start-up), of the worker while it reads, and of parsing; and
the client's TTFT and inter-chunk latency beside what the server really did over the same window, and whether the trial would be
valid. With two cores or more the client (harness and worker) has one to itself and the server the next; `--no-pin` leaves that to
the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from pathlib import Path
from time import perf_counter_ns
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bench.load import WireLoad
from bench.ports import LoadPlan
from bench.records import Case, LengthSpec, LoadResult, LoadSpec, Profile, Target, Telemetry
from bench.timing.trial import measure as judge

TTFT_MS, GAP_MS, CHUNKS = 50.0, 20.0, 128


@dataclass(slots=True)
class Truth:
    """Stamps [ns] of what the server did: request read, and each content write with its gap to the one before."""

    asked: array[int] = field(default_factory=lambda: array("q"))
    first: array[int] = field(default_factory=lambda: array("q"))
    gap_at: array[int] = field(default_factory=lambda: array("q"))
    gap: array[int] = field(default_factory=lambda: array("q"))


def chat_chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One event in HTTP chunked framing."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    event = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "m",
        "choices": [choice],
    }
    return framed(b"data: " + json.dumps(event).encode() + b"\n\n")


def framed(data: bytes) -> bytes:
    """An HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = chat_chunk({"content": " token"})
USAGE = {"choices": [], "usage": {"prompt_tokens": 64, "completion_tokens": CHUNKS, "total_tokens": 64 + CHUNKS}}
TAIL = (
    chat_chunk({}, "length")
    + framed(b"data: " + json.dumps(USAGE).encode() + b"\n\n")
    + framed(b"data: [DONE]\n\n")
    + framed(b"")
)


class Stream(asyncio.Protocol):
    """Answers each request with `CHUNKS` chunks at fixed moments after it was read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, truth: Truth) -> None:
        self._loop, self._truth = loop, truth
        self._pending = b""
        self._sent = 0
        self._asked_ns = self._last_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        head, gap, body = self._pending.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length: ")
        if not gap or len(body) < int(head[at + 16 :].split(b"\r\n")[0]):
            return
        self._pending = b""
        self._asked_ns, self._sent = perf_counter_ns(), 0
        self._transport.write(HEAD)
        self._after(TTFT_MS)

    def _after(self, offset_ms: float) -> None:
        self._loop.call_later(max(0.0, (self._asked_ns + offset_ms * 1e6 - perf_counter_ns()) / 1e9), self._write)

    def _write(self) -> None:
        if self._transport.is_closing():
            return
        now_ns = perf_counter_ns()
        if self._sent == 0:
            self._truth.asked.append(self._asked_ns)
            self._truth.first.append(now_ns)
        else:
            self._truth.gap_at.append(now_ns)
            self._truth.gap.append(now_ns - self._last_ns)
        self._last_ns = now_ns
        self._sent += 1
        if self._sent == CHUNKS:
            self._transport.write(CHUNK + TAIL)
        else:
            self._transport.write(CHUNK)
            self._after(TTFT_MS + self._sent * GAP_MS)


def serve(pipe: Connection) -> None:
    """Serve until asked for the truth."""
    import uvloop

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    truth = Truth()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Stream(loop, truth), "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        asked = asyncio.Event()
        loop.add_reader(pipe.fileno(), asked.set)
        await asked.wait()
        loop.remove_reader(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)  # the loop had it otherwise
        pipe.recv()
        pipe.send({name: np.array(getattr(truth, name), np.int64) for name in ("asked", "first", "gap_at", "gap")})

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(run())


class Bare(asyncio.Protocol):
    """The least that a Python client can do: count reads, and ask again at the end of an answer."""

    reads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(ASK)

    def data_received(self, data: bytes) -> None:
        Bare.reads += 1
        if data.endswith(b"0\r\n\r\n"):
            self._transport.write(ASK)


ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def floor(port: int, streams: int, seconds: float, pipe: Connection) -> None:
    """CPU [us] that one read costs a client that does nothing with it: the kernel's and uvloop's share of every figure here."""
    import uvloop

    async def drive() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(streams):
            await loop.create_connection(Bare, "127.0.0.1", port)
        await asyncio.sleep(2.0)
        reads, cpu_ns = Bare.reads, time.process_time_ns()
        await asyncio.sleep(seconds)
        pipe.send((time.process_time_ns() - cpu_ns) / (Bare.reads - reads) / 1e3)

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(drive())


def case_of(streams: int, seconds: float) -> Case:
    """Closed loop, 64 tokens in, `CHUNKS` out."""
    return Case(
        name="bench", suite="benchmarks", model="m", model_source=None, precision=None, engine="openai",
        load=LoadSpec(kind="closed", batch_size=streams), input_tokens=LengthSpec(mean=64), output_tokens=LengthSpec(mean=CHUNKS),
        duration_s=seconds, warmup_s=2.0, grace_s=10.0, request_timeout_s=60.0, idle_s=0.0, repeats=1,
        profile=Profile.SMOKE, client_workers=1,
    )  # fmt: skip


def quantiles(name: str, ours_ns: NDArray[np.int64], truth_ns: NDArray[np.int64]) -> str:
    """One line of the table."""
    cells = [f"{name:8s}"]
    for q in (0.5, 0.99):
        ours, true = np.quantile(ours_ns, q) / 1e6, np.quantile(truth_ns, q) / 1e6
        cells.append(f"p{q * 100:.0f} {ours:8.2f} ms, server {true:8.2f} ms, off by {ours - true:+6.2f}")
    return "  ".join(cells)


def compare(result: LoadResult, truth: dict[str, NDArray[np.int64]]) -> Iterator[str]:
    """Client beside server, over the client's window."""
    log, window = result.log, result.window
    assert window is not None
    sent = (log.sent_ns >= window.t0_ns) & (log.sent_ns < window.t1_ns)
    starts = np.searchsorted(log.chunk_request, np.flatnonzero(sent))
    counts = np.bincount(log.chunk_request, minlength=len(log))[sent]
    keep = counts > 0
    asked = (truth["asked"] >= window.t0_ns) & (truth["asked"] < window.t1_ns)
    yield quantiles("TTFT", log.chunk_ns[starts[keep]] - log.sent_ns[sent][keep], (truth["first"] - truth["asked"])[asked])
    gap = np.diff(log.chunk_ns)
    inside = (
        (log.chunk_request[1:] == log.chunk_request[:-1]) & (log.chunk_ns[1:] >= window.t0_ns) & (log.chunk_ns[1:] < window.t1_ns)
    )
    at = (truth["gap_at"] >= window.t0_ns) & (truth["gap_at"] < window.t1_ns)
    yield quantiles("ICL", gap[inside], truth["gap"][at])


def cpu_s() -> float:
    """CPU seconds of this process and of all children that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def start_up_cpu_s(target: Target) -> float:
    """CPU seconds of a client that sends next to nothing."""
    before = cpu_s()
    run(target, replace(case_of(1, 0.1), warmup_s=0.0))
    return cpu_s() - before


def run(target: Target, case: Case) -> LoadResult:
    """One trial."""
    with tempfile.TemporaryDirectory() as folder:
        return WireLoad().run(
            LoadPlan(case=case, target=target, salt="bench", spill_dir=Path(folder)), lambda _: None, lambda: None
        )


def measure_floor(context: SpawnContext, port: int, streams: int, seconds: float) -> float:
    """`floor` in a process of its own."""
    ours, theirs = context.Pipe()
    child = context.Process(target=floor, args=(port, streams, seconds, theirs), daemon=True)
    child.start()
    found = float(ours.recv())
    child.join()
    return found


def pin(pid: int, core: int) -> None:
    """Keep a process on one core."""
    if sys.platform == "linux":
        os.sched_setaffinity(pid, {sorted(ALL_CORES)[core]})


ALL_CORES = os.sched_getaffinity(0) if sys.platform == "linux" else set()


def verdict(case: Case, result: LoadResult) -> str:
    """Valid, or why not."""
    reasons = judge(case, result, Telemetry(), {}, {}).reasons
    against = [f"{r.code} ({r.group}): {r.message}" for r in reasons if r.severity == "invalid"]
    return "; ".join(against) or "valid"


def measure(streams: int, seconds: float, *, pinned: bool) -> None:
    """One point, printed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    if pinned and len(ALL_CORES) >= 2 and server.pid is not None:
        pin(server.pid, 1)
        pin(0, 0)
    target = Target(base_url=f"http://127.0.0.1:{port}/v1", protocol="openai-chat", model="m")
    base_s = start_up_cpu_s(target)
    before = cpu_s()
    case = case_of(streams, seconds)
    result = run(target, case)
    used_s = cpu_s() - before - base_s
    bare_us = measure_floor(context, port, streams, seconds)
    ours.send("truth")
    truth = ours.recv()
    server.join()
    chunks = len(result.log.chunk_ns)
    health = result.health
    window = result.window
    assert window is not None
    read = int(((result.log.chunk_ns >= window.t0_ns) & (result.log.chunk_ns < window.t1_ns)).sum())
    hot_us = (health.cpu_share or 0.0) * window.seconds / read * 1e6
    lines = [
        f"{streams} streams, {window.seconds:.0f} s window, {read / window.seconds:.0f} chunks/s, {chunks} chunks in all",
        f"CPU per chunk: whole client {used_s / chunks * 1e6:.2f} us (less {base_s:.2f} s of start-up), hot path {hot_us:.2f} us",
        f"CPU per read of a bare uvloop protocol that does nothing: {bare_us:.2f} us",
        f"worker CPU share {health.cpu_share:.2f}, in flight {health.in_flight_reached}",
        f"loop lag p99 {health.loop_lag_p99_ms:.2f} ms, send lag p99 {health.send_lag_p99_ms:.3f} ms",
        f"coalesced reads {health.coalesced_read_share:.5f}",
        *compare(result, truth),
        verdict(case, result),
    ]
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Parse flags, measure each point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--no-pin", action="store_true")
    flags = parser.parse_args()
    for streams in flags.streams:
        measure(streams, flags.seconds, pinned=not flags.no_pin)


if __name__ == "__main__":
    main()
