"""A file to a `Suite` of resolved cases: read, check each layer, expand, apply the rules. All problems come at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import SuiteError
from bench.identity import case_id
from bench.records import Case
from bench.suite.layers import Layer, merge, read_layer
from bench.suite.lookup import display_name, locate
from bench.suite.matrix import check_size, points
from bench.suite.resolve import resolve
from bench.suite.rules import ADVICE, RULES, apply
from bench.suite.source import parse, read_text
from bench.suite.written import Place, Problems, Written, did_you_mean, shown

TOP_KEYS = ("name", "description", "defaults", "cases")
_LONGEST_NAME = 100
_LONGEST_DESCRIPTION = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A checked suite. `warnings` are for the person, each beginning with its place. `layers` are what `override` changes."""

    name: str
    description: str
    path: str
    cases: tuple[Case, ...]
    warnings: tuple[str, ...] = ()
    layers: tuple[tuple[Layer, Place], ...] = field(default=(), repr=False)


def load(ref: str) -> Suite:
    """The suite that `ref` means: a path, a name in `./suites`, or the name of a shipped one.

    Raises: SuiteError with one line a problem, each beginning with `file:line:`.
    """
    path = locate(ref)
    return load_text(read_text(path, display_name(path)), display_name(path), default_name=path.stem)


def text_of(ref: str) -> str:
    """The file that `ref` means, as it is written. Raises: SuiteError."""
    path = locate(ref)
    return read_text(path, display_name(path))


def load_text(text: str, shown_as: str, *, default_name: str | None = None) -> Suite:
    """The suite in `text`. Raises: SuiteError as `load` does."""
    problems = Problems()
    document = parse(text, shown_as, problems)
    if document.value is None:
        raise SuiteError(f"{document.place.text}: is empty: a suite has 'name', 'defaults' and 'cases'")
    if not isinstance(document.value, dict):
        raise SuiteError(f"{document.place.text}: a suite is a mapping with 'name', 'defaults' and 'cases'")
    top: dict[str, Written] = document.value
    for key, entry in top.items():
        if key not in TOP_KEYS:
            problems.add(entry.place, f"unknown key {key!r}{did_you_mean(key, TOP_KEYS)}")
    name = _text(top, "name", _LONGEST_NAME, problems) or default_name or Path(shown_as).stem
    description = _text(top, "description", _LONGEST_DESCRIPTION, problems)
    layers = _layers(top, document.place, problems)
    cases, warnings = build(layers, name, problems)
    if problems:
        raise SuiteError(problems.text())
    return Suite(name=name, description=description, path=shown_as, cases=cases, warnings=warnings, layers=tuple(layers))


def build(
    layers: list[tuple[Layer, Place]], suite: str, problems: Problems, *, drop_twins: bool = False
) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The cases of merged layers, and the warnings; problems of combinations are added to those of single values.

    A case that measures the same as an earlier one is refused, or with `drop_twins` left out with a warning: a trial is told
    apart by its `case_id`.
    """
    advice = Problems()
    found: list[tuple[Case, Place]] = []
    if not check_size(layers, problems):
        return (), ()
    for layer, place in layers:
        for point in points(layer, place):
            before = len(problems.found)
            apply(RULES, point, problems)
            if len(problems.found) == before and not problems:
                apply(ADVICE, point, advice)
                found.append((resolve(point, suite), place))
    cases = _without_twins(found, problems, advice if drop_twins else problems)
    return cases, tuple(advice.text().splitlines())


def _text(top: dict[str, Written], key: str, longest: int, problems: Problems) -> str:
    entry = top.get(key)
    if entry is None or entry.value is None:
        return ""
    if not isinstance(entry.value, str):
        problems.add(entry.place, f"{key} must be text, got {shown(entry.plain())}")
        return ""
    text = entry.value.strip()
    if not text or len(text) > longest or (key == "name" and not text.isprintable()):
        problems.add(entry.place, f"{key} must be text of 1 to {longest} characters" + (" on one line" if key == "name" else ""))
    return text


def _layers(top: dict[str, Written], start: Place, problems: Problems) -> list[tuple[Layer, Place]]:
    written = top.get("defaults")
    defaults: Layer = {}
    if written is not None and written.value is not None:
        defaults = read_layer(written, "'defaults'", problems)
        if "name" in defaults:
            problems.add(defaults["name"].place, "'name' belongs to a case, not to 'defaults': two cases can't share it")
    cases = top.get("cases")
    if cases is None or cases.value in (None, []):
        problems.add(
            cases.place if cases else start, "a suite needs 'cases': a list with at least one case ({} is one of defaults only)"
        )
        return []
    if not isinstance(cases.value, list):
        problems.add(cases.place, f"'cases' must be a list, each case after a dash; got {shown(cases.plain())}")
        return []
    layers = [(read_layer(case, "a case", problems), case) for case in cases.value]
    return [(merge(defaults, layer), case.place) for layer, case in layers if isinstance(case.value, dict)]


def _without_twins(found: Iterable[tuple[Case, Place]], problems: Problems, alike: Problems) -> tuple[Case, ...]:
    named: dict[str, Place] = {}
    first: dict[str, Case] = {}
    for case, place in found:
        twin = first.setdefault(case_id(case), case)
        if twin is not case:
            alike.add(place, f"case {case.name!r} measures the same as {twin.name!r}: one of them is enough (see 'repeats')")
        elif case.name in named:
            where = f" in line {named[case.name].line}" if named[case.name].line else ""
            problems.add(place, f"two cases are called {case.name!r}, the first{where}: give each its own 'name'")
        named.setdefault(case.name, place)
    return tuple(first.values())
