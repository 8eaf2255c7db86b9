"""How much load the mock engine can carry on one core while its schedule stays exact.

    python -m benchmarks.mock_server --streams 200 --streams 1000 --seconds 8

A drain client in this process, pinned to another core where there are two, keeps `--streams` requests in flight and throws
the bytes away. The numbers are the server's own: chunks sent, lag behind its schedule, CPU time of its process.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import click
import psutil
import uvloop

from bench import mock
from bench.clock import SYSTEM
from bench.units import NS_PER_S

WARM_UP_S = 2.0
END = b"0\r\n\r\n"


class Drain(asyncio.Protocol):
    """Sends the same request again as soon as its reply has ended."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.WriteTransport | None = None
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports derive from nothing
        self._send()

    def data_received(self, data: bytes) -> None:
        if data.endswith(END) or (self._tail + data[-5:]).endswith(END):
            self._send()
        else:
            self._tail = data[-5:]

    def _send(self) -> None:
        assert self._transport is not None
        self._tail = b""
        self._transport.write(self._request)


def _request(tokens: int) -> bytes:
    body = (
        f'{{"model":"mock","messages":[{{"role":"user","content":"{"word " * 64}"}}],"max_tokens":{tokens},"stream":true,'
        '"stream_options":{"include_usage":true},"ignore_eos":true}'
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: mock\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _load(server: mock.MockServer, streams: int, tokens: int, seconds: float) -> tuple[int, int, float]:
    """(window start, window end [ns], CPU seconds of the server in it)."""
    place, request = urlsplit(server.url), _request(tokens)
    loop = asyncio.get_running_loop()
    for _ in range(streams):
        await loop.create_connection(lambda: Drain(request), place.hostname or "", place.port or 0)
    await asyncio.sleep(WARM_UP_S)
    process = psutil.Process(server.pid)
    before, from_ns = process.cpu_times(), SYSTEM.monotonic_ns()
    await asyncio.sleep(seconds)
    after, to_ns = process.cpu_times(), SYSTEM.monotonic_ns()
    return from_ns, to_ns, (after.user + after.system) - (before.user + before.system)


def _pin(pid: int, core: int) -> None:
    process = psutil.Process(pid)
    if hasattr(process, "cpu_affinity") and core in process.cpu_affinity():
        process.cpu_affinity([core])


@click.command()
@click.option("--streams", multiple=True, type=int, default=(200, 1000), show_default=True)
@click.option("--tokens", default=128, show_default=True)
@click.option("--seconds", default=8.0, show_default=True)
@click.option("--gap-ms", default=20.0, show_default=True)
@click.option("--ttft-ms", default=50.0, show_default=True)
def main(streams: tuple[int, ...], tokens: int, seconds: float, gap_ms: float, ttft_ms: float) -> None:
    """Print one line for each number of streams."""
    own_core = psutil.cpu_count() or 1
    for count in streams:
        with mock.start(ttft_ms=ttft_ms, gap_ms=gap_ms) as server:
            _pin(server.pid, 0)
            _pin(psutil.Process().pid, own_core - 1)
            from_ns, to_ns, cpu_s = uvloop.run(_load(server, count, tokens, seconds))
            truth = server.truth(from_ns, to_ns)
        window_s = (to_ns - from_ns) / NS_PER_S
        click.echo(
            f"{count} streams: {truth.output_chunks / window_s:.0f} chunks/s, server CPU {100 * cpu_s / window_s:.0f}%, "
            f"{1e6 * cpu_s / max(1, truth.output_chunks):.1f} us/chunk, saturated: {truth.server_saturated}"
        )
        for name, spread in (("lag", truth.lag_ms), ("TTFT", truth.ttft_ms), ("gap", truth.icl_ms)):
            click.echo(
                f"  {name:<5}" + "  ".join(f"{part} {_ms(getattr(spread, part))}" for part in ("p50", "p90", "p99", "max"))
            )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} ms"


if __name__ == "__main__":
    main()
