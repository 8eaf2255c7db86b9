"""What an engine's own argument parser accepts, asked once for each installation: flags come and go between versions, and none is
ever passed that the installed one does not know.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from bench import codec
from bench.cache_dir import default_dir
from bench.errors import EngineMissing, UsageError
from bench.identity import digest
from bench.records import Scalar
from bench.runners.environment import Environment, Said, ask_shim
from bench.runners.installed import Installed

_LIMIT_S = 180.0
"""A first import of an engine reads gigabytes of libraries [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its spellings, the words it takes (None: anything), and how many values (None: one; 0, `?`, `+`, `*`)."""

    flags: tuple[str, ...]
    choices: tuple[str, ...] | None = None
    nargs: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The options of one version of an engine."""

    engine: str
    version: str
    options: tuple[Option, ...]

    def find(self, flag: str) -> Option | None:
        """The option that has `flag` among its spellings."""
        return next((option for option in self.options if flag in option.flags), None)

    def known(self, flag: str, *values: str) -> list[str]:
        """`flag` with its values where this version knows it and its word, else nothing."""
        option = self.find(flag)
        fits = option is not None and (option.choices is None or all(value in option.choices for value in values))
        return [flag, *values] if fits else []

    def first(self, *choices: tuple[str, ...]) -> list[str]:
        """The first of some `(flag, value, ...)` that this version knows; nothing where it knows none."""
        return next((found for flag, *values in choices if (found := self.known(flag, *values))), [])

    def need(self, flag: str, *values: str) -> list[str]:
        """`flag` with its values. Raises: EngineMissing where this version does not have it."""
        found = self.known(flag, *values)
        if not found:
            what = " ".join((flag, *values))
            hint = f"use another version of {self.engine}"
            raise EngineMissing(f"{self.engine} {self.version} does not know {what}, which bench needs", hint=hint)
        return found

    def passed(self, args: Mapping[str, Scalar], ours: Mapping[str, str]) -> list[str]:
        """`engine_args` of a case as this version's own flags: `max_num_seqs: 64`, `enforce_eager: true`.

        `ours` are options that the runner sets itself, with what to write instead. Raises: UsageError for those, for an unknown
        name (with the nearest) and for a value that the option does not take.
        """
        line: list[str] = []
        for name, value in args.items():
            flag = f"--{name.replace('_', '-')}"
            if name.replace("-", "_") in ours:
                raise UsageError(f"engine argument {name!r} of {self.engine}: bench sets it", hint=ours[name.replace("-", "_")])
            option = self.find(flag) or self.find(f"--{name}")
            if option is None:
                raise self._unknown(name)
            if value is not None:
                line += self._worded(name, flag if flag in option.flags else f"--{name}", value, option)
        return line

    def _worded(self, name: str, flag: str, value: Scalar, option: Option) -> list[str]:
        if option.nargs == 0:
            if value is True:
                return [flag]
            opposite = f"--no-{flag[2:]}"
            if value is False:
                return [opposite] if opposite in option.flags else []
            raise UsageError(f"engine argument {name!r} of {self.engine} is {value!r}, which is not true or false", hint=flag)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words = text.split() if option.nargs in ("+", "*") else [text]
        wrong = next((word for word in words if option.choices is not None and word not in option.choices), None)
        if wrong is not None:
            takes = f"it takes: {', '.join(option.choices or ())}"
            raise UsageError(f"engine argument {name!r} of {self.engine} {self.version} does not take {wrong!r}", hint=takes)
        return [flag, *words]

    def _unknown(self, name: str) -> UsageError:
        names = sorted({flag[2:].replace("-", "_") for option in self.options for flag in option.flags if flag.startswith("--")})
        near = get_close_matches(name.replace("-", "_"), names, n=3)
        hint = f"nearest: {', '.join(near)}" if near else f"`{self.engine} --help` lists {len(names)}"
        return UsageError(f"{self.engine} {self.version} has no option for the engine argument {name!r}", hint=hint)


def flags_from(document: Mapping[str, Any]) -> Flags:
    """Options as the parser shim tells them, with `engine` and `version`: also how the samples of the tests are stored."""
    options = [
        Option(
            flags=tuple(entry["flags"]),
            choices=None if entry["choices"] is None else tuple(entry["choices"]),
            nargs=entry["nargs"],
        )
        for entry in document["options"]
        if "flags" in entry
    ]
    return Flags(engine=document["engine"], version=document["version"], options=tuple(options))


def ask_flags(environment: Environment, engine: str, found: Installed, module: str, arguments: Sequence[str] = ()) -> Flags:
    """The options of `python -m module [arguments]`, from the cache where this installation has been asked before.

    Raises: EngineMissing in plain words where the parser can't be asked, as of a version that has moved it.
    """
    asked = (environment.where, engine, found.version, found.fingerprint, module, *arguments)
    kept = default_dir(os.environ) / "engines" / f"{digest(asked)}.json"
    if (known := _read(kept)) is not None:
        return known
    answer = ask_shim(environment, "parser", {"module": module, "arguments": arguments}, timeout_s=_LIMIT_S)
    if isinstance(answer, Said):
        why = f"it gave no answer within {_LIMIT_S:.0f} s" if answer.status is None else answer.last_words or "it said nothing"
        by_hand = " ".join(environment.python("-m", module, *arguments, "--help"))
        raise EngineMissing(
            f"the arguments of {engine} {found.version} in {environment.where} can't be found out: {why}",
            hint=f"does `{by_hand}` work? If so, this version is too new for bench",
        )
    flags = flags_from({"engine": engine, "version": found.version, **answer})
    _write(kept, flags)
    return flags


def _read(path: Path) -> Flags | None:
    try:
        return codec.decode(path.read_bytes(), Flags)
    except (OSError, ValueError):
        return None


def _write(path: Path, flags: Flags) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(codec.encode(flags))
        part.replace(path)
    except OSError:  # a cache that can't be written only costs the next run another question
        part.unlink(missing_ok=True)
