"""Two plain clients, as most tools write theirs: an aiohttp loop and an httpx loop that decode each event as it comes.

A program: `python -m bench.lab.reference_client aiohttp URL STREAMS SECONDS` prints what it believes to have seen, and what that
cost it. They exist to be compared with, never to measure an engine.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

NAMES = ("aiohttp", "httpx")
_BODY = {
    "model": "mock",
    "messages": [{"role": "user", "content": "hello " * 32}],
    "max_tokens": 64,
    "stream": True,
    "stream_options": {"include_usage": True},
}


async def _aiohttp_lines(client: Any, url: str) -> AsyncIterator[bytes]:
    async with client.post(url, json=_BODY) as response:
        async for line in response.content:
            yield line


async def _httpx_lines(client: Any, url: str) -> AsyncIterator[bytes]:
    async with client.stream("POST", url, json=_BODY) as response:
        async for line in response.aiter_lines():
            yield line.encode()


def _session(name: str, streams: int) -> Any:
    library = importlib.import_module(name)
    if name == "aiohttp":
        return library.ClientSession(connector=library.TCPConnector(limit=streams), timeout=library.ClientTimeout(total=None))
    limits = library.Limits(max_connections=streams, max_keepalive_connections=streams)
    return library.AsyncClient(limits=limits, timeout=None, trust_env=False)


async def _stream(name: str, client: Any, url: str, until_ns: int, seen: list[list[int]]) -> None:
    """Requests one after another; of each, the send time and the time of every content event."""
    lines = _aiohttp_lines if name == "aiohttp" else _httpx_lines
    while time.perf_counter_ns() < until_ns:
        stamps = [time.perf_counter_ns()]
        async for line in lines(client, url):
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                stamps.append(time.perf_counter_ns())
        seen.append(stamps)


async def _run(name: str, url: str, streams: int, seconds: float) -> dict[str, float]:
    seen: list[list[int]] = []
    start_ns = time.perf_counter_ns()
    cpu_s = time.process_time()
    until_ns = start_ns + int(seconds * 1e9)
    async with _session(name, streams) as client:
        waits = []
        for index in range(streams):
            waits.append(asyncio.create_task(_stream(name, client, url, until_ns, seen)))
            await asyncio.sleep(0 if index % 16 else seconds * 0.2 / (streams / 16 + 1))
        await asyncio.gather(*waits)
    cpu_s = time.process_time() - cpu_s
    t0_ns = start_ns + int(seconds * 0.4e9)
    inside = [stamps for stamps in seen if t0_ns <= stamps[0] < until_ns and len(stamps) > 2]
    ttft = np.array([(stamps[1] - stamps[0]) / 1e6 for stamps in inside])
    gaps = np.concatenate([np.diff(stamps[1:]) / 1e6 for stamps in inside])
    chunks = sum(len(stamps) - 1 for stamps in seen)
    return {
        "t0_ns": t0_ns,
        "t1_ns": until_ns,
        "ttft_p50_ms": float(np.quantile(ttft, 0.5)),
        "ttft_p99_ms": float(np.quantile(ttft, 0.99)),
        "icl_p99_ms": float(np.quantile(gaps, 0.99)),
        "cpu_us_per_chunk": cpu_s * 1e6 / chunks,
    }


def main(argv: list[str]) -> None:
    """Print one JSON object; exit 4 where the library is not installed."""
    name, url, streams, seconds = argv[1], argv[2], int(argv[3]), float(argv[4])
    try:
        importlib.import_module(name)
    except ImportError:
        sys.exit(4)
    try:
        import uvloop

        result = uvloop.run(_run(name, f"{url}/v1/chat/completions", streams, seconds))
    except ImportError:
        result = asyncio.run(_run(name, f"{url}/v1/chat/completions", streams, seconds))
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv)
