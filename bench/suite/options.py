"""Flags to settings: a case from the command line, or changes to a suite. The same checks as for a file, with flags as places."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from bench.errors import UsageError
from bench.records import Case, Search
from bench.suite.build import Suite, build
from bench.suite.layers import Layer, merge, read_layer
from bench.suite.settings import KEYS, MAPPINGS
from bench.suite.written import Place, Problems, Written, did_you_mean, wrap

_NUMBERS = frozenset(
    {"batch_size", "request_rate", "burstiness", "max_concurrency", "num_prompts", "input_tokens", "output_tokens", "seed"}
    | {"temperature", "top_p", "repeats", "workers", "speed", "prefix_tokens", "prefix_groups"}
    | {"tp", "pp", "dp", "ep"}
)
_TRUTHS = frozenset({"exact_lengths", "ignore_eos"})
_FLAGS = {"engine_args": "--engine-arg", "labels": "--label", "devices": "--devices", "sweep": "--find"}
_REPLACES = {
    "batch_size": ("request_rate", "arrivals", "burstiness", "max_concurrency", "sweep", "stages", "speed"),
    "request_rate": ("batch_size", "sweep", "stages"),
    "dataset": ("input_tokens", "output_tokens", "prefix_tokens", "prefix_groups"),
    "sweep": ("batch_size", "request_rate", "stages", "speed"),
    "arrivals": ("burstiness",),
    "num_prompts": ("duration",),
    "duration": ("num_prompts",),
    "model": ("model_source",),
    "engine": ("base_url", "api_key_env", "engine_args", "engine_python", "image"),
}
"""What a flag takes back of a suite, unless that is a flag too: the two would contradict each other."""


_START = Place(line=0, text="command line")


def suite_from_options(options: Mapping[str, object], *, name: str = "command line") -> Suite:
    """The suite that flags describe. Keys are those of the format; None and empty tuples are flags not given.

    Raises: UsageError with one line a problem, each beginning with the flag.
    """
    problems = Problems()
    layers = [(merge({}, _read(_as_peers_spell(options), problems)), _START)]
    built = build(layers, name, problems)
    if problems:
        raise UsageError(problems.text())
    return Suite(name=name, description="", path="", layers=tuple(layers), **built)


def from_options(options: Mapping[str, object], *, name: str = "command line") -> tuple[Case, ...]:
    """The cases that flags describe, as `suite_from_options` without its warnings. Raises: UsageError."""
    return suite_from_options(options, name=name).cases


def override(suite: Suite, options: Mapping[str, object]) -> Suite:
    """`suite` with the keys of `options` in every case; cases that become the same are measured once, with a warning.

    Raises: UsageError with one line a problem, each beginning with the flag or `file:line:`.
    """
    problems = Problems()
    changes = _read(options, problems)
    if not changes and not problems:
        return suite
    layers = [(_changed(layer, changes), place) for layer, place in suite.layers]
    built = build(layers, suite.name, problems, drop_twins=True)
    if problems:
        raise UsageError(problems.text())
    return replace(suite, layers=tuple(layers), **built)


def _read(options: Mapping[str, object], problems: Problems) -> Layer:
    unknown = [key for key in options if key not in KEYS]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}{did_you_mean(unknown[0], KEYS)}")
    entries = {}
    for key, value in options.items():
        if value is None or value in ((), [], {}):
            continue
        place = Place(line=0, text=_FLAGS.get(key, "--" + key.replace("_", "-")))
        entries[key] = wrap(_pairs(key, value, place, problems) if key in MAPPINGS else _typed(key, value), place)
    return read_layer(Written(value=entries, place=_START), "the command line", problems)


def _as_peers_spell(options: Mapping[str, object]) -> Mapping[str, object]:
    """Other load generators have no closed loop of its own and infer gamma from the burstiness: take both as they mean it."""
    given = {key: value for key, value in options.items() if value is not None}
    sweep = given.get("sweep")
    over = sweep.get("over") if isinstance(sweep, Mapping) else None
    is_open = "request_rate" in given or over == "request_rate" or given.get("arrivals") == "trace"
    if not is_open and "batch_size" not in given and "max_concurrency" in given:
        given["batch_size"] = given.pop("max_concurrency")
    if "burstiness" in given and is_open and "arrivals" not in given:
        given["arrivals"] = "gamma"
    return given


def _typed(key: str, value: object) -> object:
    """Text as numbers and truth values where the key wants them; commas make lists of numbers."""
    if isinstance(value, tuple | list):
        typed = [_typed(key, item) for item in value]
        flat = [part for item in typed for part in (item if isinstance(item, list) else [item])]
        return flat[0] if len(flat) == 1 and key not in ("goodput", "devices", "stages") else flat
    if not isinstance(value, str):
        return value
    if (key in _NUMBERS or key == "devices") and "," in value:
        return [_typed(key, part) for part in value.split(",")]
    if key in _NUMBERS and re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", value, re.IGNORECASE | re.ASCII):
        return float(value) if re.search(r"[.eE]", value) else int(value)
    if key in _TRUTHS and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value.split() if key == "goodput" else value


def _pairs(key: str, value: object, place: Place, problems: Problems) -> Any:
    """`k=v` texts as a mapping; values of engine arguments are read as YAML scalars."""
    if isinstance(value, Mapping):
        return value
    pairs: dict[str, Any] = {}
    for item in [value] if isinstance(value, str) else list(value) if isinstance(value, tuple | list) else [str(value)]:
        name, equals, text = str(item).partition("=")
        if not equals or not name:
            problems.add(place, f"{name!r} is not of the form NAME=VALUE")
        elif name in pairs:
            problems.add(place, f"{name!r} is given twice")
        else:
            pairs[name] = _scalar(text) if key == "engine_args" else text
    return pairs


def _scalar(text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: what looks like a date and is none
        return text
    return value if isinstance(value, bool | int | float) else text


def _changed(layer: Layer, changes: Layer) -> Layer:
    taken: set[str] = set()
    for key, setting in changes.items():
        same = key in layer and layer[key].values == setting.values
        taken.update(() if same else _REPLACES.get(key, ()))
    if "request_rate" in changes and math.inf in changes["request_rate"].values:
        taken.update(("arrivals", "burstiness"))
    if "arrivals" in changes and "trace" in changes["arrivals"].values:
        taken.update(("request_rate", "batch_size", "burstiness", "stages", "sweep", "duration", "num_prompts"))
    if "sweep" in changes and any(isinstance(s, Search) and s.over == "batch_size" for s in changes["sweep"].values):
        taken.update(("arrivals", "burstiness", "max_concurrency"))
    kept = {key: setting for key, setting in layer.items() if key.partition(".")[0] not in taken}
    return {**kept, **changes}
