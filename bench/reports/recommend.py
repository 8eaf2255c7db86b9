"""What to deploy, as text, as data and as a deployment file. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import yaml

from bench.analysis.candidates import (
    PPL,
    QUANTILES,
    TOP1,
    UNITS,
    Candidate,
    Objective,
    Quantile,
    judged_against,
    latencies,
    latency,
    pooled,
    worst_figure,
)
from bench.analysis.compare import Comparison
from bench.analysis.pool import PooledValue
from bench.analysis.recommend import Near, Recommendation, Wanted
from bench.analysis.routing import NOT_SAID, Pick, Route
from bench.clock import iso_utc
from bench.printable import printable
from bench.records import Profile, Slo
from bench.reports.compare import verdict_text
from bench.reports.differences import differences
from bench.reports.rows import MISSING_TEXT, counted, device_label, load_label, rows
from bench.reports.text import number_text

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""A header and its rows."""
MOST_SHOWN = 10
_NOT_BETTER = {
    ("no difference shown",): "no difference shown from",
    ("can't know", "not comparable"): "the better mean, but not shown to differ from",
}
_ROUTES = ("devices", "fastest", "tok/s", "most efficient", "tok/J", "meets it", "does not", "not tried")


def head_text(found: Recommendation, model: str) -> str:
    """The best setting with its evidence; where there is none, what comes nearest and what it misses."""
    asked = wanted_text(found.wanted)
    if found.best is not None:
        return _lines([f"{model}, {asked}:", *_indented([settings_text(found.meeting)[0], *evidence(found)])])
    if not found.near:
        return _lines([f"nothing measured of {model} can be recommended, {asked}"])
    first = found.near[0]
    nearest = [f"nearest: {setting_text(first.candidate)}", *(f"  {line}" for line in _misses(first, found.wanted))]
    return _lines([f"nothing measured of {model} meets the limits, {asked}", *nearest])


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(map(printable, lines))


def wanted_text(wanted: Wanted) -> str:
    """`by tok_per_j, ttft <= 500 ms at p99, top1_agreement >= 0.99`."""
    limits = [f"{slo.metric} <= {slo.limit_ms:g} ms at {wanted.quantile}" for slo in wanted.slos] or ["no limit on latency"]
    floors = [] if wanted.min_top1 is None else [f"{TOP1} >= {wanted.min_top1:g}"]
    floors += [] if wanted.max_ppl_delta is None else [f"{PPL} <= {wanted.max_ppl_delta:g}"]
    return ", ".join([f"by {wanted.objective}", *limits, *floors])


def setting_text(one: Candidate) -> str:
    """`vllm 0.11, fp8, batch 64, 2x NVIDIA H200`."""
    engine = one.first.engine
    named = f"{one.first.case.engine} {engine.version or ''}".strip() if engine else one.first.case.engine
    return f"{named}, {one.precision or 'precision not said'}, {load_label(one.first.case.load)}, {device_label(one.first)}"


def settings_text(found: Sequence[Candidate]) -> list[str]:
    """The same of several; those that would read the same with what tells them apart: `..., 2x NVIDIA H200 (duration_s=60)`."""
    table = [rows(one.trials)[0] for one in found]
    apart = differences(table, alike=lambda row: setting_text(Candidate(trials=row.trials)))
    return [f"{setting_text(one)} ({told})" if told else setting_text(one) for one, told in zip(found, apart, strict=True)]


def evidence(found: Recommendation) -> list[str]:
    """What stands behind the best setting, a line each; nothing where there is none."""
    one, wanted = found.best, found.wanted
    if one is None:
        return []
    value, case = pooled(one, wanted.objective), one.first.case
    assert value is not None
    lines = [f"{wanted.objective}: {_interval(value)} {UNITS[wanted.objective]}, {_of_trials(value.n)}"]
    lines += [_latency_text(one, slo, wanted) for slo in wanted.slos]
    figures = [(name, worst_figure(one, name)) for name in (TOP1, PPL)]
    beside = judged_against(one) or "what is not said"
    lines += [f"{name}: {worst:.4g}, beside {beside}" for name, worst in figures if worst is not None]
    if one.price is not None:
        lines.append(f"price: {one.price.usd_per_device_hour:g} USD per device and hour, {one.price.source}")
    asked = f"{case.input_tokens.mean}/{case.output_tokens.mean} tokens, {case.dataset}"
    lines.append(f"measured {iso_utc(one.first.started.wall_ns)[:10]} with {asked}, profile {case.profile.value}")
    lines.append(f"run {one.first.key.run_id}, trials {', '.join(trial.key.trial_id for trial in one.trials)}")
    return lines + [f"note: {note}" for note in notes(found)]


