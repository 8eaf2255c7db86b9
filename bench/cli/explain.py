"""`bench explain`: what a metric is, when there is none, and what others mean by it; what a validity code means."""

from __future__ import annotations

import dataclasses
import json
import shutil
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import msgspec

from bench.catalog.peers import PeerMetric, peer_metrics
from bench.cli.options import results_option
from bench.errors import EXIT_OK, UsageError
from bench.printable import printable
from bench.records import Profile
from bench.reports.notes import PLAIN, TITLES
from bench.reports.numbers import COLUMNS
from bench.reports.remedies import REMEDIES
from bench.timing import SPECS, MetricSpec
from bench.timing.columns import wide_columns
from bench.timing.validity import RULES, Rule

_MAX_WIDTH = 110
_WAYS = {"up": "higher is better", "down": "lower is better", None: "neither way is better"}


@click.command()
@click.argument("metric", required=False, metavar="[METRIC|CODE]")
@click.option(
    "--trial", "trial_id", metavar="TRIAL_ID|latest", help="Also its value in this trial, and what its interval is made of."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; without METRIC an array of them.")
@results_option
def explain(*, metric: str | None, trial_id: str | None, as_json: bool, results: Path) -> int:
    """Say what METRIC is: definition, formula, unit, when it is undefined, whether gates watch it, and how other tools name
    or define theirs. A column of the tables (ttft_p99_ms, J/token) stands for its metric. Without METRIC: a list of all.

    Of a validity CODE (not_steady): what it means, its thresholds, and what to do next.
    """
    if trial_id is not None:
        return _in_trial(metric, trial_id, results, as_json=as_json)
    if metric is None:
        told = [_as_json(spec) for spec in SPECS.values()]
        click.echo(json.dumps(told) if as_json else "\n".join(_list()))
        return EXIT_OK
    rule = RULES.get(metric.lower())
    if rule is not None:
        click.echo(json.dumps(_code_json(rule)) if as_json else "\n".join(_code_page(rule)))
        return EXIT_OK
    spec = _find(metric)
    click.echo(json.dumps(_as_json(spec)) if as_json else "\n".join(_page(spec)))
    return EXIT_OK


def _in_trial(metric: str | None, trial_id: str, results: Path, *, as_json: bool) -> int:
    """The page, then that trial's number. Raises: UsageError, StoreError."""
    from bench.cli.explain_trial import stored_trial, trial_json, trial_lines

    if metric is None:
        raise UsageError("--trial explains one metric", hint=f"bench explain j_per_output_tok --trial {trial_id}")
    if metric.lower() in RULES:
        raise UsageError(f"{metric} is a validity code, which has no value in a trial", hint=f"bench explain {metric.lower()}")
    spec, record = _find(metric), stored_trial(results, trial_id)
    if as_json:
        click.echo(json.dumps({**_as_json(spec), "trial": trial_json(record, spec.name)}))
    else:
        click.echo("\n".join([*_page(spec), "", *map(printable, trial_lines(record, spec.name))]))
    return EXIT_OK


def _find(wanted: str) -> MetricSpec:
    """By its own name, a column's, or the head of one in a table. Raises: UsageError with the nearest."""
    columns = {column.column: column.metric for column in wide_columns()}
    name = columns.get(wanted) or _heads().get(wanted.lower(), wanted)
    if name in SPECS:
        return SPECS[name]
    near = _nearest(wanted.lower(), columns)
    mend = f": did you mean {near}?" if near else ""
    what = "metric" if near in SPECS or near is None else "metric or code"
    raise UsageError(f"there is no {what} {wanted!r}{mend}", hint="bench explain lists all metrics, docs/metrics.md all codes")


def _heads() -> dict[str, str]:
    """The metric under each head of a table, in lower case: `j/token`, `ttft p50 ms`, `memory_gib`."""
    return {names[column.key].lower(): column.metric for column in COLUMNS for names in (PLAIN, TITLES)}


def _nearest(wanted: str, columns: dict[str, str]) -> str | None:
    """The metric that other tools call so, else the metric or code whose name or column looks most alike."""
    elsewhere = {p.called.lower(): name for name, peers in reversed(peer_metrics().items()) for p in peers if p.called}
    known = {**elsewhere, **{code: code for code in RULES}, **columns, **{name: name for name in SPECS}}
    short = {name.rpartition("_")[0]: name for name in reversed(SPECS)}
    found = get_close_matches(wanted, known, n=1, cutoff=0.6)
    return short.get(wanted) or known.get(wanted) or (known[found[0]] if found else None)


def _list() -> Iterator[str]:
    names, units = max(map(len, SPECS)), max(len(spec.unit) for spec in SPECS.values())
    for spec in SPECS.values():
        gated = "gated" if spec.gated else ""
        yield f"{spec.name:{names}}  {spec.unit:{units}}  {gated:5}  {spec.definition}"


def _page(spec: MetricSpec) -> Iterator[str]:
    yield f"{spec.name}: {spec.definition}"
    yield ""
    yield from _row("unit", f"{spec.unit}; {_WAYS[spec.better]}")
    yield from _row("formula", spec.formula)
    yield from _row("undefined", f"NULL with a reason when: {spec.undefined_when}")
    yield from _row("gated", "yes: regression gates watch it" if spec.gated else "no: observed only")
    yield from _row("columns", ", ".join(c.column for c in wide_columns() if c.metric == spec.name))
    peers = peer_metrics().get(spec.name, ())
    if peers:
        yield ""
        yield "elsewhere"
    for peer in peers:
        yield from _row(peer.tool, _told(peer), width=30, indent="  ")


def _code_page(rule: Rule) -> Iterator[str]:
    yield f"{rule.code}: {rule.meaning}"
    yield ""
    yield from _row("about", f"{', '.join(rule.groups)}: the numbers that are not used where it is invalid")
    for profile in Profile:
        limit = "" if rule.threshold is None else f", {rule.threshold_for(profile):g}"
        yield from _row(profile.value, f"{rule.severity_for(profile)}{limit}")
    yield from _row("next", REMEDIES[rule.code])


def _code_json(rule: Rule) -> dict[str, Any]:
    limits = None if rule.threshold is None else {profile.value: rule.threshold_for(profile) for profile in Profile}
    severity = {profile.value: rule.severity_for(profile) for profile in Profile}
    told = {"code": rule.code, "meaning": rule.meaning, "groups": list(rule.groups)}
    return {**told, "severity": severity, "threshold": limits, "next": REMEDIES[rule.code]}


def _told(peer: PeerMetric) -> str:
    return ": ".join(part for part in (peer.called, peer.says) if part)


def _row(label: str, text: str, *, width: int = 12, indent: str = "") -> list[str]:
    """A label and its text, wrapped beside it."""
    across = min(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MAX_WIDTH)
    first, later = f"{indent}{label:{width}}", " " * (len(indent) + width)
    return textwrap.wrap(text, max(across, 60), initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def _as_json(spec: MetricSpec) -> dict[str, Any]:
    peers = [msgspec.to_builtins(peer) for peer in peer_metrics().get(spec.name, ())]
    columns = [column.column for column in wide_columns() if column.metric == spec.name]
    return {**dataclasses.asdict(spec), "columns": columns, "elsewhere": peers}
