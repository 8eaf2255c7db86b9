"""A vendor from outside: installed as a package, found by its entry point, held to the suite of the installed `bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.conftest import Install, RunTests
from tests.probes.trees import replace_text


@pytest.fixture(scope="module")
def installed(install: Install) -> Path:
    return install("probe")


def test_its_devices_are_listed_among_the_others(installed: Path, tmp_path: Path) -> None:
    board = tmp_path / "sys/class/acme/board0"
    for name, text in {"serial": "A1-7", "power_mw": "99000", "energy_uj": "5", "memory": "1 2"}.items():
        replace_text(board / name, text + "\n")
    env = {**os.environ, "PYTHONPATH": str(installed), "BENCH_SYSFS_ROOT": str(tmp_path / "sys"), "BENCH_DEV_ROOT": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "bench", "devices", "--json"], env=env, capture_output=True, text=True, check=False
    )
    devices = {device["uid"]: device for device in json.loads(done.stdout)["devices"]}
    assert devices["A1-7"]["probe"] == "acme"
    assert devices["A1-7"]["now"]["power_w"] == 99.0


def test_it_passes_the_conformance_suite_of_the_installed_package(installed: Path, run_tests: RunTests) -> None:
    assert "11 passed" in run_tests("probe", installed)
