"""All metrics that come from the event log, put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.records import MISSING, Case, EventLog, FloatArray, IntArray, Metric, Window
from bench.timing import latency, throughput
from bench.timing.counts import Vetted, vet_counts
from bench.timing.latency import ContentStamps, Gaps
from bench.timing.population import BoolArray, Population, in_flight_mean, population
from bench.timing.spec import scalar, undefined
from bench.timing.summary import adjusted, distribution
from bench.timing.throughput import PerBlock
from bench.timing.tokens import Tokens, count_tokens

_NONE_OK = "no request of the window succeeded"
_NO_CONTENT = "no reply was streamed: no content chunk came"
_ONE_READ = "all of a reply came in one read: the gaps between its tokens can't be seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one pass over the log gives to all metrics and rules."""

    case: Case
    log: EventLog
    window: Window
    members: Population
    counts: Vetted
    tokens: Tokens
    stamps: ContentStamps
    blocks: PerBlock
    ttft_ms: FloatArray
    tpot_ms: FloatArray
    e2e_ms: FloatArray


def observe(case: Case, log: EventLog, window: Window) -> Observed:
    """Derive tokens, stamps, population and blocks from the log, less the counts that can't be."""
    members = population(log, window, case.load.kind)
    counts = vet_counts(case, log, members)
    log = counts.log
    tokens, stamps = count_tokens(log), latency.content_stamps(log)
    return Observed(
        case=case,
        log=log,
        window=window,
        members=members,
        counts=counts,
        tokens=tokens,
        stamps=stamps,
        blocks=throughput.per_block(counts, tokens, stamps, window),
        ttft_ms=latency.ttft_ms(log, stamps),
        tpot_ms=latency.tpot_ms(tokens, stamps),
        e2e_ms=latency.e2e_ms(log, stamps),
    )


def request_metrics(seen: Observed, before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Metric]:
    """Latency, throughput, goodput and counts."""
    found = (
        *_latencies(seen),
        *_adjusted(seen),
        *_gap_metrics(seen),
        *_per_request(seen),
        throughput.output_tok_per_s(seen.blocks, seen.tokens, seen.window),
        throughput.input_tok_per_s(seen.blocks, seen.window),
        throughput.total_tok_per_s(seen.blocks, seen.tokens, seen.window),
        throughput.requests_per_s(seen.blocks, seen.window),
        *throughput.request_rates(seen.case, seen.log, seen.window),
        _goodput(seen),
        *_shares(seen),
        prefix_cache_hit_share(seen.log, seen.members, before, after),
        *kv_cache_util(after),
    )
    return {metric.name: metric for metric in found}


def _latencies(seen: Observed) -> tuple[Metric, ...]:
    ok, log, stamps = seen.members.ok, seen.log, seen.stamps
    closed = seen.case.load.kind == "closed"
    tpot_source = _tpot_source(seen)
    return (
        distribution("ttft_ms", seen.ttft_ms[ok], _no_first(seen)),
        undefined("ttft_scheduled_ms", "closed loop: nothing is scheduled")
        if closed
        else distribution("ttft_scheduled_ms", latency.ttft_scheduled_ms(log, stamps)[ok], _no_first(seen)),
        distribution("ttfat_ms", latency.ttfat_ms(log, stamps)[ok], _no_answer(seen)),
        distribution("tpot_ms", seen.tpot_ms[ok], _no_tpot(seen), source=tpot_source),
        distribution("e2e_ms", seen.e2e_ms[ok], _no_first(seen)),
        distribution("tok_per_s_per_user", latency.tok_per_s_per_user(seen.tpot_ms)[ok], _no_tpot(seen), source=tpot_source),
    )


def _tpot_source(seen: Observed) -> str | None:
    hidden = int((seen.members.ok & latency.came_at_once(seen.tokens, seen.stamps)).sum())
    left_out = f"; {hidden} of {int(seen.members.ok.sum())} requests left out: each came in one read"
    return f"{seen.tokens.source}{left_out}" if hidden else seen.tokens.source


def _no_first(seen: Observed) -> str:
    return _NO_CONTENT if seen.members.ok.any() else _NONE_OK


def _no_answer(seen: Observed) -> str:
    shown = bool((seen.tokens.chunks[seen.members.ok] > 0).any())
    return "no request got an answer beside reasoning" if shown else _no_first(seen)


def _no_tpot(seen: Observed) -> str:
    ok = seen.members.ok
    if not ok.any():
        return _NONE_OK
    if bool((seen.tokens.chunks[ok] == 0).all()):
        return _NO_CONTENT
    if bool((seen.tokens.n_out[ok] == MISSING).all()):
        return seen.counts.no_output(ok)
    if bool(seen.tokens.hidden[ok].any()):
        return "usage counts reasoning tokens that were never streamed"
    if bool((ok & latency.came_at_once(seen.tokens, seen.stamps)).any()):
        return _ONE_READ
    return "no reply has tokens after its first chunk"


def _adjusted(seen: Observed) -> tuple[Metric, ...]:
    scheduled = latency.ttft_scheduled_ms(seen.log, seen.stamps)
    return (
        _censored("ttft_adjusted_ms", seen, seen.ttft_ms),
        undefined("ttft_scheduled_adjusted_ms", "closed loop: nothing is scheduled")
        if seen.case.load.kind == "closed"
        else _censored("ttft_scheduled_adjusted_ms", seen, scheduled),
        _censored("e2e_adjusted_ms", seen, seen.e2e_ms),
    )


