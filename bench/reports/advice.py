"""What to do next about trials that are not valid, by what made them so. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from bench.records import Status, TrialRecord
from bench.timing.validity import threshold

Again = Callable[[str, str], str]
"""What to type to measure once more with a flag at another value."""

_SATURATED = frozenset({"client_saturated", "server_saturated"})
BUSY = _SATURATED | {"not_steady"}
"""What a machine with other things to do may make a trial invalid for."""
ONLY_BUSY = "the numbers are not valid only because this machine is busy"
"""Said where a mock engine's trials are invalid for nothing but that."""
_ROOM = 1.5
"""Times the window that the rate seen so far asks for: the next one may be slower."""
_ROUND_S = 10


def measure_again(flag: str, value: str) -> str:
    """Where nobody knows what was typed."""
    return f"measure again with {flag} {value}"


def next_steps(trials: Sequence[TrialRecord], again: Again) -> tuple[str, ...]:
    """One line for each kind of cause, what matters most first."""
    bad: dict[str, list[TrialRecord]] = {}
    for trial in trials:
        for reason in trial.reasons if trial.status is Status.INVALID else ():
            if reason.severity == "invalid":
                bad.setdefault(reason.code, []).append(trial)
    steps = []
    if _SATURATED & bad.keys():
        steps.append("stop other work on this machine (bench doctor names the busiest), or give the engine fewer threads")
    if "not_steady" in bad:
        steps.append(_steadier(bad["not_steady"], again))
    if "too_short" in bad or "too_few_requests" in bad:
        steps.append(_longer(bad.get("too_short", []), bad.get("too_few_requests", []), again))
    return tuple(f"next: {step}" for step in steps)


def only_busy(trials: Sequence[TrialRecord]) -> bool:
    """Whether some trials are invalid, and all of those for nothing but a machine with other things to do."""
    bad = [trial for trial in trials if trial.status is not Status.VALID]
    codes = {reason.code for trial in bad for reason in trial.reasons if reason.severity == "invalid"}
    return bool(codes) and codes <= BUSY and all(trial.status is Status.INVALID for trial in bad)


def _steadier(trials: Sequence[TrialRecord], again: Again) -> str:
    if any(trial.case.load.kind == "open" for trial in trials):
        return "ask for fewer requests per second if a queue grew; else see with bench doctor what else runs here"
    warmup_s = _round_up(2 * max(trial.case.warmup_s for trial in trials))
    return f"see with bench doctor what else runs here; if it was still warming up: {again('--warmup', f'{warmup_s}s')}"


def _longer(short: Sequence[TrialRecord], few: Sequence[TrialRecord], again: Again) -> str:
    """A window that holds enough requests, or shorter answers where one of them outlasts a window that is long enough."""
    loads = [trial.case.load for trial in (*short, *few)]
    if any(load.stages for load in loads):
        return "measure longer: give the stages more time"
    if any(load.num_prompts for load in loads):
        return f"measure longer: {again('--num-prompts', str(_prompts(short, few)))}"
    needed_s = [threshold("too_short", trial.case.profile) for trial in short]
    for trial in few:
        rate = trial.metrics.get("requests_per_s")
        if rate is not None and rate.value:
            least = threshold("too_few_requests", trial.case.profile)
            needed_s.append(max(_ROOM * least / rate.value, 2 * _window_s(trial)))
        elif not short:
            fewer = again("--output-tokens", str(max(1, trial.case.output_tokens.mean // 4)))
            return f"one answer takes longer than the window, or the server hangs; ask for shorter ones: {fewer}"
    return f"measure longer: {again('--duration', f'{_round_up(max(needed_s))}s')}"


def _prompts(short: Sequence[TrialRecord], few: Sequence[TrialRecord]) -> int:
    """Requests of a job that lasts long enough, at the speed seen so far, and has enough of them."""
    lasting = [
        _ROOM * (trial.case.load.num_prompts or 0) * threshold("too_short", trial.case.profile) / _window_s(trial)
        for trial in short
    ]
    return math.ceil(max([*lasting, *(threshold("too_few_requests", trial.case.profile) for trial in few)]))


def _window_s(trial: TrialRecord) -> float:
    return trial.window.seconds if trial.window else trial.case.duration_s


def _round_up(seconds: float) -> int:
    return _ROUND_S * math.ceil(seconds / _ROUND_S)
