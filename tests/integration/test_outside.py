"""An engine and a vendor from another package, through entry points: the recipes of docs/extending.md, done by a stranger."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import BenchCommand

PACKAGE = '''
from bench.ports import Discovery
from bench.records import DeviceInfo, Reading, SensorInfo
from bench.runners.mock import MockRunner
import time


class StrangerRunner(MockRunner):
    """Another name for the mock engine."""

    name = "stranger"


class StrangerProbe:
    """A board that always draws 42 W."""

    name = "stranger"

    def discover(self):
        sensor = SensorInfo(api="stranger", unit="W")
        board = dict(uid="STRANGE-0", probe="stranger", vendor="stranger", name="Strange 1", index=0, scope="accelerator")
        return Discovery(devices=(DeviceInfo(power=sensor, **board),))

    def watch(self, pids):
        return Discovery()

    def sample(self, uid):
        now = time.perf_counter_ns()
        return Reading(uid=uid, before_ns=now, after_ns=now + 1, power_w=42.0, memory_used_b=1 << 30)

    def close(self):
        pass
'''


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody who has installed the stranger's package."""
    site = tmp_path / "site"
    info = site / "stranger-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "stranger.py").write_text(PACKAGE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[bench.runners]\nstranger = stranger:StrangerRunner\n\n[bench.probes]\nstranger = stranger:StrangerProbe\n",
        encoding="utf-8",
    )
    return {"PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "BENCH_PROBES": "stranger"}


def test_an_outside_engine_and_vendor_give_joules(bench: BenchCommand, outside: dict[str, str]) -> None:
    devices = json.loads(bench("devices", "--json", **outside).stdout)["devices"]
    assert [(device["uid"], device["now"]["power_w"]) for device in devices] == [("STRANGE-0", 42.0)]

    done = bench(
        *(
            "run",
            "--engine",
            "stranger",
            "--model",
            "mock",
            "--devices",
            "stranger:0",
            "--batch-size",
            "4",
            "--output-tokens",
            "16",
        ),
        *("--duration", "5s", "--warmup", "0.5s", "--idle", "0s", "--repeats", "1", "--json"),
        **outside,
    )
    trial = json.loads(done.stdout)["trials"][0]
    assert trial["case"]["engine"] == "stranger"
    tokens_per_s = trial["metrics"]["output_tok_per_s"]["value"]
    assert trial["metrics"]["j_per_output_tok"]["value"] == pytest.approx(42.0 / tokens_per_s, rel=1e-3)


def test_an_unknown_engine_lists_the_strangers_too(bench: BenchCommand, outside: dict[str, str]) -> None:
    done = bench("run", "--engine", "strangr", "--model", "m", **outside)
    assert done.returncode == 2
    assert "stranger" in done.stderr
