"""Settings and fixtures for all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", max_examples=50, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# A shell ignores the first for what it starts in the background, nohup the second. Every process of a test would inherit that,
# and no Ctrl-C or hang-up would be seen.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

BenchCommand = Callable[..., "subprocess.CompletedProcess[str]"]


def with_flags(words: tuple[str, ...], *flags: str) -> tuple[str, ...]:
    """`words` of a command with `flags`, each with its value, in place of those of the same name."""
    named = dict(zip(flags[::2], flags[1::2], strict=True))
    kept = [word for at, word in enumerate(words) if word not in named and words[at - 1] not in named]
    return (*kept, *flags)


@pytest.fixture
def bench(tmp_path: Path) -> BenchCommand:
    """Runs `bench ARGS...` as a person would, in a scratch folder with its own results."""

    def run(*args: str, timeout: float = 90, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "bench", *args],
            cwd=tmp_path,
            env={**os.environ, "BENCH_RESULTS": str(tmp_path / "results"), **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
