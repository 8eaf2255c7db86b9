"""Validity rules that look at requests and tokens. Each gives the reasons that it finds. Pure."""

from __future__ import annotations

import numpy as np

from bench.precision import same_precision
from bench.records import MISSING, TOKEN_ID_PROTOCOLS, Case, Outcome, Reason, Window
from bench.stats import Trend, linear_trend, mean_interval
from bench.timing.client_rules import Judged, client_saturated
from bench.timing.failures import most_frequent
from bench.timing.population import BoolArray
from bench.timing.validity import PREFIX_CACHE_INVALID_SHARE, Severity, raise_code, threshold

TEMPLATE_TOKENS = 64
"""A chat template may add this many tokens to a prompt, or a tenth of it."""


def load_reasons(judged: Judged, engine_precision: str | None) -> tuple[Reason, ...]:
    """Every reason that requests, tokens, the client and the engine's own word give."""
    return (
        *too_short(judged),
        *too_few_requests(judged),
        *errors(judged),
        *client_saturated(judged),
        *server_saturated(judged),
        *not_steady(judged),
        *length_mismatch(judged),
        *input_length_mismatch(judged),
        *prefix_cache_hits(judged),
        *prompts_recycled(judged),
        *silent_precision_fallback(judged, engine_precision),
        *impossible_latency(judged),
        *impossible_counts(judged),
    )


def too_short(judged: Judged) -> tuple[Reason, ...]:
    """The window is shorter than the profile allows. A hundredth of a second less than asked is not short."""
    least_s = threshold("too_short", judged.case.profile)
    if judged.window.seconds >= least_s - 0.01:
        return ()
    return raise_code("too_short", judged.case.profile, f"window of {judged.window.seconds:.2f} s, at least {least_s:g} s needed")


def too_few_requests(judged: Judged) -> tuple[Reason, ...]:
    """The population is smaller than the profile allows."""
    least = threshold("too_few_requests", judged.case.profile)
    if judged.members.count >= least:
        return ()
    text = f"{judged.members.count} requests began in the window, at least {least:.0f} needed: {_busy_with_earlier(judged)}"
    return raise_code("too_few_requests", judged.case.profile, text)


def _busy_with_earlier(judged: Judged) -> str:
    """What kept requests from being sent in the window, or that it was short: those sent before it that had not ended."""
    log, window = judged.log, judged.window
    ended_in_time = (log.closed_ns != MISSING) & (log.closed_ns < window.t0_ns)
    earlier = (log.sent_ns != MISSING) & (log.sent_ns < window.t0_ns) & ~ended_in_time
    outlasted = earlier & ((log.closed_ns == MISSING) | (log.closed_ns >= window.t1_ns))
    failure = most_frequent(log, earlier)
    if failure is not None and failure.outcome is not Outcome.CANCELLED:
        return f"{failure.count} of {int(earlier.sum())} sent before it ended badly in it: {failure}"
    if outlasted.any():
        return f"{int(outlasted.sum())} sent before it had not ended when it did: the server hangs, or one answer takes longer"
    return "run longer"


def errors(judged: Judged) -> tuple[Reason, ...]:
    """Too many requests of the population failed, or were cut off when the grace ended."""
    members, profile = judged.members, judged.case.profile
    found: tuple[Reason, ...] = ()
    for code, which, words in (
        ("errors", members.failed, "failed"),
        ("unfinished", members.unfinished, "were cut off unfinished"),
    ):
        count = int(which.sum())
        if count and count / members.count > threshold(code, profile):
            text = f"{count} of {members.count} requests {words} ({count / members.count:.1%}){_most_often(judged, which, count)}"
            found += raise_code(code, profile, text)
    return found


def _most_often(judged: Judged, which: BoolArray, count: int) -> str:
    failure = most_frequent(judged.log, which)
    if failure is None:
        return ""
    return f": {failure}" if failure.count == count else f", most often ({failure.count}): {failure}"


# --- the server -------------------------------------------------------------------------------------------------------


def server_saturated(judged: Judged) -> tuple[Reason, ...]:
    """The mock engine could not keep its own schedule, so the point says nothing of the client."""
    lag = judged.after.get("mock_lag_p99_ms")
    if lag is None or lag <= threshold("server_saturated", judged.case.profile):
        return ()
    return raise_code("server_saturated", judged.case.profile, f"the mock engine was {lag:.1f} ms (p99) behind its schedule")


def not_steady(judged: Judged) -> tuple[Reason, ...]:
    """Throughput moved across the window. Whole jobs, bursts, stages and traces move by nature and are exempt. Open loop: what
    is done must keep up with what is due, or a queue grows; only that is asked of random arrivals, which move by themselves.
    """
    load, blocks, profile = judged.case.load, judged.blocks, judged.case.profile
    if moves_by_nature(judged.case, judged.window) or blocks.output_tokens is None:
        return ()
    limit, found = threshold("not_steady", profile), []
    if load.kind == "open" and blocks.scheduled.mean() > 0:
        behind = mean_interval((blocks.completed - blocks.scheduled) / blocks.scheduled.mean(), 0.99)
        if behind.high is not None and behind.high < 0.0 and behind.value < -limit:
            found.append(f"{-behind.value:.1%} of the requests due were not done in their time: the queue grew")
    trend = None if load.arrivals in ("poisson", "gamma") else linear_trend(blocks.output_tokens)
    if trend is not None and significant(trend, limit):
        found.append(f"output tokens {moved(trend)}")
    return raise_code("not_steady", profile, "; ".join(found), groups=("throughput",)) if found else ()


