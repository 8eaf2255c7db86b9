"""Every validity code in one table: its groups, its severity and its threshold per profile. Pure.

`raise_code` turns a code into `Reason`s; the rules that raise them are in `load_rules`, `client_rules` and `device_rules`.
A code that only another layer can tell (`wrong_output`) has its row here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.records import Group, Profile, Reason
from bench.timing.energy import MAX_DISAGREEMENT, MIN_COVERAGE

Severity = Literal["invalid", "warning"]
_PROFILES = (Profile.SMOKE, Profile.NIGHTLY, Profile.OFFICIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One code. `severity` and `threshold` are for smoke, nightly and official; no threshold where the fact is enough."""

    code: str
    groups: tuple[Group, ...]
    severity: tuple[Severity, Severity, Severity]
    threshold: tuple[float, float, float] | None
    meaning: str

    def severity_for(self, profile: Profile) -> Severity:
        """How bad it is under `profile`."""
        return self.severity[_PROFILES.index(profile)]

    def threshold_for(self, profile: Profile) -> float:
        """The limit under `profile`, in the unit that `meaning` names."""
        assert self.threshold is not None, f"{self.code} has no threshold"
        return self.threshold[_PROFILES.index(profile)]


_INVALID: tuple[Severity, Severity, Severity] = ("invalid", "invalid", "invalid")
_WARNING: tuple[Severity, Severity, Severity] = ("warning", "warning", "warning")
_STRICTER: tuple[Severity, Severity, Severity] = ("warning", "invalid", "invalid")


def _rule(
    code: str,
    groups: tuple[Group, ...],
    severity: tuple[Severity, Severity, Severity],
    meaning: str,
    *threshold: float,
) -> Rule:
    levels = (threshold[0],) * 3 if len(threshold) == 1 else threshold
    return Rule(code=code, groups=groups, severity=severity, threshold=_three(levels), meaning=meaning)


def _three(levels: tuple[float, ...]) -> tuple[float, float, float] | None:
    return (levels[0], levels[1], levels[2]) if levels else None


_LOAD: tuple[Group, ...] = ("throughput", "latency")

_TABLE = (
    _rule("no_window", ("all",), _INVALID, "the load ended before the window began"),
    _rule("too_short", ("all",), _INVALID, "window shorter than this [s]", 5.0, 60.0, 600.0),
    _rule("too_few_requests", ("all",), _INVALID, "fewer requests in the population than this", 5.0, 20.0, 64.0),
    _rule("errors", _LOAD, _INVALID, "failed share of the population above this", 0.05, 0.01, 0.001),
    _rule("unfinished", ("latency",), _INVALID, "share of the population cut off by the grace above this", 0.05, 0.01, 0.001),
    _rule("client_saturated", _LOAD, _INVALID, "the client may have moved a latency by more than this share", 0.05),
    _rule("server_saturated", _LOAD, _INVALID, "p99 of the mock engine's own schedule lag above this [ms]", 25.0, 2.0, 2.0),
    _rule("not_steady", ("throughput", "energy"), _INVALID, "trend across the window above this share", 0.10, 0.05, 0.02),
    _rule("length_mismatch", ("throughput",), _WARNING, "share of replies of another length above this", 0.01),
    _rule("input_length_mismatch", ("throughput", "latency"), _WARNING, "share of prompts of another length above this", 0.01),
    _rule("prefix_cache_hits", _LOAD, _WARNING, "share of prompt tokens from a prefix cache above this", 0.01),
    _rule("token_counts_disagree", ("throughput",), _WARNING, "the engine generated more or fewer tokens than the client got"),
    _rule("prompts_recycled", _LOAD, _WARNING, "prompts were sent a second time"),
    _rule("throttled_thermal", ("all",), _STRICTER, "share of readings under a thermal limit above this", 0.01),
    _rule("temperature_drift", ("all",), _STRICTER, "temperature moved across the window by more than this [K]", 10.0),
    _rule("foreign_process", ("all",), _STRICTER, "another process uses the device"),
    _rule("power_coverage", ("energy",), _INVALID, "share of the window in which power was seen below this", MIN_COVERAGE),
    _rule("power_gap", ("energy",), _WARNING, "polls were missed, though not many: the interval is wider"),
    _rule("counter_reset", ("energy",), _INVALID, "the energy counter fell, or may have wrapped unseen"),
    _rule("counter_stuck", ("energy",), _INVALID, "the energy counter stood still while power was drawn"),
    _rule(
        "power_methods_disagree", ("energy",), _INVALID, "counter and integral differ by more than this share", MAX_DISAGREEMENT
    ),
    _rule("below_sensor_resolution", ("energy",), _INVALID, "the window is too short for the sensor"),
    _rule("part_time_sensor", ("energy",), _WARNING, "the sensor sees part of the time: the interval is wider"),
    _rule("aliased", ("energy",), _WARNING, "power moves faster than it is read"),
    _rule("stream_ended", ("energy", "memory"), _WARNING, "a probe stopped before the window's end"),
    _rule("shared_device", ("energy",), _INVALID, "the device is shared: its power is not this engine's"),
    _rule("silent_precision_fallback", ("all",), _INVALID, "the engine runs another precision than asked"),
    _rule("wrong_output", ("all",), _INVALID, "share of sure tokens that are the reference's below this", 0.9),
    _rule("impossible", ("all",), _INVALID, "a number that physics forbids"),
)

RULES: dict[str, Rule] = {rule.code: rule for rule in _TABLE}
"""Every code by name."""

PREFIX_CACHE_INVALID_SHARE = 0.10
"""Above this share of cached prompt tokens the numbers are those of the cache, unless that was asked for."""


WRONG_PPL_SHARE = 0.25
"""A perplexity further from the reference's than this share of it is `wrong_output` too."""

NEAR_TIE_NATS = 0.5
"""The reference is sure of a token that is this much likelier than the next [nats, a difference of logits]: rounding in another
order, or in fewer bits, chooses no other. Closer ones are no errors.
"""

LEAST_SURE_STEPS = 32
"""A reference that is sure of fewer tokens than this in all of its answers tells nothing."""


def raise_code(
    code: str,
    profile: Profile,
    message: str,
    *,
    groups: tuple[Group, ...] | None = None,
    severity: Severity | None = None,
) -> tuple[Reason, ...]:
    """One `Reason` a group of `code`; `groups` and `severity` narrow or override the table's where the rule says so."""
    rule = RULES[code]
    level = severity or rule.severity_for(profile)
    return tuple(Reason(code=code, group=group, severity=level, message=message) for group in groups or rule.groups)


def threshold(code: str, profile: Profile) -> float:
    """The limit of `code` under `profile`."""
    return RULES[code].threshold_for(profile)
