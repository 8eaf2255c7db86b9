"""How many streams this machine's client can follow with a true p99, found against the mock engine and its own truth."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench import codec, mock, suite, timing
from bench.errors import BenchError, StoreError
from bench.lab.reference_client import NAMES
from bench.load import WireLoad
from bench.mock.truth import Truth
from bench.ports import LoadPlan
from bench.records import Case, LoadResult, Target, Telemetry, TrialRecord
from bench.whole_file import write_whole

TTFT_MS = 50.0
GAP_MS = 20.0
LADDER = (30, 50, 100, 200, 400, 600, 800, 1000, 1400, 2000, 2800, 4000)
_TOLERANCE_MS = 2.0
_TOLERANCE_SHARE = 0.05

Verdict = Literal["true", "off", "client_saturated", "server_saturated", "too_few"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rate of streaming. `*_ms` are the client's, `true_*_ms` the server's over the same window [ms]."""

    client: str
    streams: int
    chunks_per_s: float
    ttft_p99_ms: float | None
    true_ttft_p99_ms: float | None
    icl_p99_ms: float | None
    true_icl_p99_ms: float | None
    cpu_us_per_chunk: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheck:
    """What was found on a host. `limit_chunks_per_s`: the highest rate whose p99 was true; None if none was. `limited_by` says
    what gave way above it: then more could be had from a faster server, more workers, or nothing.
    """

    host_id: str
    bench_version: str
    cores: int
    limit_streams: int | None
    limit_chunks_per_s: float | None
    limited_by: Verdict | None
    rungs: tuple[Rung, ...]
    references: tuple[Rung, ...]


def climb(seconds: float, say: Callable[[Rung], None], *, ladder: tuple[int, ...] = LADDER) -> Iterator[Rung]:
    """Our client up the ladder, until two rungs in a row are not true. One that can't be told has no say."""
    misses = 0
    for streams in ladder:
        rung = _ours(streams, seconds)
        say(rung)
        yield rung
        misses = 0 if rung.verdict in ("true", "too_few") else misses + 1
        if misses == 2:
            return


def references(streams: int, seconds: float, say: Callable[[Rung], None]) -> Iterator[Rung]:
    """The plain clients that are installed, at one rung."""
    for name in NAMES:
        rung = _reference(name, streams, seconds)
        if rung is not None:
            say(rung)
            yield rung


def judge(*, ttft_ms: float | None, icl_ms: float | None, truth: Truth, client_saturated: bool) -> Verdict:
    """Whether the client's p99 are the server's, within 2 ms or 5%; a saturated party is named first. `too_few`: requests for a
    p99, which needs a hundred.
    """
    if truth.server_saturated:
        return "server_saturated"
    if client_saturated:
        return "client_saturated"
    pairs = ((ttft_ms, truth.ttft_ms.p99), (icl_ms, truth.icl_ms.p99))
    told = [(ours, true) for ours, true in pairs if ours is not None and true is not None]
    if len(told) < len(pairs):
        return "too_few"
    return "true" if all(_near(ours, true) for ours, true in told) else "off"


def _near(ours_ms: float, true_ms: float) -> bool:
    return abs(ours_ms - true_ms) <= max(_TOLERANCE_MS, _TOLERANCE_SHARE * true_ms)


def _ours(streams: int, seconds: float) -> Rung:
    with mock.start(ttft_ms=TTFT_MS, gap_ms=GAP_MS) as server, tempfile.TemporaryDirectory() as folder:
        case = _case(server.url, streams, seconds)
        target = Target(base_url=server.url, protocol=case.protocol, model="mock")
        plan = LoadPlan(case=case, target=target, salt=f"selfcheck {streams}", spill_dir=Path(folder))
        result = WireLoad().run(plan, lambda progress: None, lambda: None)
        if result.window is None:
            raise BenchError(f"the load of {streams} streams never became steady")
        truth = server.truth(result.window.t0_ns, result.window.t1_ns)
    measured = timing.measure(case, result, Telemetry(), {}, {}, attached=True)
    ttft, icl = (measured.metrics[name].p99 for name in ("ttft_ms", "icl_ms"))
    saturated = any(reason.code == "client_saturated" for reason in measured.reasons)
    chunks_per_s = _chunks_per_s(result)
    return Rung(
        client="bench",
        streams=streams,
        chunks_per_s=chunks_per_s,
        ttft_p99_ms=ttft,
        true_ttft_p99_ms=truth.ttft_ms.p99,
        icl_p99_ms=icl,
        true_icl_p99_ms=truth.icl_ms.p99,
        cpu_us_per_chunk=_cpu_us_per_chunk(result, chunks_per_s),
        verdict=judge(ttft_ms=ttft, icl_ms=icl, truth=truth, client_saturated=saturated),
    )