def moves_by_nature(case: Case, window: Window) -> bool:
    """Whether a trend across the window is what was asked for: of whole jobs, bursts, stages and traces."""
    return window.kind == "whole_job" or case.load.arrivals in ("burst", "trace") or bool(case.load.stages)


def moved(trend: Trend) -> str:
    """A trend in words. A line through what fell to nothing ends below zero: its number says no more than the words."""
    if abs(trend.change) > 1.0:
        return f"{'rose' if trend.change > 0 else 'fell'} by more than the mean across the window"
    return f"moved by {trend.change:+.1%} across the window (99% interval {trend.low:+.1%} to {trend.high:+.1%})"


def significant(trend: Trend, limit: float) -> bool:
    """The interval excludes 0 and the change passes the limit."""
    return (trend.low > 0.0 or trend.high < 0.0) and abs(trend.change) > limit


def length_mismatch(judged: Judged) -> tuple[Reason, ...]:
    """Replies of another length than asked. One token more or less that a stop token explains is none."""
    log, ok = judged.log, judged.members.ok
    known = ok & (log.output_tokens != MISSING) & (log.output_requested != MISSING)
    stopped = np.array([reason not in (None, "length") for reason in log.finish_reason], dtype=np.bool_)
    apart = np.abs(log.output_tokens - log.output_requested)
    wrong = known & (apart > np.where(stopped, 1, 0))
    return _lengths(judged, "length_mismatch", "replies", known, wrong)


def input_length_mismatch(judged: Judged) -> tuple[Reason, ...]:
    """Prompts that the server counts otherwise than asked, beyond what a chat template or a leading token adds."""
    log, case = judged.log, judged.case
    known = judged.members.ok & (log.input_tokens != MISSING) & (log.input_requested != MISSING)
    exact = case.exact_lengths and case.protocol in TOKEN_ID_PROTOCOLS
    allowed = np.ones(len(log)) if exact else np.maximum(TEMPLATE_TOKENS, 0.1 * log.input_requested)
    wrong = known & (np.abs(log.input_tokens - log.input_requested) > allowed)
    return _lengths(judged, "input_length_mismatch", "prompts", known, wrong)


def _lengths(judged: Judged, code: str, what: str, known: BoolArray, wrong: BoolArray) -> tuple[Reason, ...]:
    total, count = int(known.sum()), int(wrong.sum())
    exact = judged.case.exact_lengths
    if count == 0 or count / total <= (0.0 if exact else threshold(code, judged.case.profile)):
        return ()
    log = judged.log
    replies = what == "replies"
    got = (log.output_tokens if replies else log.input_tokens)[wrong].mean()
    asked = (log.output_requested if replies else log.input_requested)[wrong].mean()
    text = f"{count} of {total} {what} differ in length: {got:.1f} tokens where {asked:.1f} were asked"
    return raise_code(code, judged.case.profile, text, severity="invalid" if exact else "warning")


def prefix_cache_hits(judged: Judged) -> tuple[Reason, ...]:
    """Prompts came from a cache that nobody asked to measure."""
    share = judged.metrics["prefix_cache_hit_share"].value
    profile = judged.case.profile
    if share is None or share <= threshold("prefix_cache_hits", profile) or judged.case.data.wants_cache_hits:
        return ()
    text = f"{share:.1%} of prompt tokens came from the engine's prefix cache"
    return raise_code("prefix_cache_hits", profile, text, severity="invalid" if share > PREFIX_CACHE_INVALID_SHARE else "warning")


def prompts_recycled(judged: Judged) -> tuple[Reason, ...]:
    """Prompts ran out and were sent again: a prefix cache may have known them."""
    if not judged.prompts_recycled:
        return ()
    return raise_code("prompts_recycled", judged.case.profile, "prompts ran out and were sent a second time")


def silent_precision_fallback(judged: Judged, found: str | None) -> tuple[Reason, ...]:
    """The engine says that it runs another precision than the case asks for."""
    if same_precision(judged.case.precision, found):
        return ()
    text = f"{judged.case.precision} was asked for, the engine runs {found}"
    return raise_code("silent_precision_fallback", judged.case.profile, text)


def impossible_latency(judged: Judged) -> tuple[Reason, ...]:
    """A first token at or before the moment of sending."""
    ttft = judged.ttft_ms[judged.members.ok]
    count = int((ttft <= 0.0).sum())  # NaN compares False
    if count == 0:
        return ()
    text = f"{count} of {len(ttft)} requests had their first token no later than they were sent"
    return raise_code("impossible", judged.case.profile, text, groups=("latency",))


def impossible_counts(judged: Judged) -> tuple[Reason, ...]:
    """Token counts that the text can't hold: they are not used. A few are a warning, and so are those that could just be."""
    found: tuple[Reason, ...] = ()
    for refusal in (judged.counts.output, judged.counts.prompt):
        worst: Severity = "invalid" if refusal.all_refused else "warning"
        told: tuple[tuple[str | None, Severity], ...] = ((refusal.impossible, worst), (refusal.doubtful, "warning"))
        for text, severity in told:
            if text:
                found += raise_code("impossible", judged.case.profile, text, groups=("throughput",), severity=severity)
    return found
