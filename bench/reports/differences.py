"""What tells rows apart that would read the same. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from bench import codec
from bench.analysis.ab import PairedCase
from bench.reports.rows import Row, rows

_OWN_NAMES = ("engine_args.", "labels.", "sampling.", "load.", "data.")
"""Parts of a case whose keys say enough without the part's name."""
_FOR_PEOPLE = ("name", "suite")
_ID_LENGTH = 12

_Facts = Mapping[str, str]


def reads_as(row: Row) -> Hashable:
    """What a row says of itself before its numbers."""
    return row.case.model, row.precision, row.case.engine, row.devices, row.load, row.lengths, row.first.key.run_id


def differences(table: Sequence[Row], alike: Callable[[Row], Hashable] = reads_as) -> list[str]:
    """For each row what no other row with the same `alike` has: `threads=4`; empty where nothing else reads like it. Settings
    of the case come first, then its name, engine build, host, configuration and repeat, each only where it is needed.
    """
    texts: list[list[str]] = [[] for _ in table]
    groups: dict[Hashable, list[int]] = {}
    for at, row in enumerate(table):
        groups.setdefault(alike(row), []).append(at)
    alike_still = [group for group in groups.values() if len(group) > 1]
    for facts in _LEVELS if alike_still else ():
        alike_still = [part for group in alike_still for part in _split(table, group, facts, texts)]
    return [", ".join(parts) for parts in texts]


def sides(one: PairedCase) -> tuple[str, str]:
    """What tells the base from the candidate: (`threads=1`, `threads=2`); empty where a side has no trial."""
    if len(one.first) < 2:
        return "", ""
    base, cand = differences([row for trial in one.first for row in rows([trial])], alike=lambda row: "side")
    return base, cand


def _split(table: Sequence[Row], group: Sequence[int], facts: Callable[[Row], _Facts], texts: list[list[str]]) -> list[list[int]]:
    """Say what differs within `group`; the groups that read the same all the same."""
    known = {at: facts(table[at]) for at in group}
    keys = dict.fromkeys(key for one in known.values() for key in one)
    differing = [key for key in keys if len({one.get(key) for one in known.values()}) > 1]
    parts: dict[tuple[str | None, ...], list[int]] = {}
    for at, one in known.items():
        texts[at] += [f"{key}={one.get(key, 'unset')}" for key in differing]
        parts.setdefault(tuple(one.get(key) for key in differing), []).append(at)
    return [part for part in parts.values() if len(part) > 1]


def _settings(row: Row) -> _Facts:
    plain: dict[str, Any] = codec.to_builtins(row.case)
    for key in _FOR_PEOPLE:
        del plain[key]
    first = {key: plain.pop(key) for key in ("engine_args", "labels")}
    found = dict(_flat({**first, **plain}))
    short = {name: _short(name) for name in found}
    taken = Counter(short.values())
    return {short[name] if taken[short[name]] == 1 else name: value for name, value in found.items()}


def _short(name: str) -> str:
    return next((name.removeprefix(part) for part in _OWN_NAMES if name.startswith(part)), name)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif value is not None:
            yield name, _text(key, value)


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "/".join(_text(key, item) for item in value) or "none"
    if isinstance(value, dict):
        return " ".join(_text(name, item) for name, item in value.items())
    if key == "sha256":
        return str(value)[:_ID_LENGTH]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _named(row: Row) -> _Facts:
    return {"case": row.case.name}


def _engine(row: Row) -> _Facts:
    engine = row.first.engine
    found = {} if engine is None else {"engine_version": engine.version, "engine_build": engine.build}
    return {key: value for key, value in found.items() if value is not None}


def _host(row: Row) -> _Facts:
    return {"host": row.first.host.host_id[:_ID_LENGTH]}


def _config(row: Row) -> _Facts:
    return {} if row.first.config_id is None else {"config": row.first.config_id[:_ID_LENGTH]}


def _trial(row: Row) -> _Facts:
    key = row.first.key
    return {"role": key.role, "repeat": str(key.repeat), "attempt": str(key.attempt)}


_LEVELS: tuple[Callable[[Row], _Facts], ...] = (_settings, _named, _engine, _host, _config, _trial)