def notes(found: Recommendation) -> list[str]:
    """What to know before money is spent on it."""
    one, wanted = found.best, found.wanted
    if one is None:
        return []
    told = []
    _, *named = settings_text(found.meeting)
    for verdicts, words in _NOT_BETTER.items():
        alike = [name for name, other in zip(named, found.runners_up, strict=True) if other.comparison.verdict in verdicts]
        if alike:
            told.append(f"{words}: {'; '.join(alike[:MOST_SHOWN])}{_more(alike)}")
    if len(one.trials) == 1:
        told.append("one trial: nothing is known of its spread; bench run --repeats 5")
    pairs = [(slo, latency(one, slo, wanted.quantile)) for slo in wanted.slos]
    told += [
        f"the interval of {slo.metric} reaches beyond its limit"
        for slo, value in pairs
        if value is not None and value.high is not None and value.high > slo.limit_ms
    ]
    if one.first.case.profile is Profile.SMOKE:
        told.append("profile smoke is a trial of seconds: measure it as official before you buy")
    if len({candidate.first.model.weights_sha256 for candidate in found.meeting if candidate.first.model is not None}) > 1:
        told.append("other weights are beside their own reference, so what their quantisation lost is not in top1_agreement")
    return told


def _latency_text(one: Candidate, slo: Slo, wanted: Wanted) -> str:
    value = latency(one, slo, wanted.quantile)
    return f"{slo.metric} {wanted.quantile}: {_interval(value) if value else MISSING_TEXT} ms, limit {slo.limit_ms:g}"


def _misses(near: Near, wanted: Wanted) -> list[str]:
    return [
        f"{miss.slo.metric} {wanted.quantile} is {number_text(miss.value_ms)} ms in its worst trial, "
        f"{miss.value_ms / miss.slo.limit_ms:.2f} times the limit of {miss.slo.limit_ms:g}"
        for miss in near.misses
    ]


def runner_rows(found: Recommendation) -> Rows:
    """The runners-up in their order, as many as one reads."""
    objective = found.wanted.objective
    lines: list[tuple[str, ...]] = []
    named = settings_text(found.meeting)[1:]
    for place, (name, other) in enumerate(zip(named[:MOST_SHOWN], found.runners_up, strict=False), start=2):
        value = pooled(other.candidate, objective)
        shown = _interval(value) if value else MISSING_TEXT
        lines.append((str(place), name, shown, verdict_text(other.comparison)))
    return ("", "runner-up", objective, "beside the best"), lines


def tail_text(found: Recommendation) -> str:
    """How many more there are, what misses a limit, and what was left out, with reasons; empty where there is nothing to tell."""
    lines = [f"{len(found.runners_up) - MOST_SHOWN} more runners-up: --json"] if len(found.runners_up) > MOST_SHOWN else []
    if found.near:
        lines.append(f"{_points(len(found.near))} missed a limit")
    for (lack, reason), count in Counter((one.lack, one.reason) for one in found.left_out).most_common():
        lines.append(f"{_points(count)} left out, {lack}: {reason}")
    if lower := _lower_quantile(found):
        lines.append(f"next: --at {lower}, for which they had requests enough")
    if found.invalid_trials:
        lines.append(f"{_of_trials(found.invalid_trials)} left out, not valid: bench table --all says why")
    return _lines(lines)


def _lower_quantile(found: Recommendation) -> Quantile | None:
    """The highest quantile below the wanted one that points have which were left out for want of it."""
    lacking = [one.candidate for one in found.left_out if one.lack == "no latency figure"]
    below = QUANTILES[: QUANTILES.index(found.wanted.quantile)]
    known = (
        lower
        for lower in reversed(below)
        for one in lacking
        if not any(isinstance(latencies(one, slo, lower), str) for slo in found.wanted.slos)
    )
    return next(known, None)


def route_rows(routes: Sequence[Route]) -> Rows:
    """The precision routing table."""
    rows: list[tuple[str, ...]] = []
    for route in routes:
        picks = (*_pick(route.fastest, "tok_per_s"), *_pick(route.efficient, "tok_per_j"))
        lists = [", ".join(names) or MISSING_TEXT for names in (route.measured, route.failing, route.unmeasured)]
        rows.append((counted(route.devices), *picks, *lists))
    return _ROUTES, rows


def _pick(pick: Pick | str, objective: Objective) -> tuple[str, str]:
    if isinstance(pick, str):
        return f"{MISSING_TEXT} ({pick})", MISSING_TEXT
    value, rival = pooled(pick.best, objective), pick.rival
    alike = rival is not None and rival.comparison.verdict != "differs"
    beside = f" ({rival.comparison.verdict} from {rival.candidate.precision or NOT_SAID})" if rival is not None and alike else ""
    return f"{pick.best.precision or NOT_SAID}{beside}", number_text(value.value) if value else MISSING_TEXT


