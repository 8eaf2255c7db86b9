"""Commands over results that were made up trial by trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.cli.main import main


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


Bench = Callable[..., Ran]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder that commands use."""
    folder = tmp_path / "results"
    monkeypatch.setenv("BENCH_RESULTS", str(folder))
    return folder


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `bench ARGS...` in this process."""

    def run(*args: str) -> Ran:
        with pytest.raises(SystemExit) as caught:
            main(args)
        shown = capsys.readouterr()
        code = caught.value.code
        assert isinstance(code, int)
        return Ran(code=code, out=shown.out, err=shown.err)

    return run