def _case(url: str, streams: int, seconds: float) -> Case:
    options = {
        "engine": "openai",
        "base_url": url,
        "model": "mock",
        "batch_size": streams,
        "input_tokens": 32,
        "output_tokens": 64,
        "duration": seconds,
        "warmup": max(2.0, seconds / 2),
    }
    return suite.from_options(options)[0]


def _chunks_per_s(result: LoadResult) -> float:
    window = result.window
    assert window is not None
    stamps = result.log.chunk_ns
    return float(((stamps >= window.t0_ns) & (stamps < window.t1_ns)).sum() / window.seconds)


def _cpu_us_per_chunk(result: LoadResult, chunks_per_s: float) -> float | None:
    share, workers = result.health.cpu_share, result.health.workers
    return None if share is None or not chunks_per_s else share * workers * 1e6 / chunks_per_s


def _reference(name: str, streams: int, seconds: float) -> Rung | None:
    """One plain client in a process of its own; None where it is not installed."""
    with mock.start(ttft_ms=TTFT_MS, gap_ms=GAP_MS) as server:
        command = [sys.executable, "-m", "bench.lab.reference_client", name, server.url, str(streams), str(seconds * 5 / 3)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 10 + 60, check=False)
        if done.returncode == 4:
            return None
        if done.returncode != 0:
            raise BenchError(f"the {name} client failed: {done.stderr.strip().splitlines()[-1:]}")
        seen = json.loads(done.stdout)
        truth = server.truth(int(seen["t0_ns"]), int(seen["t1_ns"]))
    return Rung(
        client=name,
        streams=streams,
        chunks_per_s=truth.output_chunks / truth.seconds,
        ttft_p99_ms=seen["ttft_p99_ms"],
        true_ttft_p99_ms=truth.ttft_ms.p99,
        icl_p99_ms=seen["icl_p99_ms"],
        true_icl_p99_ms=truth.icl_ms.p99,
        cpu_us_per_chunk=seen["cpu_us_per_chunk"],
        verdict=judge(ttft_ms=seen["ttft_p99_ms"], icl_ms=seen["icl_p99_ms"], truth=truth, client_saturated=False),
    )


def summed(rungs: tuple[Rung, ...], plain: tuple[Rung, ...], *, host_id: str, bench_version: str, cores: int) -> SelfCheck:
    """The limit that the rungs show: the highest true one."""
    true = [rung for rung in rungs if rung.verdict == "true"]
    best = max(true, key=lambda rung: rung.chunks_per_s, default=None)
    above = [r for r in rungs if r.verdict not in ("true", "too_few") and (best is None or r.chunks_per_s > best.chunks_per_s)]
    return SelfCheck(
        host_id=host_id,
        bench_version=bench_version,
        cores=cores,
        limit_streams=best.streams if best else None,
        limit_chunks_per_s=best.chunks_per_s if best else None,
        limited_by=above[0].verdict if above else None,
        rungs=rungs,
        references=plain,
    )


def save(results: Path, check: SelfCheck) -> Path:
    """Keep the newest self-check of a host in the results folder. Raises: StoreError."""
    path = _path(results, check.host_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, codec.encode_pretty(check))
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror}", hint="choose another folder with --results DIR") from error
    return path


def known_limit(results: Path, host_id: str) -> float | None:
    """Chunks per second that this host's client is known to follow; None before `bench selfcheck` has been run here."""
    try:
        return codec.decode(_path(results, host_id).read_bytes(), SelfCheck).limit_chunks_per_s
    except (OSError, ValueError):
        return None


def client_share(records: Sequence[TrialRecord], limit_chunks_per_s: float | None) -> float | None:
    """Rate of content chunks of the busiest of these trials / the client's known limit; None where either is unknown."""
    rates = [rate for record in records if (rate := _chunk_rate(record)) is not None]
    return max(rates) / limit_chunks_per_s if rates and limit_chunks_per_s else None


def _chunk_rate(record: TrialRecord) -> float | None:
    tokens_per_s, tokens_per_chunk = (record.metrics.get(name) for name in ("output_tok_per_s", "tokens_per_chunk"))
    if tokens_per_s is None or tokens_per_chunk is None or tokens_per_s.value is None:
        return None
    per_chunk = tokens_per_chunk.value if tokens_per_chunk.value is not None else tokens_per_chunk.mean
    return tokens_per_s.value / per_chunk if per_chunk else None


def _path(results: Path, host_id: str) -> Path:
    return results / "selfcheck" / f"{host_id}.json"
