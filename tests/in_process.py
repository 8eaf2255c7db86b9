"""`bench ARGS...` in the process of the test: what it printed, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from bench.cli.main import main


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Bench = Callable[..., Ran]


def run_here(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    """Run `bench` with `args`."""
    with pytest.raises(SystemExit) as caught:
        main(args)
    assert isinstance(caught.value.code, int)
    return Ran(caught.value.code, *capsys.readouterr())
