"""`engine_args` of a suite: which a runner knows, of which kind, and a helpful refusal of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from bench.errors import UsageError
from bench.records import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One engine argument: what kind of value it takes, its lowest number, its allowed words, and what it is for."""

    kind: Literal["int", "number", "bool", "text"]
    about: str
    low: float | None = None
    choices: tuple[str, ...] = ()


def check_arguments(engine: str, args: Mapping[str, Scalar], known: Mapping[str, Argument]) -> None:
    """Raises: UsageError for an unknown name (with the nearest known one) or a value of the wrong kind."""
    for name, value in args.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            did_you_mean = f" Did you mean {near[0]!r}?" if near else ""
            takes = f"{engine} takes: {', '.join(sorted(known))}" if known else f"{engine} takes no engine_args"
            raise UsageError(f"unknown engine argument {name!r} for {engine}.{did_you_mean}", hint=takes)
        wanted = _what_is_wrong(value, known[name])
        if wanted is not None:
            raise UsageError(f"engine argument {name!r} of {engine} is {value!r}, which is not {wanted}", hint=known[name].about)


def _what_is_wrong(value: Scalar, argument: Argument) -> str | None:
    """What the value should have been; None where it is right. A null means: the engine's own default."""
    if value is None:
        return None
    if argument.kind == "bool":
        return None if isinstance(value, bool) else "true or false"
    if argument.kind == "text":
        text = _as_word(value)
        if argument.choices:
            return None if text in argument.choices else f"one of {', '.join(argument.choices)}"
        return None if isinstance(value, str) and value else "a text"
    fits = isinstance(value, int | float if argument.kind == "number" else int) and not isinstance(value, bool)
    noun = "a number" if argument.kind == "number" else "a whole number"
    if not fits:
        return noun
    assert isinstance(value, int | float)
    return None if argument.low is None or value >= argument.low else f"{noun} of at least {argument.low:g}"


def _as_word(value: Scalar) -> str:
    """YAML reads a bare `on` and `off` as booleans."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).lower()


def word(args: Mapping[str, Scalar], name: str) -> str | None:
    """A text argument in lower case, with YAML's booleans as `on` and `off`; None where it is not given."""
    value = args.get(name)
    return None if value is None else _as_word(value)


def whole(args: Mapping[str, Scalar], name: str) -> int | None:
    """An int argument; None where it is not given."""
    value = args.get(name)
    return None if value is None else int(value)
