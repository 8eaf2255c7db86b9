"""Tokens, requests and goodput per second over the window. Pure.

Intervals come from totals of equal blocks of the window (10 to 30), by `slow_noise`: a server that is fast or slow for seconds
makes blocks alike, and as many independent ones would give too narrow an interval. Requests in lockstep make neighbours less
alike than chance would: the interval is then too wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.records import MISSING, Case, EventLog, FloatArray, IntArray, Metric, Outcome, Window
from bench.stats import block_count
from bench.timing.counts import Vetted
from bench.timing.latency import ContentStamps
from bench.timing.population import BoolArray, Population, in_window
from bench.timing.slow_noise import half_width
from bench.timing.spec import scalar, undefined
from bench.timing.tokens import Tokens

MAX_UNKNOWN_SHARE = 0.05
"""Prompt lengths may be unknown for at most this share of requests; those are taken at the mean of the known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerBlock:
    """What arrived in each equal block of the window; `input_tokens` is None when the server didn't count prompts."""

    output_tokens: FloatArray | None
    input_tokens: FloatArray | None
    completed: FloatArray
    scheduled: FloatArray
    input_source: str | None
    output_reason: str
    """Why `output_tokens` is None."""
    input_reason: str
    """Why `input_tokens` is None."""


def block_edges_ns(window: Window) -> IntArray:
    """The edges [ns] of the window's equal blocks."""
    return np.linspace(0, window.t1_ns - window.t0_ns, block_count(window.seconds) + 1).round().astype(np.int64) + window.t0_ns


def per_block(counts: Vetted, tokens: Tokens, stamps: ContentStamps, window: Window) -> PerBlock:
    """Counts per block, from every request that delivered anything in the window, however it ended."""
    log = counts.log
    arrived_ns, output, why = _output_tokens(counts, tokens, stamps, window)
    began_ns = np.where(stamps.first_ns != MISSING, stamps.first_ns, stamps.whole_ns)
    began = in_window(began_ns, window)
    prompt, source = _prompt_tokens(log, began)
    # a reply closes after its last content, which is where a whole job's window ends
    closed = log.closed_ns != MISSING if window.kind == "whole_job" else in_window(log.closed_ns, window)
    done = closed & (log.outcome == Outcome.OK)
    due = in_window(log.scheduled_ns, window)
    return PerBlock(
        output_tokens=None if output is None else _totals(arrived_ns, output, window),
        input_tokens=None if prompt is None else _totals(began_ns[began], prompt, window),
        completed=_totals(log.closed_ns[done], np.ones(int(done.sum())), window),
        scheduled=_totals(log.scheduled_ns[due], np.ones(int(due.sum())), window),
        input_source=source,
        output_reason=why,
        input_reason=_no_prompts(counts, began),
    )


def _output_tokens(
    counts: Vetted, tokens: Tokens, stamps: ContentStamps, window: Window
) -> tuple[IntArray, FloatArray | None, str]:
    """When tokens arrived in the window [ns], how many, and why that can't be told. What is not streamed arrives whole."""
    log = counts.log
    chunk_in, whole_in = in_window(log.chunk_ns, window), in_window(stamps.whole_ns, window)
    whole = np.where(tokens.n_out > 0, tokens.n_out.astype(np.float64), np.nan)[whole_in]
    arrived_ns = np.concatenate((log.chunk_ns[chunk_in], stamps.whole_ns[whole_in]))
    inside = np.concatenate((tokens.per_chunk[chunk_in], whole))
    if len(inside) == 0:
        return arrived_ns, None, "no token arrived in the window"
    if np.isnan(inside).any():
        seen = whole_in | (np.bincount(log.chunk_request[chunk_in], minlength=len(log)) > 0)
        return arrived_ns, None, counts.no_output(seen)
    return arrived_ns, inside, ""


def _no_prompts(counts: Vetted, began: BoolArray) -> str:
    if not began.any():
        return "no request began to answer in the window"
    if not bool((began & (counts.log.outcome == Outcome.OK)).any()):
        return "no request of the window finished"
    return counts.prompt.why_missing("the server gave no prompt token counts")


def _prompt_tokens(log: EventLog, began: BoolArray) -> tuple[FloatArray | None, str | None]:
    counts = log.input_tokens[began].astype(np.float64)
    unknown = counts == MISSING
    if len(counts) == 0 or unknown.mean() > MAX_UNKNOWN_SHARE:
        return None, None
    if not unknown.any():
        return counts, "usage"
    counts[unknown] = counts[~unknown].mean()
    return counts, f"usage; {int(unknown.sum())} of {len(counts)} requests at the mean of the others"


