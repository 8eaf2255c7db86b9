"""Commands in this process, over results of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.in_process import Bench, run_here


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Runs `bench ARGS...` here, with an empty results folder."""
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
    return partial(run_here, capsys)
