"""Settings and fixtures for all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.in_process import run_here

settings.register_profile("ci", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", max_examples=50, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell ignores the first for what it starts in the background, nohup the second. Every process of a test would inherit that,
# and no Ctrl-C or hang-up would be seen.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Where this is set, every `bench` that a test starts would compile anew all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# And each would begin a thread of OpenBLAS's for every core, where it imports numpy: a fifth of what a small process costs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

BenchCommand = Callable[..., "subprocess.CompletedProcess[str]"]


def with_flags(words: tuple[str, ...], *flags: str) -> tuple[str, ...]:
    """`words` of a command with `flags`, each with its value, in place of those of the same name."""
    named = dict(zip(flags[::2], flags[1::2], strict=True))
    kept = [word for at, word in enumerate(words) if word not in named and words[at - 1] not in named]
    return (*kept, *flags)


def undisturbed(trial: Mapping[str, Any]) -> bool:
    """Whether a trial, as JSON, is valid. What other work on this machine made invalid is not, and says so; any other fails."""
    from bench.reports.advice import BUSY  # not with this module, which sets what numpy reads when it is imported

    if trial["status"] == "valid":
        return True
    assert trial["status"] == "invalid", trial
    assert {reason["code"] for reason in trial["reasons"] if reason["severity"] == "invalid"} <= BUSY, trial["reasons"]
    return False


@pytest.fixture
def bench(tmp_path: Path) -> BenchCommand:
    """Runs `bench ARGS...` as a person would, in a scratch folder with its own results."""
    return bench_in(tmp_path)


def bench_in(folder: Path) -> BenchCommand:
    """Runs `bench ARGS...` as a person would, in `folder` with its own results."""

    def run(*args: str, timeout: float = 90, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bench", *args],
            cwd=folder,
            env={**os.environ, "BENCH_RESULTS": str(folder / "results"), **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def bench_here(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> BenchCommand:
    """As `bench`, but in this process, which has imported everything: for what a command says, keeps and exits with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))

    def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            ran = run_here(capsys, *args)
        return subprocess.CompletedProcess(args, ran.code, ran.out, ran.err)

    return run
