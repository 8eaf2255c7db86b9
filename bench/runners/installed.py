"""Which engine is installed in an environment: its version and build, from package metadata alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from bench.errors import EngineMissing
from bench.records import Scalar
from bench.runners.environment import Environment, Said, Sought, ask_shim

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed engine. `build` is a commit or local version label; `beside` are the versions of other packages that decide
    how it runs; `fingerprint` changes when it is installed anew; `where` is the environment in words.
    """

    distribution: str
    version: str
    build: str | None
    python: str
    fingerprint: str
    beside: dict[str, str] = field(default_factory=dict)
    where: str = ""

    @property
    def line(self) -> str:
        """All of it in one line, for a person."""
        build = f" ({self.build})" if self.build and self.build not in self.version else ""
        beside = "".join(f", {name} {version}" for name, version in self.beside.items())
        return f"{self.distribution} {self.version}{build}{beside}, in {self.where}"

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of its version, for comparisons: (0, 32, 0)."""
        return release_of(self.version)

    @property
    def settings(self) -> dict[str, Scalar]:
        """What of it is kept with a trial: its package, and the versions of those beside it."""
        return {"distribution": self.distribution, **{f"package.{name}": version for name, version in self.beside.items()}}


def release_of(version: str) -> tuple[int, ...]:
    """`0.11.1rc2+cpu` as (0, 11, 1); empty where it does not begin with a number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def installed(environment: Environment, sought: Sought, beside: Sequence[str] = (), *, install: str) -> Installed:
    """The engine in `environment`. Raises: EngineMissing where it is not there, with `install` as the next step."""
    answer = _ask(environment, sought.distributions, tuple(beside))
    if isinstance(answer, Said):
        ended = "it gave no answer in time" if answer.status is None else answer.last_words or f"exit status {answer.status}"
        raise EngineMissing(f"{environment.where} can't be asked for {sought.engine}: {ended}", hint="give another engine_python")
    if answer is None:
        raise EngineMissing(f"{sought.engine} is not installed in {environment.where}", hint=install)
    return answer


@cache
def _ask(environment: Environment, distributions: tuple[str, ...], beside: tuple[str, ...]) -> Installed | Said | None:
    answer = ask_shim(environment, "installed", {"distributions": distributions, "beside": beside}, timeout_s=_LIMIT_S)
    if isinstance(answer, Said):
        return answer
    return Installed(**answer, where=environment.where) if answer else None
