"""`bench power`, `bench devices --watch` and `bench devices selftest`, as a person runs them, on the compiled NVML."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.lab.power import masked
from bench.probes.presence import Roots
from bench.probes.vendor_tools import tool_values
from tests.conftest import BenchCommand
from tests.probes.fake_nvml import GPU_0, GPU_1, FakeNvml
from tests.probes.polling import until
from tests.probes.trees import replace_text, roots_env


@pytest.fixture
def env(fake_nvml: FakeNvml, roots: Roots) -> dict[str, str]:
    return {**roots_env(roots), **fake_nvml.env(), "BENCH_PROBES": "nvidia"}


@pytest.fixture
def no_devices(roots: Roots) -> dict[str, str]:
    """For what has nothing to do with sensors: nothing has to settle first."""
    return {**roots_env(roots), "BENCH_PROBES": "cpu"}


def start(env: dict[str, str], folder: Path, *args: str) -> subprocess.Popen[str]:
    """`bench ARGS` in a session of its own, so that no terminal is in the foreground."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench", *args],
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def leaves_nothing(process: subprocess.Popen[str]) -> bool:
    """Whether no process of its session is left."""
    for other in psutil.process_iter():
        try:
            if os.getsid(other.pid) == process.pid:
                return False
        except (psutil.Error, OSError):
            continue
    return True


class TestRecord:
    @pytest.mark.alone
    def test_the_command_keeps_its_output_and_exit_code_and_the_file_has_its_energy(
        self, bench: BenchCommand, env: dict[str, str], tmp_path: Path
    ) -> None:
        began_s = time.monotonic()
        done = bench("power", "record", "--out", "e.json", "--", "sh", "-c", "sleep 2; echo result; exit 7", **env)
        whole_s = time.monotonic() - began_s
        assert done.returncode == 7
        assert done.stdout == "result\n"
        found = json.loads((tmp_path / "e.json").read_text())
        assert found["exit_code"] == 7
        assert found["command"] == ["sh", "-c", "sleep 2; echo result; exit 7"]
        assert 2.0 <= found["seconds"] < whole_s
        by_uid = {one["device"]["uid"]: one for one in found["devices"]}
        busy, idle = by_uid[GPU_0], by_uid[GPU_1]
        assert busy["method"] == "counter"
        assert busy["joules"]["low_j"] <= 655.84 * found["seconds"] <= busy["joules"]["high_j"]
        assert idle["joules"]["low_j"] <= 70.12 * found["seconds"] <= idle["joules"]["high_j"]
        assert busy["coverage"] == 1.0
        (scope,) = found["scopes"]
        assert scope["joules"]["energy_j"] == pytest.approx(busy["joules"]["energy_j"] + idle["joules"]["energy_j"])
        assert GPU_0 in done.stderr
        assert " J" in done.stderr

    def test_options_of_the_command_are_its_own(self, bench: BenchCommand, no_devices: dict[str, str]) -> None:
        done = bench("power", "record", "sh", "-c", "echo --out $0 $1", "--json", "--seconds", **no_devices)
        assert (done.returncode, done.stdout) == (0, "--out --json --seconds\n")

    @pytest.mark.parametrize(("name", "code"), [("no-such-command", 127), ("./not-executable", 126)])
    def test_a_command_that_can_not_be_started_is_the_shells_code(
        self, bench: BenchCommand, env: dict[str, str], tmp_path: Path, name: str, code: int
    ) -> None:
        (tmp_path / "not-executable").write_text("echo no\n")
        done = bench("power", "record", "--out", "e.json", "--", name, **env)
        assert done.returncode == code
        assert name in done.stderr
        assert not (tmp_path / "e.json").exists()

    def test_no_command_is_a_usage_error(self, bench: BenchCommand) -> None:
        done = bench("power", "record")
        assert done.returncode == 2
        assert "COMMAND" in done.stderr

    def test_a_folder_that_is_not_there_is_said_before_anything_runs(self, bench: BenchCommand, tmp_path: Path) -> None:
        done = bench("power", "record", "--out", "gone/e.json", "--", "touch", "ran")
        assert done.returncode == 2
        assert "gone" in done.stderr
        assert not (tmp_path / "ran").exists()

    def test_a_killed_command_is_told_as_a_shell_would(
        self, bench: BenchCommand, no_devices: dict[str, str], tmp_path: Path
    ) -> None:
        done = bench("power", "record", "--out", "e.json", "--", "sh", "-c", "kill -9 $$", **no_devices)
        assert done.returncode == 137
        assert json.loads((tmp_path / "e.json").read_text())["exit_code"] == 137

    def test_too_short_a_command_has_no_energy_and_says_so(
        self, bench: BenchCommand, env: dict[str, str], tmp_path: Path
    ) -> None:
        done = bench("power", "record", "--out", "e.json", "--", "true", **env)
        assert done.returncode == 0
        assert "below_sensor_resolution" in done.stderr
        for one in json.loads((tmp_path / "e.json").read_text())["devices"]:
            assert one["joules"]["energy_j"] is None
            assert one["joules"]["reason"]

    def test_without_a_device_the_command_still_runs(
        self, bench: BenchCommand, no_devices: dict[str, str], tmp_path: Path
    ) -> None:
        done = bench("power", "record", "--out", "e.json", "--", "sh", "-c", "exit 5", **no_devices)
        assert done.returncode == 5
        assert "no device with a sensor" in done.stderr
        assert json.loads((tmp_path / "e.json").read_text())["devices"] == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_is_for_the_command_and_the_file_is_written(
        self, no_devices: dict[str, str], tmp_path: Path, number: signal.Signals
    ) -> None:
        script = "trap 'exit 9' INT TERM; touch up; while :; do sleep 0.05; done"
        process = start(no_devices, tmp_path, "power", "record", "--out", "e.json", "--", "sh", "-c", script)
        until((tmp_path / "up").exists)
        process.send_signal(number)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 9, told
        assert json.loads((tmp_path / "e.json").read_text())["exit_code"] == 9
        until(lambda: leaves_nothing(process))

    def test_a_probe_that_dies_costs_the_energy_and_not_the_command(
        self, bench: BenchCommand, env: dict[str, str], fake_nvml: FakeNvml, tmp_path: Path
    ) -> None:
        fake_nvml.change(all__instant__crash=1)
        done = bench("power", "record", "--out", "e.json", "--", "echo", "fine", **env)
        assert (done.returncode, done.stdout) == (0, "fine\n")
        assert "SIGSEGV" in done.stderr


