"""The real GPUStack from PyPI: its worker's command lines, its models over our reports, its CLI with our command in it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.exchange.gpustack_venv import gpustack_python
from tests.factories import make_event_log, make_record
from tests.gpustack.test_arguments import SAMPLES

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of an environment with the real package, and with this one for its plug-in door."""
    found = gpustack_python()
    subprocess.run([str(found), "-m", "pip", "install", "--quiet", "--editable", str(ROOT)], check=True)
    return found


def test_the_real_worker_says_what_the_samples_say_and_its_models_take_our_reports(python: Path, tmp_path: Path) -> None:
    from bench.reports.export_guidellm import guidellm_report

    report = tmp_path / "7.json"
    report.write_text(json.dumps(guidellm_report([(make_record(), make_event_log(80, 6))])), encoding="utf-8")
    script = ROOT / "tests" / "gpustack" / "real_gpustack.py"
    done = subprocess.run([str(python), str(script), str(report)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert told["arguments"] == SAMPLES
    judged = told["reports"][str(report)]
    [point] = judged["points"]
    assert (point["rate"], point["strategy_type"], point["request_total"], point["request_errored"]) == (8.0, "concurrent", 80, 1)
    assert judged["failed"] == ["connection refused"]
    assert point["inter_token_latency_mean"] == pytest.approx(20.0)
    assert point["time_to_first_token_p99"] is None  # 79 requests are too few for it


def test_the_real_command_line_has_the_benchmark(python: Path, tmp_path: Path) -> None:
    asked = [
        "benchmark",
        "--model",
        "llama2-13b",
        "--precision",
        "fp16",
        "--batch_size",
        "128",
        "--duration",
        "300s",
        "--dry-run",
    ]
    gpustack = python.with_name("gpustack")
    done = subprocess.run([str(gpustack), *asked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "llama2-13b" in done.stdout
    assert "nothing was started" in done.stdout
