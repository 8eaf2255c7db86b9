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
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from typing import cast

from bench.records import LoadSpec
from benchmarks._stream_server import Schedule, StreamServer
from benchmarks._trials import beside_the_truth, case_of, cpu_s, run, start_up_cpu_s, verdict


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
        reads, used_ns = Bare.reads, time.process_time_ns()
        await asyncio.sleep(seconds)
        pipe.send((time.process_time_ns() - used_ns) / (Bare.reads - reads) / 1e3)

    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(drive())


def measure_floor(port: int, streams: int, seconds: float) -> float:
    """`floor` in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=floor, args=(port, streams, seconds, theirs), daemon=True)
    child.start()
    found = float(ours.recv())
    child.join()
    return found


def measure(streams: int, seconds: float, *, pinned: bool) -> None:
    """One point, printed."""
    schedule = Schedule()
    with StreamServer(schedule, pinned=pinned) as server:
        base_s = start_up_cpu_s(server.url)
        before_s = cpu_s()
        case = case_of(LoadSpec(kind="closed", batch_size=streams), tokens=schedule.chunks, seconds=seconds)
        result = run(server.url, case)
        used_s = cpu_s() - before_s - base_s
        bare_us = measure_floor(server.port, streams, seconds)
        truth = server.truth()
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
        *beside_the_truth(result, truth),
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