def _interval(value: PooledValue) -> str:
    if value.low is None or value.high is None:
        return number_text(value.value)
    return f"{number_text(value.value)} [{number_text(max(value.low, 0.0))}, {number_text(value.high)}]"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _of_trials(count: int) -> str:
    return f"{count} trial{'s' * (count != 1)}"


def _points(count: int) -> str:
    return f"{count} point{'s' * (count != 1)}"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""


# --- for machines -------------------------------------------------------------------------------------------------------


def deployment_yaml(found: Recommendation, model: str) -> str:
    """`models: {NAME: {engine, devices, quantization}}`, evidence as comments. Raises: ValueError (nothing is the best)."""
    best = found.best
    if best is None:
        raise ValueError("nothing is recommended")
    entry = {"engine": best.first.case.engine, "devices": list(best.devices), "quantization": best.precision}
    first, *others = settings_text(found.meeting)
    comments = [f"{model}, {wanted_text(found.wanted)}", first, *evidence(found)]
    told = zip(others[:3], found.runners_up, strict=False)
    comments += [f"runner-up: {name}: {verdict_text(one.comparison)}" for name, one in told]
    body: str = yaml.safe_dump({"models": {model: entry}}, sort_keys=False, allow_unicode=True, width=1000)
    return "".join(f"# {printable(line)}\n" for line in comments) + body


def recommend_json(found: Recommendation, model: str, routes: Sequence[Route]) -> dict[str, Any]:
    """The same as one object, whole."""
    wanted = found.wanted
    return {
        "model": model,
        "objective": wanted.objective,
        "quantile": wanted.quantile,
        "limits_ms": {slo.metric: slo.limit_ms for slo in wanted.slos},
        "min_top1": wanted.min_top1,
        "max_ppl_delta": wanted.max_ppl_delta,
        "best": found.best and _json(found.best, wanted),
        "notes": notes(found),
        "runners_up": [_json(one.candidate, wanted) | {"beside_best": _beside_json(one.comparison)} for one in found.runners_up],
        "near": [_json(one.candidate, wanted) | {"misses": _misses_json(one)} for one in found.near],
        "left_out": [_json(one.candidate, wanted) | {"lack": one.lack, "reason": one.reason} for one in found.left_out],
        "invalid_trials": found.invalid_trials,
        "routing": [_route_json(route) for route in routes],
    }


def _json(one: Candidate, wanted: Wanted) -> dict[str, Any]:
    case, key, engine = one.first.case, one.first.key, one.first.engine
    latencies = {slo.metric: latency(one, slo, wanted.quantile) for slo in wanted.slos}
    return {
        "engine": case.engine,
        "engine_version": engine.version if engine else None,
        "precision": one.precision,
        "devices": list(one.devices),
        "load": load_label(case.load),
        "batch_size": case.load.batch_size,
        "request_rate": case.load.request_rate,
        "value": _value_json(pooled(one, wanted.objective)),
        "latency_ms": {name: _value_json(value) for name, value in latencies.items()},
        TOP1: worst_figure(one, TOP1),
        PPL: worst_figure(one, PPL),
        "judged_against": judged_against(one),
        "usd_per_device_hour": one.price.usd_per_device_hour if one.price else None,
        "energy_scope": one.first.energy_scope,
        "profile": case.profile.value,
        "run_id": key.run_id,
        "case_id": key.case_id,
        "trials": [trial.key.trial_id for trial in one.trials],
    }


def _value_json(value: PooledValue | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _beside_json(one: Comparison) -> dict[str, Any]:
    ratio = None if one.ratio is None else asdict(one.ratio)
    return {"verdict": one.verdict, "reason": one.reason, "ratio": ratio, "p_adjusted": one.adjusted}


def _misses_json(near: Near) -> list[dict[str, Any]]:
    return [{"metric": one.slo.metric, "worst_ms": one.value_ms, "limit_ms": one.slo.limit_ms} for one in near.misses]


def _route_json(route: Route) -> dict[str, Any]:
    return {
        "devices": list(route.devices),
        "fastest": _pick_json(route.fastest, "tok_per_s"),
        "most_efficient": _pick_json(route.efficient, "tok_per_j"),
        "meets": list(route.measured),
        "fails": list(route.failing),
        "not_tried": list(route.unmeasured),
    }


def _pick_json(pick: Pick | str, objective: Objective) -> dict[str, Any]:
    if isinstance(pick, str):
        return {"precision": None, "reason": pick}
    return {
        "precision": pick.best.precision,
        "value": _value_json(pooled(pick.best, objective)),
        "trials": [trial.key.trial_id for trial in pick.best.trials],
        "rival": pick.rival and pick.rival.candidate.precision,
        "beside_rival": pick.rival and pick.rival.comparison.verdict,
    }