def _censored(name: str, seen: Observed, values: FloatArray) -> Metric:
    """`name` with failures at +inf. A success that has no such latency (not streamed) is no failure: it is left out."""
    members, ok = seen.members.members, seen.members.ok
    missing = _NO_CONTENT if members.any() else "no request was sent in the window"
    untold = ok & np.isnan(values)
    if bool(ok.any()) and bool((untold == ok).all()):
        return undefined(name, missing)
    kept = members & ~untold
    note = f"{int(untold.sum())} of {int(members.sum())} requests without such a latency left out" if untold.any() else None
    return adjusted(name, np.where(ok, values, np.inf)[kept], missing, source=note)


def _gap_metrics(seen: Observed) -> tuple[Metric, Metric]:
    ok, tokens = seen.members.ok, seen.tokens
    chunks, token_gaps = latency.icl_ms(seen.log, ok), latency.itl_ms(seen.log, tokens, ok)
    left_out = int((ok & ~tokens.per_chunk_known & (tokens.chunks > 1)).sum())
    source = tokens.source if not left_out else f"{tokens.source}; {left_out} of {int(ok.sum())} requests left out"
    missing = (
        _NONE_OK
        if not ok.any()
        else "tokens per chunk are unknown and chunks != tokens"
        if left_out
        else "no reply has two chunks"
    )
    return (
        distribution("icl_ms", chunks.ms, _NONE_OK if not ok.any() else "no reply has two chunks", cluster=chunks.request),
        _itl(token_gaps, missing, source),
    )


def _itl(gaps: Gaps, missing: str, source: str | None) -> Metric:
    return distribution(
        "itl_ms",
        np.repeat(gaps.ms, gaps.tokens),
        missing,
        cluster=np.repeat(gaps.request, gaps.tokens),
        source=source,
    )


def _per_request(seen: Observed) -> tuple[Metric, ...]:
    ok, tokens, log = seen.members.ok, seen.tokens, seen.log
    per_chunk = np.where(tokens.chunks > 0, tokens.delivered / np.maximum(tokens.chunks, 1), np.nan)
    missing = seen.counts.no_output(ok) if ok.any() else _NONE_OK
    no_prompt = seen.counts.prompt.why_missing("the server's usage has no prompt tokens") if ok.any() else _NONE_OK
    return (
        distribution("tokens_per_chunk", per_chunk[ok], missing, source=tokens.source),
        distribution("output_tokens", _counts(tokens.n_out[ok]), missing, source=tokens.source),
        distribution("input_tokens", _counts(log.input_tokens[ok]), no_prompt),
    )


def _counts(values: IntArray) -> FloatArray:
    return np.where(values == MISSING, np.nan, values.astype(np.float64))


def _goodput(seen: Observed) -> Metric:
    closed = seen.case.load.kind == "closed"
    waited = 0.0 if closed else latency.wait_ms(seen.log)
    latencies = {"ttft": seen.ttft_ms + waited, "tpot": seen.tpot_ms, "e2e": seen.e2e_ms + waited}
    return throughput.goodput_rps(seen.case, seen.members, latencies, seen.tokens, seen.window)


def _shares(seen: Observed) -> tuple[Metric, ...]:
    members, count = seen.members, seen.members.count
    if count == 0:
        reason = "no request was sent in the window"
        shares = (undefined("error_share", reason), undefined("unfinished_share", reason))
    else:
        shares = (
            scalar("error_share", int(members.failed.sum()) / count, n=count),
            scalar("unfinished_share", int(members.unfinished.sum()) / count, n=count),
        )
    if not bool((seen.log.sent_ns != MISSING).any()):
        return (*shares, undefined("in_flight_mean", "no request was sent"))
    return (*shares, scalar("in_flight_mean", in_flight_mean(seen.log, seen.window), n=count))


def prefix_cache_hit_share(log: EventLog, members: Population, before: Mapping[str, float], after: Mapping[str, float]) -> Metric:
    """Share of prompt tokens that came from the engine's prefix cache: its counters, else the detail in `usage`; the larger
    where both are there.
    """
    found = {"counters": _counter_share(before, after), "usage": _usage_share(log, members.members)}
    known = {source: share for source, share in found.items() if share is not None}
    if not known:
        return undefined("prefix_cache_hit_share", "the engine has no cache counters and its usage no cached tokens")
    source = max(known, key=lambda name: known[name])
    return scalar("prefix_cache_hit_share", known[source], source=source)


def _counter_share(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    names = ("prompt_tokens_cached_total", "prompt_tokens_total")
    if any(name not in before or name not in after for name in names):
        return None
    cached, prompt = (after[name] - before[name] for name in names)
    return cached / prompt if prompt > 0 and cached >= 0 else None


def _usage_share(log: EventLog, members: BoolArray) -> float | None:
    known = members & (log.cached_tokens != MISSING) & (log.input_tokens > 0)
    total = float(log.input_tokens[known].sum())
    return float(log.cached_tokens[known].sum()) / total if total else None


def kv_cache_util(after: Mapping[str, float]) -> tuple[Metric, Metric]:
    """KV cache in use [share], where the engine kept its mean and peak over the window. What can't be is no number."""
    names = ("kv_cache_util_mean", "kv_cache_util_peak")
    told = {name: after[name] for name in names if name in after}
    wrong = next((f"the engine told {value:g}, which is no share" for value in told.values() if not 0.0 <= value <= 1.0), None)
    if len(told) == 2 and told[names[1]] < told[names[0]]:
        wrong = wrong or f"the engine told a peak of {told[names[1]]:g} below its mean of {told[names[0]]:g}"
    mean, peak = (
        undefined(name, wrong or "the engine does not tell")
        if wrong or name not in told
        else scalar(name, told[name], source="engine")
        for name in names
    )
    return mean, peak