def test_what_looks_like_a_secret_is_masked() -> None:
    argv = ["serve", "--api-key", "abc", "--hf-token=def", "--max-tokens", "9", "PASSWORD=ghi", "--port", "1"]
    told = " ".join(masked(argv))
    assert not any(secret in told for secret in ("abc", "def", "ghi"))
    assert told.startswith("serve --api-key *** --hf-token=***")
    assert told.endswith("--port 1")


class TestIdle:
    def test_mean_power_and_who_was_busy(self, bench: BenchCommand, env: dict[str, str], tmp_path: Path) -> None:
        done = bench("power", "idle", "--seconds", "2", "--out", "idle.json", **env)
        assert done.returncode == 0
        line = next(line for line in done.stdout.splitlines() if GPU_1 in line)
        assert float(line.split(" W ")[0].split()[-1]) == pytest.approx(
            70.0, rel=0.1
        )  # by a counter that steps, over two seconds
        assert f"{GPU_0} was busy for 97%" in done.stderr
        assert GPU_1 not in done.stderr
        found = json.loads((tmp_path / "idle.json").read_text())
        assert (found["command"], found["exit_code"]) == (None, None)
        assert {one["device"]["uid"] for one in found["devices"]} == {GPU_0, GPU_1}

    def test_ctrl_c_is_130_and_leaves_nothing(self, env: dict[str, str], tmp_path: Path) -> None:
        process = start(env, tmp_path, "power", "idle", "--seconds", "600")
        until(lambda: len(psutil.Process(process.pid).children()) == 1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        until(lambda: leaves_nothing(process))


class TestWatch:
    def test_plain_lines_until_ctrl_c_which_is_no_failure(self, env: dict[str, str], tmp_path: Path) -> None:
        process = start(env, tmp_path, "devices", "--watch")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert lines[0].split()[:2] == ["time", "power"]
        assert all(GPU_0 in line and "655.8 W" in line and "97%" in line for line in lines[1::2])
        assert all(GPU_1 in line and "70.1 W" in line and "none" in line for line in lines[2::2])
        assert "\x1b" not in "".join(lines)
        until(lambda: leaves_nothing(process))

    def test_json_lines(self, bench: BenchCommand, env: dict[str, str]) -> None:
        done = bench("devices", "--watch", "--json", "--seconds", "2", **env)
        assert done.returncode == 0
        objects = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(objects) >= 2
        for one in objects:
            assert [device["uid"] for device in one["devices"]] == [GPU_0, GPU_1]
        assert objects[-1]["devices"][0]["memory_used_b"] == 64265125888

    def test_seconds_without_watch_is_a_usage_error(self, bench: BenchCommand) -> None:
        assert bench("devices", "--seconds", "2").returncode == 2


class TestSelftest:
    def run(self, bench: BenchCommand, env: dict[str, str], code: int) -> dict[str, Any]:
        done = bench("devices", "selftest", "--seconds", "2.5", "--json", **env)
        assert done.returncode == code, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def test_raw_and_converted_values_and_both_methods(
        self, bench: BenchCommand, env: dict[str, str], fake_nvml: FakeNvml
    ) -> None:
        fake_nvml.change(all__energy_step_ms=20)
        found = self.run(bench, env, 0)
        assert found["passed"] is True
        first = found["devices"][0]
        assert first["device"]["uid"] == GPU_0
        power, energy = first["sensors"]
        assert (power["raw"], power["unit"], power["converted"]) == (655840.0, "mW", pytest.approx(655.84))
        assert power["averaging_window_s"] == 0.025
        assert energy["unit"] == "mJ"
        assert energy["converted"] == pytest.approx(energy["raw"] / 1000, rel=0.01)
        assert 0.01 < energy["update_period_s"] < 0.1
        assert energy["call_cost_s"] > 0
        assert first["counter_j"] == pytest.approx(655.84 * 2.5, rel=0.05)
        assert first["integral_j"] == pytest.approx(655.84 * 2.5, rel=0.01)
        assert first["poll_period_s"] >= 0.1

    def test_a_stuck_counter_fails(self, bench: BenchCommand, env: dict[str, str], fake_nvml: FakeNvml) -> None:
        fake_nvml.change(b0__energy_rate_mw=0)
        found = self.run(bench, env, 1)
        faults = {test["device"]["uid"]: test["faults"] for test in found["devices"]}
        assert faults[GPU_1] == []
        assert faults[GPU_0][0].startswith("counter_stuck")

    def test_the_vendors_tool_is_shown_beside(self, bench: BenchCommand, env: dict[str, str], tmp_path: Path) -> None:
        tools = fake_smi(tmp_path / "tools", f"{GPU_0}, 652.10, 61288\n{GPU_1}, 91.00, [N/A]\n")
        done = bench("devices", "selftest", "--seconds", "1", **env, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
        first, _, second = done.stdout.partition(GPU_1)
        assert "nvidia-smi power.draw.instant: 652.1 W, 59.9 GiB in use" in first
        assert "note" not in first.replace("note: part_time_sensor", "")
        assert "nvidia-smi power.draw.instant says 91.0 W; between 70.1 and 70.1 W were read" in second

    def test_nothing_to_test_is_a_missing_device(self, bench: BenchCommand, no_devices: dict[str, str]) -> None:
        done = bench("devices", "selftest", "--seconds", "1", **no_devices)
        assert done.returncode == 4
        assert "nothing to test" in done.stdout
        assert "fix:" in done.stdout


def fake_smi(folder: Path, rows: str, *, knows_instant: bool = True) -> Path:
    """A tool called nvidia-smi that prints `rows` for the fields it knows."""
    refuse = "*power.draw.instant*) echo 'Field \"power.draw.instant\" is not a valid field to query.'; exit 2;;"
    text = f"#!/bin/sh\ncase \"$*\" in\n{'' if knows_instant else refuse}\n*) cat <<'END'\n{rows}END\n;;\nesac\n"
    replace_text(folder / "nvidia-smi", text)
    (folder / "nvidia-smi").chmod(0o755)
    return folder


class TestTool:
    def values(self, folder: Path) -> dict[str, Any]:
        return dict(tool_values("nvidia", (), {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}))

    def test_numbers_and_missing_ones(self, tmp_path: Path) -> None:
        found = self.values(fake_smi(tmp_path, "GPU-a, 12.5, 3\nGPU-b, [Not Supported], [N/A]\n"))
        assert (found["GPU-a"].power_w, found["GPU-a"].memory_used_b) == (12.5, 3 << 20)
        assert (found["GPU-b"].power_w, found["GPU-b"].memory_used_b) == (None, None)

    def test_a_driver_that_does_not_know_the_field(self, tmp_path: Path) -> None:
        found = self.values(fake_smi(tmp_path, "GPU-a, 12.5, 3\n", knows_instant=False))
        assert found["GPU-a"].tool == "nvidia-smi power.draw"

    @pytest.mark.parametrize("rows", ["", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"])
    def test_a_tool_that_says_nothing(self, tmp_path: Path, rows: str) -> None:
        assert self.values(fake_smi(tmp_path, rows)) == {}

    def test_no_tool_and_another_vendor(self, tmp_path: Path) -> None:
        assert tool_values("nvidia", (), {"PATH": str(tmp_path)}) == {}
        assert tool_values("cpu", ()) == {}
