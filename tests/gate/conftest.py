"""Commands over results that were made up trial by trial."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.in_process import Bench, run_here


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder that commands use."""
    folder = tmp_path / "results"
    monkeypatch.setenv("BENCH_RESULTS", str(folder))
    return folder


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `bench ARGS...` in this process."""
    return partial(run_here, capsys)
