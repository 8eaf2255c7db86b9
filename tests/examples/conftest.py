"""Packages of `examples/`, installed as anybody would install them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
Install = Callable[[str], Path]
RunTests = Callable[[str, Path], str]


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Makes a folder with the package of an example in it, to be put on the path."""

    def installed(name: str) -> Path:
        source = tmp_path_factory.mktemp("source") / name
        shutil.copytree(EXAMPLES / name, source)
        target = tmp_path_factory.mktemp("site")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
        subprocess.run([*pip, str(source)], check=True, capture_output=True, text=True)
        return target

    return installed


@pytest.fixture
def run_tests(tmp_path: Path) -> RunTests:
    """Runs an example's own tests with its package on the path, away from this checkout; gives what pytest printed."""

    def ran(name: str, site: Path) -> str:
        tests = shutil.copytree(EXAMPLES / name / "tests", tmp_path / "tests")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
            env={**os.environ, "PYTHONPATH": str(site)}, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    return ran
