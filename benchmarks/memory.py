"""What memory the way from raw events to Parquet needs: `python benchmarks/memory.py [--chunks 30000000] [--workers 2] [--json]`.

Spill files of that many streamed chunks are made up, then read in processes of their own, as after a load: each worker's parse,
and the harness's part (gathering the columns of all workers, writing `requests.parquet` and `chunks.parquet`). Printed per
process: the most anonymous memory that it had at one time (what it *needs*), and the most resident memory of all kinds (the pages
of mapped files count in it, which the kernel takes back when others want them). `--limit-mib` makes the kernel refuse more.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from bench.load.columns import parse_spill, spill_path
from bench.load.gather import read_log
from bench.load.spill import End, Meta, SpillWriter
from bench.store.parquet import write_log

CHUNKS_A_REQUEST = 128
STREAMS = 1000
GAP_NS = 20_000_000
EVENT = b'data: {"id":"chatcmpl-0","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":64,"completion_tokens":128}}\n\ndata: [DONE]\n\n'
FLUSHES = 3
"""Blocks in which a body reaches the spill: a reply lasts a few seconds, and each connection is flushed once a second."""


@dataclass(slots=True)
class Peak:
    """One process: what it did, wall seconds, and its memory [MiB]."""

    name: str
    seconds: float
    anonymous_mib: float
    resident_mib: float


def make_spill(folder: Path, worker: int, workers: int, requests: int) -> None:
    """`requests` answered requests as `STREAMS` slots would have sent them, this worker's share of them."""
    spill = SpillWriter(spill_path(folder, worker), Meta("openai-chat", worker))
    body = bytearray(EVENT * CHUNKS_A_REQUEST + LAST + USAGE)
    ends = np.append(np.arange(1, CHUNKS_A_REQUEST) * len(EVENT), len(body)).astype(np.uint32)
    pieces = [(part, int(ends[part[0] - 1]) if part[0] else 0) for part in np.array_split(np.arange(CHUNKS_A_REQUEST), FLUSHES)]
    for number in range(worker, requests, workers):
        sent_ns = 10**12 + number * CHUNKS_A_REQUEST * GAP_NS // STREAMS
        spill.sent(number, -1, sent_ns, 64, CHUNKS_A_REQUEST)
        for part, before_b in pieces:
            stamps = array("q", (sent_ns + (part + 1) * GAP_NS).astype(np.int64).tobytes())
            cuts = array("I", (ends[part] - before_b).astype(np.uint32).tobytes())
            spill.data(number, stamps, cuts, body[before_b : int(ends[part[-1]])])
        spill.end(number, sent_ns + 1, int(stamps[-1]), End.COMPLETE, status=200, error=None)
        if spill.pending_b > 8 << 20:
            spill.flush()
            while spill.behind_b > 64 << 20:
                time.sleep(0.005)
    spill.close()
    if spill.failure is not None:
        raise OSError(spill.failure)


class Watch:
    """Samples this process's anonymous memory until it is told to stop."""

    def __init__(self) -> None:
        self.most_kib = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(0.01):
            self.most_kib = max(self.most_kib, status_kib("RssAnon"))

    def stop(self) -> float:
        """The most that was seen [MiB]."""
        self._over.set()
        self._thread.join()
        return max(self.most_kib, status_kib("RssAnon")) / 1024


def status_kib(name: str) -> int:
    """A line of `/proc/self/status` [KiB]."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def observed(
    pipe: Connection, name: str, limit_mib: int | None, work: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    """Do `work` under watch, and send its `Peak`."""
    if limit_mib is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_mib << 20, limit_mib << 20))
    watch, begun = Watch(), time.perf_counter()
    work(*arguments)
    seconds = time.perf_counter() - begun
    pipe.send(Peak(name, seconds, watch.stop(), status_kib("VmHWM") / 1024))


def gather_and_write(folder: Path, workers: int, chunks: int) -> None:
    """What the harness does when the workers have parsed."""
    log = read_log(folder, list(range(workers)))
    if len(log.chunk_ns) != chunks or int(log.output_tokens.sum()) != chunks:
        raise ValueError(f"{len(log.chunk_ns)} chunks came back, {chunks} were made")
    write_log(folder, "benchmark", log)


def measure(chunks: int, workers: int, limit_mib: int | None) -> list[Peak]:
    """Each process of the way, one after the other."""
    context = multiprocessing.get_context("spawn")
    requests = chunks // CHUNKS_A_REQUEST
    peaks = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for worker in range(workers):
            make_spill(folder, worker, workers, requests)
        jobs: list[tuple[str, Callable[..., None], tuple[object, ...]]] = [
            (f"parse, worker {worker} of {workers}", parse_spill, (folder, worker)) for worker in range(workers)
        ]
        jobs.append(("gather and write Parquet", gather_and_write, (folder, workers, requests * CHUNKS_A_REQUEST)))
        for what, work, arguments in jobs:
            ours, theirs = context.Pipe()
            child = context.Process(target=observed, args=(theirs, what, limit_mib, work, arguments))
            child.start()
            theirs.close()
            try:
                peaks.append(ours.recv())
            except EOFError:
                sys.exit(f"{what}: failed, see above")
            child.join()
    return peaks


def main() -> None:
    """Parse flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=3_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit-mib", type=int)
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    peaks = measure(flags.chunks, flags.workers, flags.limit_mib)
    if flags.json:
        sys.stdout.write(json.dumps([asdict(peak) for peak in peaks]) + "\n")
        return
    for peak in peaks:
        sys.stdout.write(
            f"{flags.chunks:,} chunks, {peak.name}: {peak.seconds:.1f} s, {peak.anonymous_mib:.0f} MiB anonymous, "
            f"{peak.resident_mib:.0f} MiB resident\n"
        )


if __name__ == "__main__":
    main()
