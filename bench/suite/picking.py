"""Which of a suite's cases are meant, by name."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from bench.errors import UsageError
from bench.suite.build import Suite
from bench.suite.lookup import reference


def pick(suite: Suite, wanted: Sequence[str]) -> Suite:
    """`suite` with those of its cases and sweeps alone whose name fits one of `wanted`; all of them where nothing is wanted.

    Raises: UsageError as `picked` does.
    """
    if not wanted:
        return suite
    kept = picked([*(case.name for case in suite.cases), *(sweep.case.name for sweep in suite.sweeps)], wanted, suite)
    return replace(
        suite,
        cases=tuple(case for case in suite.cases if case.name in kept),
        sweeps=tuple(sweep for sweep in suite.sweeps if sweep.case.name in kept),
    )


def picked(names: Sequence[str], wanted: Sequence[str], suite: Suite) -> set[str]:
    """Those of the `names` of a suite's cases that fit one of `wanted`: a name or a pattern (`*` stands for anything, `?` for one
    character), or several of them with a line each.

    Raises: UsageError for one that fits none.
    """
    found: set[str] = set()
    for one in (line for text in wanted for line in text.splitlines() if line):
        fitting = {name for name in names if name == one} or {name for name in names if fnmatchcase(name, one)}
        if not fitting:
            near = _near(one, names)
            did_you_mean = f": did you mean {near!r}?" if near else ""
            raise UsageError(
                f"no case is called {one!r}{did_you_mean}",
                hint=f"bench suites expand {shlex.quote(reference(suite.path))}" if suite.path else None,
            )
        found |= fitting
    return found


def _near(wanted: str, names: Sequence[str]) -> str | None:
    """The pattern for all cases of a matrix, whose values are a part of their names; else the nearest name."""
    if any(name.startswith(f"{wanted}/") for name in names):
        return f"{wanted}/*"
    return next(iter(get_close_matches(wanted, names, n=1)), None)
