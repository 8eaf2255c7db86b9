"""An engine from outside: installed as a package, found by its entry point, held to the suite of the installed `bench`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.testing.engine_site import engine_python
from tests.examples.conftest import EXAMPLES, Install, RunTests
from tests.models.samples import gguf_bytes

SUITE = """
name: outside
defaults: {model: "path:tiny.gguf", engine: acme-lm, precision: fp32, batch_size: 2, input_tokens: 16, output_tokens: 4,
           duration: 0.3s, warmup: 0s, idle: 0s, engine_args: {lanes: 5}}
cases: [{name: c}]
"""


@pytest.fixture(scope="module")
def installed(install: Install) -> Path:
    return install("engine")


def bench(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of `bench` where the package is installed, and the engine in a Python of its own."""
    python = folder / "acme" / "bin" / "python"
    if not python.exists():
        serve = (EXAMPLES / "engine/tests/acme_serve.py").read_text(encoding="utf-8")
        programs = {"acme-serve": "acme_lm.serve"}
        engine_python(folder / "acme", "acme-lm", "7.1", {"acme_lm.serve": serve}, programs=programs)
    env = {**os.environ, "PYTHONPATH": str(installed), "BENCH_ACME_LM_PYTHON": str(python), "BENCH_CACHE": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False
    )


def test_doctor_finds_it_or_says_how_to_install_it(installed: Path, tmp_path: Path) -> None:
    assert "acme-lm 7.1" in bench(installed, tmp_path, "doctor", "--engine", "acme-lm").stdout
    (tmp_path / "acme" / "bin" / "acme-serve").unlink()
    missing = bench(installed, tmp_path, "doctor", "--engine", "acme-lm")
    assert missing.returncode == 4
    assert "pip install /path/to/acme-lm" in missing.stdout  # never a name that an index may have


def test_it_is_measured_like_any_other(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(gguf_bytes())
    (tmp_path / "suite.yaml").write_text(SUITE)
    foreseen = bench(installed, tmp_path, "run", "suite.yaml", "--dry-run")
    assert re.search(r"acme-serve \S+tiny\.gguf --name \S+ --listen \d+ --lanes 5 --format single", foreseen.stdout), (
        foreseen.stdout
    )
    done = bench(installed, tmp_path, "run", "suite.yaml", "--results", "results")
    (shard,) = (tmp_path / "results/shards").glob("*/*/*/trial.json")
    trial = json.loads(shard.read_text())
    engine = trial["engine"]
    assert (engine["name"], engine["version"], engine["precision"]) == ("acme-lm", "7.1", "fp32"), done.stdout + done.stderr
    assert engine["settings"]["lanes"] == 5
    assert trial["metrics"]["ttft_ms"]["p50"] > 0
    counted = [trial[f"engine_metrics_{when}"]["generation_tokens_total"] for when in ("before", "after")]
    assert counted[1] > counted[0]


def test_it_passes_the_conformance_suite_of_the_installed_package(installed: Path, run_tests: RunTests) -> None:
    assert "16 passed" in run_tests("engine", installed)
