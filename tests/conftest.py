"""Settings and fixtures for all tests."""

from __future__ import annotations

import json
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


DISTURBED = {"client_saturated", "server_saturated"}
"""What a machine with other things to do makes of a trial on the mock engine."""
TRIES = 5
_WHY = "SELECT DISTINCT code FROM reasons JOIN trials USING (trial_id) WHERE run_id = (SELECT max(run_id) FROM trials)"


def undisturbed(bench: BenchCommand, *args: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    """The first of a few runs of `bench run ...` that this machine left alone: those before it were invalid for nothing else."""
    for _ in range(TRIES):
        done = bench(*args, timeout=timeout)
        if done.returncode == 0:
            break
        said = bench("sql", f"{_WHY} AND severity = 'invalid'", "--json")
        codes = {row["code"] for row in json.loads(said.stdout)}
        if not codes or not codes <= DISTURBED:
            break
    return done


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
