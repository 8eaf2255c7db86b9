"""What one mapping of settings says, checked key by key: `Written` values to `Setting`s."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from bench.records import LengthSpec
from bench.suite.loads import DatasetSettings
from bench.suite.settings import ADAPTERS, ENTRY_ADAPTERS, ENTRY_NAMES, EXPANDABLE, KEPT_QUIET, KEYS, MAPPINGS
from bench.suite.values import ContainerSettings, Lengths, SweepSettings
from bench.suite.written import Place, Problems, Written, did_you_mean, shown

_SECRET_ARGS = frozenset({"api_key", "hf_token", "password", "token"})
_NOT_A_KEY = {
    "api_key": "keys never go into a suite: set a variable and write 'api_key_env: NAME'",
    "concurrency": "did you mean 'batch_size' (a constant number in flight) or 'max_concurrency' (a cap on 'request_rate')?",
}


_WANTED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "list_type": "must be limits as in [ttft:200, tpot:50]",
    "model_type": "must be a number or a mapping of mean, dist and spread",
    "dict_type": "must be a mapping",
    "string_pattern_mismatch": "must be text on one line, without spaces around it",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must not be empty",
}
_PARTS: dict[str, type[BaseModel]] = {
    "sweep": SweepSettings,
    "dataset": DatasetSettings,
    "container": ContainerSettings,
}
_PATTERNS = {
    "stages": "must be a list as in [{{rate: 5, duration: 30s}}]",
    "dataset": "must be synthetic, a file, or a mapping as in {{type: sharegpt, path: FILE}}",
    "container": "must be a mapping as in {{network: host, shm_size: 16g}}",
    "sweep": "must be a mapping as in {{find: knee, over: batch_size, low: 1, high: 64}}",
    "api_key_env": "must be the name of an environment variable, as in OPENAI_API_KEY: never the key itself",
    "base_url": "must be a URL as in http://127.0.0.1:8000/v1 or unix:/run/llm.sock, without user, password, query or fragment",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key, its checked values (several: an axis of the matrix) and where it was written.

    Entries of mappings are settings of their own: `engine_args.threads`. A value of None takes the key back.
    """

    key: str
    values: tuple[Any, ...]
    place: Place
    is_axis: bool = False
    is_broken: bool = False
    """Written, but not usable: rules must not say that it is missing."""


Layer = dict[str, Setting]


def read_layer(written: Written, what: str, problems: Problems) -> Layer:
    """The settings of a mapping; what is wrong goes to `problems` and is left out."""
    if not isinstance(written.value, dict):
        problems.add(written.place, f"{what} must be a mapping of keys, got {shown(written.plain())}")
        return {}
    layer: Layer = {}
    for key, entry in written.value.items():
        if key not in KEYS:
            problems.add(entry.place, _unknown(key))
            for meant in get_close_matches(key, KEYS, n=1):
                layer.setdefault(meant, _broken(meant, entry.place))
            continue
        for setting in _settings(key, entry, problems):
            layer[setting.key] = setting
    return layer


def merge(defaults: Layer, case: Layer) -> Layer:
    """`case` over `defaults`; what the case takes back with `null` is gone, a mapping with all its entries."""
    emptied = {key for key in MAPPINGS if key in case}
    kept = {key: s for key, s in defaults.items() if key not in case and key.partition(".")[0] not in emptied}
    merged = {**kept, **case}
    return {key: setting for key, setting in merged.items() if setting.values != (None,) or setting.is_broken}


def label_of(value: Any) -> str:
    """A value as part of a case's name."""
    if value is None:
        return "default"
    if isinstance(value, LengthSpec):
        return str(value.mean) if value.dist == "fixed" else f"{value.dist}:{value.mean}:{value.spread:g}"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _unknown(key: str) -> str:
    special = _NOT_A_KEY.get(key)
    return f"unknown key {key!r}" + (f": {special}" if special else did_you_mean(key, KEYS))


def _settings(key: str, entry: Written, problems: Problems) -> Iterator[Setting]:
    if key in MAPPINGS:
        yield from _entries(key, entry, problems)
        return
    yield _setting(key, entry, ADAPTERS[key], key in EXPANDABLE, problems)


