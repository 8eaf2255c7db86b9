"""Trials of our own load generator against a benchmark's server, and what they cost."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.load import WireLoad
from bench.ports import LoadPlan
from bench.records import Case, LengthSpec, LoadResult, LoadSpec, Profile, Target, Telemetry
from bench.timing.trial import measure
from benchmarks._stream_server import MODEL, PROMPT_TOKENS, TruthNs

WARM_UP_S = 2.0


def case_of(load: LoadSpec, *, tokens: int, seconds: float, **over: float) -> Case:
    """A case of one client worker; `over` replaces seconds of its other phases."""
    phases = {"warmup_s": WARM_UP_S, "grace_s": 10.0, "request_timeout_s": 60.0, "idle_s": 0.0} | over
    return Case(
        name="bench", suite="benchmarks", model=MODEL, model_source=None, precision=None, engine="openai", load=load,
        input_tokens=LengthSpec(mean=PROMPT_TOKENS), output_tokens=LengthSpec(mean=tokens), duration_s=seconds, repeats=1,
        profile=Profile.SMOKE, client_workers=1, **phases,
    )  # fmt: skip


def run(url: str, case: Case) -> LoadResult:
    """One trial."""
    target = Target(base_url=url, protocol="openai-chat", model=MODEL)
    with tempfile.TemporaryDirectory() as folder:
        plan = LoadPlan(case=case, target=target, salt="bench", spill_dir=Path(folder))
        return WireLoad().run(plan, lambda _: None, lambda: None)


def verdict(case: Case, result: LoadResult) -> str:
    """Valid, or why not."""
    reasons = measure(case, result, Telemetry(), {}, {}).reasons
    against = [f"{r.code} ({r.group}): {r.message}" for r in reasons if r.severity == "invalid"]
    return "; ".join(against) or "valid"


def latencies_ns(result: LoadResult) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(TTFT of requests sent in the window, gaps between chunks that came in it) [ns]."""
    log, window = result.log, result.window
    assert window is not None
    sent = (log.sent_ns >= window.t0_ns) & (log.sent_ns < window.t1_ns)
    starts = np.searchsorted(log.chunk_request, np.flatnonzero(sent))
    keep = np.bincount(log.chunk_request, minlength=len(log))[sent] > 0
    gap, at = np.diff(log.chunk_ns), log.chunk_ns[1:]
    inside = (log.chunk_request[1:] == log.chunk_request[:-1]) & (at >= window.t0_ns) & (at < window.t1_ns)
    return log.chunk_ns[starts[keep]] - log.sent_ns[sent][keep], gap[inside]


def true_latencies_ns(
    truth: TruthNs, t0_ns: int | None = None, t1_ns: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same as the server did it, in a window or over all that it served [ns]."""
    low, high = t0_ns or 0, t1_ns or np.iinfo(np.int64).max
    asked = (truth["asked"] >= low) & (truth["asked"] < high)
    at = (truth["gap_at"] >= low) & (truth["gap_at"] < high)
    return (truth["first"] - truth["asked"])[asked], truth["gap"][at]


def beside_the_truth(result: LoadResult, truth: TruthNs) -> Iterator[str]:
    """Two lines: client beside server, over the client's window."""
    assert result.window is not None
    theirs = true_latencies_ns(truth, result.window.t0_ns, result.window.t1_ns)
    for name, ours_ns, true_ns in zip(("TTFT", "ICL"), latencies_ns(result), theirs, strict=True):
        cells = [f"{name:8s}"]
        for q in (0.5, 0.99):
            ours, true = np.quantile(ours_ns, q) / 1e6, np.quantile(true_ns, q) / 1e6
            cells.append(f"p{q * 100:.0f} {ours:8.2f} ms, server {true:8.2f} ms, off by {ours - true:+6.2f}")
        yield "  ".join(cells)


def cpu_s() -> float:
    """CPU seconds of this process and of all children that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def start_up_cpu_s(url: str) -> float:
    """CPU seconds of a client that sends next to nothing."""
    before = cpu_s()
    run(url, replace(case_of(LoadSpec(kind="closed", batch_size=1), tokens=1, seconds=0.1), warmup_s=0.0))
    return cpu_s() - before
