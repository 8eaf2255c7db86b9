from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.cli.devices import devices
from bench.probes.presence import Roots
from tests.probes.fake_nvml import GPU_0, GPU_1, FakeNvml
from tests.probes.trees import TWO_SOCKETS, add_nvidia_card, roots_env, write_powercap


def _run(env: dict[str, str], *flags: str) -> Result:
    return CliRunner().invoke(devices, list(flags), env=env, catch_exceptions=False)


def _json(env: dict[str, str]) -> dict[str, Any]:
    result = _run(env, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_two_boards_and_what_they_draw(fake_nvml: FakeNvml, roots: Roots) -> None:
    found = _json({**roots_env(roots), **fake_nvml.env()})
    assert set(found) == {"devices", "problems"}
    assert [d["uid"] for d in found["devices"]] == [GPU_0, GPU_1]
    first = found["devices"][0]
    assert first["now"]["power_w"] == pytest.approx(655.84)
    assert first["now"]["memory_used_b"] == 64265125888
    assert first["power"]["api"] == first["now"]["power_from"]


def test_plain_lines_when_piped(fake_nvml: FakeNvml, roots: Roots) -> None:
    result = _run({**roots_env(roots), **fake_nvml.env()})
    assert result.exit_code == 0
    header, first, second = result.stdout.splitlines()[:3]
    assert header.split()[:2] == ["probe", "#"]
    for part in (
        "nvidia",
        "NVIDIA H100 80GB HBM3",
        "59.9 GiB / 79.6 GiB",
        "700.0 W",
        "655.8 W",
        "580.95.05",
        "POWER_INSTANT",
        GPU_0,
    ):
        assert part in first
    assert "70.1 W" in second
    assert "! cpu: RAPL" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_shared_board_is_told_before_a_run_is_spent_on_it(fake_nvml: FakeNvml, roots: Roots) -> None:
    env = {**roots_env(roots), **fake_nvml.env(), "BENCH_PROBES": "nvidia"}
    assert "no joules" not in _run(env).stdout
    result = _run({**env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is set" in result.stdout
    assert "use a whole board" in result.stdout


def test_a_board_on_which_somebody_computes_is_told(fake_nvml: FakeNvml, roots: Roots) -> None:
    env = {**roots_env(roots), **fake_nvml.env(), "BENCH_PROBES": "nvidia"}
    assert "on it" not in _run(env).stdout
    fake_nvml.change(b1__pids="4001 4002")
    result = _run(env)
    assert f"! nvidia: {GPU_1}: 2 processes compute on it" in result.stdout
    assert "--share-devices" in result.stdout
    assert f"{GPU_0}:" not in result.stdout
    assert [device["now"]["foreign_processes"] for device in _json(env)["devices"]] == [0, 2]
    fake_nvml.change(all__processes__ret=3)
    assert [device["now"]["foreign_processes"] for device in _json(env)["devices"]] == [None, None]


def test_a_counter_shows_its_difference_as_power(roots: Roots, tmp_path: Path) -> None:
    """A counter at rest: 0 W is measured, from two readings."""
    write_powercap(roots, TWO_SOCKETS)
    found = _json({**roots_env(roots), "BENCH_PROBES": "cpu"})
    assert [d["scope"] for d in found["devices"]] == ["cpu_package", "dram", "cpu_package", "dram"]
    assert [d["now"]["power_w"] for d in found["devices"]] == [0.0] * 4
    assert found["devices"][0]["now"]["power_from"] == "difference of powercap intel-rapl:0/energy_uj"
    assert found["devices"][0]["power_limit_w"] == 270.0
    assert found["problems"] == []


def test_nothing_found_is_said_and_is_no_failure(roots: Roots) -> None:
    result = _run({**roots_env(roots), "BENCH_PROBES": "cpu"})
    assert result.exit_code == 0
    assert "no device with a sensor was found" in result.stdout
    assert "fix:" in result.stdout
    assert _json({**roots_env(roots), "BENCH_PROBES": "cpu"})["devices"] == []


def test_a_hung_driver_is_a_problem_in_time(fake_nvml: FakeNvml, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.change(all__init__hang_s=600)
    monkeypatch.setattr("bench.cli.devices.DEADLINE_S", 1.0)
    result = _run({**roots_env(roots), **fake_nvml.env(), "BENCH_PROBES": "nvidia"})
    assert result.exit_code == 0
    assert "did not answer" in result.stdout


def test_a_card_without_its_library_is_not_hidden(roots: Roots) -> None:
    add_nvidia_card(roots)
    result = _run({**roots_env(roots), "BENCH_PROBES": "nvidia", "LD_LIBRARY_PATH": ""})
    assert "PCI device 0000:18:00.0" in result.stdout
    assert "fix:" in result.stdout