def _totals(stamps_ns: IntArray, weights: FloatArray, window: Window) -> FloatArray:
    edges = block_edges_ns(window)
    block = np.clip(np.searchsorted(edges, stamps_ns, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(block, weights=weights, minlength=len(edges) - 1).astype(np.float64)


def rate(name: str, blocks: FloatArray, window: Window, *, source: str | None = None) -> Metric:
    """`name` = total over the window length, with the 95% interval of the block totals; none where nothing was counted."""
    n, value = len(blocks), float(blocks.sum()) / window.seconds
    if value == 0.0:
        return scalar(name, value, n=n, source=source)
    half = half_width(blocks * n / window.seconds, window.seconds / n)
    return scalar(name, value, low=max(0.0, value - half), high=value + half, n=n, source=source)


def output_tok_per_s(blocks: PerBlock, tokens: Tokens, window: Window) -> Metric:
    """Output throughput [tok/s]: tokens whose event time lies in the window, from every request, over its length."""
    if blocks.output_tokens is None:
        return undefined("output_tok_per_s", blocks.output_reason)
    return rate("output_tok_per_s", blocks.output_tokens, window, source=tokens.source)


def input_tok_per_s(blocks: PerBlock, window: Window) -> Metric:
    """Prompt throughput [tok/s]: prompt tokens of requests whose first content lies in the window, over its length."""
    if blocks.input_tokens is None:
        return undefined("input_tok_per_s", blocks.input_reason)
    return rate("input_tok_per_s", blocks.input_tokens, window, source=blocks.input_source)


def total_tok_per_s(blocks: PerBlock, tokens: Tokens, window: Window) -> Metric:
    """Prompt and output throughput [tok/s]."""
    if blocks.output_tokens is None:
        return undefined("total_tok_per_s", blocks.output_reason)
    if blocks.input_tokens is None:
        return undefined("total_tok_per_s", "prompt tokens are unknown")
    return rate("total_tok_per_s", blocks.output_tokens + blocks.input_tokens, window, source=tokens.source)


def requests_per_s(blocks: PerBlock, window: Window) -> Metric:
    """Completed requests per second: successes closed in the window over its length."""
    return rate("requests_per_s", blocks.completed, window)


def request_rates(case: Case, log: EventLog, window: Window) -> tuple[Metric, Metric]:
    """Open loop: requests per second that were due, and that went out. Where the client or a cap on concurrency holds requests
    back, the second falls behind the first. A whole job counts from its first request to its last, not the wait for answers.
    """
    names = ("request_rate_asked_rps", "request_rate_sent_rps")
    if case.load.kind == "closed":
        why = "closed loop: a request goes out when another ends"
        return undefined(names[0], why), undefined(names[1], why)
    return _arrival_rate(names[0], log.scheduled_ns, window), _arrival_rate(names[1], log.sent_ns, window)


def _arrival_rate(name: str, at_ns: IntArray, window: Window) -> Metric:
    if window.kind == "steady":
        count = int(in_window(at_ns, window).sum())
        return scalar(name, count / window.seconds, n=count)
    known = at_ns[at_ns != MISSING]
    span_ns = int(known.max() - known.min()) if len(known) else 0
    if span_ns == 0:
        return undefined(name, "all at one moment" if len(known) else "there was no request", n=len(known))
    return scalar(name, (len(known) - 1) * 1e9 / span_ns, n=len(known))


def goodput_rps(case: Case, members: Population, latencies: dict[str, FloatArray], tokens: Tokens, window: Window) -> Metric:
    """Requests per second that meet every limit of `case.slos`. Time-outs, failures and requests cut off are misses.

    `latencies`: ttft, tpot and e2e per request [ms], NaN where undefined. A reply without a token after its first chunk has no
    TPOT: that limit is skipped for it, and the skips are counted in `source`. A TPOT that is there but can't be told (no
    count, hidden reasoning, not streamed) leaves goodput undefined.
    """
    name = "goodput_rps"
    if not case.slos:
        return undefined(name, "no SLO was stated")
    if members.count == 0:
        return undefined(name, "no request was sent in the window")
    good, skipped = members.ok.copy(), 0
    for slo in case.slos:
        value = latencies[slo.metric]
        absent = members.ok & np.isnan(value)
        skip = absent & (slo.metric == "tpot") & (tokens.n_out > 0) & (tokens.chunks > 0) & ~tokens.hidden
        if bool((absent & ~skip).any()):
            return undefined(name, f"the {slo.metric} of {int((absent & ~skip).sum())} requests can't be told")
        skipped += int(skip.sum())
        good &= skip | (np.nan_to_num(value, nan=np.inf) <= slo.limit_ms)
    count = int(good.sum())
    note = f"{count} of {members.count} requests" + (f"; {skipped} undefined criteria skipped" if skipped else "")
    return scalar(name, count / window.seconds, n=members.count, source=note)
