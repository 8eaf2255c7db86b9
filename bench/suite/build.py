"""A file to a `Suite` of resolved cases: read, check each layer, expand, apply the rules. All problems come at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from bench.errors import SuiteError
from bench.identity import case_id, digest
from bench.records import Case, Search, Sweep
from bench.suite.layers import Layer, merge, read_layer
from bench.suite.loads import Dataset
from bench.suite.lookup import display_name, locate
from bench.suite.matrix import Point, check_size, points
from bench.suite.resolve import at_end, resolve
from bench.suite.rules import ADVICE, RULES, apply
from bench.suite.source import parse, read_text
from bench.suite.written import Place, Problems, Written, did_you_mean, shown

TOP_KEYS = ("name", "description", "defaults", "cases")
_LONGEST_NAME = 100
_LONGEST_DESCRIPTION = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A checked suite: plain cases, and the sweeps. `warnings` are for the person, each beginning with its place. `layers` are
    what `override` changes.
    """

    name: str
    description: str
    path: str
    cases: tuple[Case, ...]
    sweeps: tuple[Sweep, ...] = ()
    warnings: tuple[str, ...] = ()
    layers: tuple[tuple[Layer, Place], ...] = field(default=(), repr=False)


def load(ref: str) -> Suite:
    """The suite that `ref` means: a path, a name in `./suites`, or the name of a shipped one.

    Raises: SuiteError with one line a problem, each beginning with `file:line:`.
    """
    path = locate(ref)
    text = read_text(path, display_name(path))
    return load_text(text, display_name(path), default_name=path.stem, folder=str(path.parent))


def text_of(ref: str) -> str:
    """The file that `ref` means, as it is written. Raises: SuiteError."""
    path = locate(ref)
    return read_text(path, display_name(path))


def load_text(text: str, shown_as: str, *, default_name: str | None = None, folder: str = "") -> Suite:
    """The suite in `text`; data files are seen from `folder`. Raises: SuiteError as `load` does."""
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
    layers = [(_seen_from(folder, layer), place) for layer, place in _layers(top, document.place, problems)]
    built = build(layers, name, problems)
    if problems:
        raise SuiteError(problems.text())
    return Suite(name=name, description=description, path=shown_as, layers=tuple(layers), **built)


class Built(TypedDict):
    """What merged layers make."""

    cases: tuple[Case, ...]
    sweeps: tuple[Sweep, ...]
    warnings: tuple[str, ...]


def build(layers: list[tuple[Layer, Place]], suite: str, problems: Problems, *, drop_twins: bool = False) -> Built:
    """The cases and sweeps of merged layers, and the warnings; problems of combinations are added to those of single values.

    A case that measures the same as an earlier one is refused, or with `drop_twins` left out with a warning: a trial is told
    apart by its `case_id`.
    """
    advice = Problems()
    found: list[tuple[Case | Sweep, Place]] = []
    if not check_size(layers, problems):
        return Built(cases=(), sweeps=(), warnings=())
    for layer, place in layers:
        for point in points(layer, place):
            before = len(problems.found)
            apply(RULES, point, problems)
            if len(problems.found) == before and not problems:
                apply(ADVICE, point, advice)
                found.append((_resolved(point, suite), place))
    kept = _without_twins(found, problems, advice if drop_twins else problems)
    return Built(
        cases=tuple(one for one in kept if isinstance(one, Case)),
        sweeps=tuple(one for one in kept if isinstance(one, Sweep)),
        warnings=tuple(advice.text().splitlines()),
    )


def _resolved(point: Point, suite: str) -> Case | Sweep:
    case, search = resolve(at_end(point, "low"), suite), point.get("sweep")
    return Sweep(case=case, search=search) if isinstance(search, Search) else case


def _seen_from(folder: str, layer: Layer) -> Layer:
    setting = layer.get("dataset")
    if setting is None:
        return layer
    values = tuple(value.below(folder) if isinstance(value, Dataset) else value for value in setting.values)
    return {**layer, "dataset": replace(setting, values=values)}


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


def _without_twins(found: Iterable[tuple[Case | Sweep, Place]], problems: Problems, alike: Problems) -> tuple[Case | Sweep, ...]:
    named: dict[str, Place] = {}
    first: dict[str, Case | Sweep] = {}
    for one, place in found:
        name = _name(one)
        twin = first.setdefault(case_id(one) if isinstance(one, Case) else digest([case_id(one.case), one.search]), one)
        if twin is not one:
            alike.add(place, f"case {name!r} measures the same as {_name(twin)!r}: one of them is enough (see 'repeats')")
        elif name in named:
            where = f" in line {named[name].line}" if named[name].line else ""
            problems.add(place, f"two cases are called {name!r}, the first{where}: give each its own 'name'")
        named.setdefault(name, place)
    return tuple(first.values())


def _name(one: Case | Sweep) -> str:
    return one.name if isinstance(one, Case) else one.case.name
