"""Whether an open loop keeps its schedule: `python benchmarks/open_loop.py [--rate 2000] [--seconds 30]`.

One client worker sends short requests (4 tokens: 5 ms, then 2 ms apart) at constant moments to the benchmark's server, with
Poisson arrivals afterwards. Printed for each: requests asked and sent a second over the window, how late sends were against the
schedule (p50, p99, largest), the same for the first and the last third of the window (drift), what an OK answer took, and whether
the trial would be valid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.records import MISSING, LoadResult, LoadSpec, Outcome
from benchmarks._stream_server import Schedule, StreamServer
from benchmarks._trials import beside_the_truth, case_of, run, verdict

SHORT = Schedule(ttft_ms=5.0, gap_ms=2.0, chunks=4)


def lags_ms(late_ns: NDArray[np.int64]) -> str:
    """The quantiles of how late sends were."""
    p50, p99, most = np.quantile(late_ns, (0.5, 0.99, 1.0)) / 1e6
    return f"p50 {p50:.3f} ms, p99 {p99:.3f} ms, max {most:.3f} ms"


def told(result: LoadResult, rate: float) -> Iterator[str]:
    """What was asked and what became of it."""
    log, window = result.log, result.window
    assert window is not None
    due = (log.scheduled_ns >= window.t0_ns) & (log.scheduled_ns < window.t1_ns)
    sent_in = int(((log.sent_ns >= window.t0_ns) & (log.sent_ns < window.t1_ns)).sum())
    went = np.flatnonzero(due & (log.sent_ns != MISSING))
    went = went[np.argsort(log.scheduled_ns[went])]
    late_ns = (log.sent_ns - log.scheduled_ns)[went]
    thirds = np.array_split(late_ns, 3)
    scheduled, sent = due.sum() / window.seconds, sent_in / window.seconds
    off = 100 * (sent / scheduled - 1)
    yield f"requests/s: asked {rate:g}, scheduled {scheduled:.1f}, sent {sent:.1f} (off its schedule by {off:+.3f}%)"
    yield f"send lag, whole window: {lags_ms(late_ns)}"
    yield f"send lag, first third:  {lags_ms(thirds[0])}"
    yield f"send lag, last third:   {lags_ms(thirds[2])}"
    succeeded = int((log.outcome[due] == Outcome.OK).sum())
    asked, reached = int(due.sum()), result.health.in_flight_reached
    yield f"OK {succeeded} of {asked}, never sent {asked - len(went)}, most in flight {reached}"


def measure(rate: float, seconds: float, arrivals: Literal["constant", "poisson"], *, pinned: bool) -> None:
    """One kind of arrivals, printed."""
    with StreamServer(SHORT, pinned=pinned) as server:
        case = case_of(LoadSpec(kind="open", request_rate=rate, arrivals=arrivals), tokens=SHORT.chunks, seconds=seconds)
        result = run(server.url, case)
        truth = server.truth()
    health = result.health
    lines = [
        f"{arrivals} arrivals, {rate:g} requests/s for {seconds:g} s",
        *told(result, rate),
        f"worker CPU share {health.cpu_share:.2f}, loop lag p99 {health.loop_lag_p99_ms:.2f} ms",
        *beside_the_truth(result, truth),
        verdict(case, result),
    ]
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Parse flags, measure both kinds of arrivals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--no-pin", action="store_true")
    flags = parser.parse_args()
    for arrivals in ("constant", "poisson"):
        measure(flags.rate, flags.seconds, arrivals, pinned=not flags.no_pin)


if __name__ == "__main__":
    main()
