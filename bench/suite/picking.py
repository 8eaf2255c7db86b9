"""Which of a suite's cases are meant, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from bench.errors import UsageError
from bench.suite.build import Suite


def pick(suite: Suite, wanted: Sequence[str]) -> Suite:
    """`suite` with those of its cases and sweeps alone whose name fits one of `wanted`; all of them where nothing is wanted.

    Raises: UsageError as `picked` does.
    """
    if not wanted:
        return suite
    kept = picked([*(case.name for case in suite.cases), *(sweep.case.name for sweep in suite.sweeps)], wanted)
    return replace(
        suite,
        cases=tuple(case for case in suite.cases if case.name in kept),
        sweeps=tuple(sweep for sweep in suite.sweeps if sweep.case.name in kept),
    )


def picked(names: Sequence[str], wanted: Sequence[str]) -> set[str]:
    """Those of `names` that fit one of `wanted`: a name or a pattern (`*` stands for anything, `?` for one character), or several
    of them with a line each.

    Raises: UsageError for one that fits none.
    """
    found: set[str] = set()
    for one in (line for text in wanted for line in text.splitlines() if line):
        fitting = {name for name in names if name == one} or {name for name in names if fnmatchcase(name, one)}
        if not fitting:
            near = get_close_matches(one, names, n=1)
            did_you_mean = f": did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"no case is called {one!r}{did_you_mean}", hint="bench suites expand SUITE")
        found |= fitting
    return found
