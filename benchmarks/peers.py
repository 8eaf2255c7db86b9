"""Other clients beside ours, as whole commands, one after another: `python benchmarks/peers.py [--streams 200] [--rounds 12]`.

Each gets the benchmark's server (50 ms to the first token, then one every 20 ms, 128 in all) for itself, and the first core where
there are two. Beside what it reports stands what the server did: over the same window where the client tells one, else over all
that it was asked. CPU per chunk is that of the whole command with all its processes, report included, less what it took until
its first request (start-up: CPU, and when that request came); the verdict is the client's own on its numbers. `vllm bench serve`,
`aiperf` and `guidellm` are found on PATH, or by PEER_VLLM, PEER_AIPERF and PEER_GUIDELLM, each a command in an environment of its
own, in one word or several (PEER_VLLM="/envs/vllm/bin/python -m vllm.entrypoints.cli.main").
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import psutil

from benchmarks._peer_commands import CLIENTS, Client, Job, Seen
from benchmarks._stream_server import Schedule, StreamServer, TruthNs
from benchmarks._trials import cpu_s, true_latencies_ns

NOT_INSTALLED = 4
COLUMNS = ("client", "TTFT p50", "true", "TTFT p99", "true", "gap p99", "true", "us/chunk", "start-up", "verdict")
ROW = "{:<16}{:>9}{:>8}{:>10}{:>8}{:>14}{:>8}{:>10}  {:<18}{}"
POLL_S = 0.25


class TreeCpu:
    """CPU [s] of a command and all that it starts, as time goes by: so that its start-up can be told apart."""

    def __init__(self, pid: int) -> None:
        self._at_ns: list[int] = [perf_counter_ns()]
        self._used_s: list[float] = [0.0]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(psutil.Process(pid),), daemon=True)
        self._thread.start()

    def _watch(self, root: psutil.Process) -> None:
        while not self._over.wait(POLL_S):
            with contextlib.suppress(psutil.Error):
                tree = (root, *root.children(recursive=True))
                self._used_s.append(max(self._used_s[-1], sum(sum(process.cpu_times()[:4]) for process in tree)))
                self._at_ns.append(perf_counter_ns())

    def until_s(self, moment_ns: int) -> float:
        """What had been used at a moment."""
        return float(np.interp(moment_ns, self._at_ns, self._used_s))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One command: what it saw, what was true, CPU [s] in all and until its first request, and when that came [s]."""

    seen: Seen
    truth: TruthNs
    cpu_s: float
    start_cpu_s: float
    starts_s: float

    def row(self, client: Client) -> str:
        ttft, gap = true_latencies_ns(self.truth, *(self.seen.window_ns or ()))
        true = [f"{np.quantile(*of) / 1e6:.1f}" for of in ((ttft, 0.5), (ttft, 0.99), (gap, 0.99))]
        seen_ms = (self.seen.ttft_p50_ms, self.seen.ttft_p99_ms, self.seen.gap_p99_ms)
        seen = ["-" if ms is None else f"{ms:.1f}" for ms in seen_ms]
        chunks = len(self.truth["first"]) + len(self.truth["gap"])
        return ROW.format(
            client.name, seen[0], true[0], seen[1], true[1], f"{seen[2]} {client.gap}", true[2],
            f"{(self.cpu_s - self.start_cpu_s) / chunks * 1e6:.1f}", f"{self.start_cpu_s:.1f} s, at {self.starts_s:.1f} s",
            self.seen.verdict,
        )  # fmt: skip


def run(client: Client, executable: Sequence[str], streams: int, rounds: int) -> Outcome | str:
    """One client against a server of its own; or why there is nothing to tell."""
    schedule = Schedule()
    with StreamServer(schedule) as server, tempfile.TemporaryDirectory() as folder:
        job = Job(url=server.url, folder=Path(folder), streams=streams, rounds=rounds, schedule=schedule)
        before_s, began_ns = cpu_s(), perf_counter_ns()
        command = subprocess.Popen(
            [*executable, *client.command(job)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        watch = TreeCpu(command.pid)
        printed, said = command.communicate(timeout=job.seconds * 10 + 300)
        watch.stop()
        used_s = cpu_s() - before_s
        if command.returncode == NOT_INSTALLED and client.program is None:
            return "not installed"
        truth = server.truth()
        try:
            seen = client.read(job, printed)
        except (OSError, ValueError, LookupError, TypeError):
            last = (said or printed).strip().splitlines()[-1:]
            return f"failed with exit status {command.returncode}: {last[0][:200] if last else 'it said nothing'}"
    first_ns = int(truth["asked"].min())
    return Outcome(
        seen=seen, truth=truth, cpu_s=used_s, start_cpu_s=watch.until_s(first_ns), starts_s=(first_ns - began_ns) / 1e9
    )  # fmt: skip


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Parse flags, run each client that is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=12)
    flags = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    say(f"{flags.streams} streams, {flags.streams * flags.rounds} requests of 128 chunks; times in ms")
    say(ROW.format(*COLUMNS))
    for client in CLIENTS:
        executable = client.executable()
        outcome = run(client, executable, flags.streams, flags.rounds) if executable else "not installed"
        say(f"{client.name:<16}{outcome}" if isinstance(outcome, str) else outcome.row(client))
    say("gap p99: ICL = of all gaps between chunks; means = of the mean gap of each request, which hides stalls")


if __name__ == "__main__":
    main()