def _entries(key: str, entry: Written, problems: Problems) -> Iterator[Setting]:
    if entry.value is None:
        yield Setting(key=key, values=(None,), place=entry.place)
        return
    if not isinstance(entry.value, Mapping):
        problems.add(entry.place, f"{key} must be a mapping of names to values, got {shown(entry.plain())}")
        return
    for name, inner in entry.value.items():
        if key == "engine_args" and name.lower().lstrip("-").replace("-", "_") in _SECRET_ARGS:
            problems.add(inner.place, f"{key}.{name} looks like a secret: {_NOT_A_KEY['api_key']}")
            continue
        if _checked(name, Written(value=name, place=inner.place), ENTRY_NAMES, key, problems) is None:
            continue
        yield _setting(f"{key}.{name}", inner, ENTRY_ADAPTERS[key], key == "engine_args", problems)


def _broken(key: str, place: Place) -> Setting:
    return Setting(key=key, values=(None,), place=place, is_broken=True)


def _setting(name: str, entry: Written, adapter: TypeAdapter[Any], expands: bool, problems: Problems) -> Setting:
    if not (expands and isinstance(entry.value, list)):
        checked = _checked(entry.plain(), entry, adapter, name, problems)
        return _broken(name, entry.place) if checked is None else Setting(key=name, values=checked, place=entry.place)
    if not entry.value:
        problems.add(entry.place, f"{name} is an empty list: write at least one value")
    values: dict[tuple[bool, Any], Any] = {}  # true and 1 are two values, 1 and 1.0 are one
    for item in entry.value:
        for value in _checked(item.plain(), item, adapter, name, problems) or ():
            if (isinstance(value, bool), value) in values:
                problems.add(item.place, f"{name} lists {label_of(value)} twice")
            values[isinstance(value, bool), value] = value
    found = tuple(values.values())
    return Setting(key=name, values=found, place=entry.place, is_axis=True) if found else _broken(name, entry.place)


def _checked(plain: Any, entry: Written, adapter: TypeAdapter[Any], name: str, problems: Problems) -> tuple[Any] | None:
    """The value in a tuple of one, or None when there are problems: None itself is a value."""
    if plain is None:
        return (None,)
    try:
        return (adapter.validate_python(plain),)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            part, steps = entry.follow(detail["loc"])
            by_flag = part.place.line == 0 and "." not in name  # the message begins with the flag: don't say the key again
            path = ".".join([*([] if by_flag else [name]), *steps])
            problems.add(part.place, _explain(name, path, part, dict(detail)).lstrip(": "))
        return None


def _explain(name: str, path: str, part: Written, detail: dict[str, Any]) -> str:
    kind, step = detail["type"], str(detail["loc"][-1]) if detail["loc"] else ""
    limits = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in (detail.get("ctx") or {}).items()}
    parent, _, last = path.rpartition(".")
    if kind == "extra_forbidden":
        return f"unknown key {last!r} in {parent or name}" + did_you_mean(last, _PARTS.get(name, Lengths).model_fields)
    if step == "[key]":
        return f"unknown key {last!r} in {parent or name}" + did_you_mean(last, ("ttft", "tpot", "e2e"))
    if kind == "missing":
        return f"{path} needs {step!r}"
    got = "" if name in KEPT_QUIET else f", got {shown(part.plain())}"
    if kind == "value_error":
        text = str(limits["error"])
        head, colon, rest = text.partition(": ")
        return f"{path} {head}{got}{colon}{rest}" if text.startswith("must") else f"{path}: {text}"
    if kind in ("literal_error", "enum"):
        return f"{path} must be {limits['expected']}{got}{_nearest(part.value, str(limits['expected']))}"
    special = kind == "string_pattern_mismatch" or (kind in ("model_type", "list_type") and path in (name, ""))
    wanted = _PATTERNS.get(name, _WANTED[kind]) if special else _WANTED.get(kind, detail["msg"])
    return f"{path} {wanted.format(**limits)}{got}{_schemeless(name, part.value)}"


def _schemeless(name: str, value: Any) -> str:
    """What was meant by the address of a server without `http://`; of nothing else, as a URL may hold a secret."""
    bare = name == "base_url" and isinstance(value, str) and re.fullmatch(r"[\w.-]+(:\d{1,5})?(/v\d+)?/?", value)
    return f": did you mean http://{value}?" if bare else ""


def _nearest(value: Any, expected: str) -> str:
    near = get_close_matches(value, re.findall(r"'([^']+)'", expected), n=1) if isinstance(value, str) else []
    return f": did you mean {near[0]!r}?" if near else ""
