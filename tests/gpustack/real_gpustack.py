"""Runs under the Python of an installed `gpustack`: what its own code says, as one JSON object on stdout.

`arguments`: the command lines that its worker gives to a benchmark container, one a kind of benchmark. `reports`: what its own
models make of each report file named on the command line; the text of the error where they refuse it.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

from gpustack.schemas.benchmark import Benchmark, BenchmarkResultCreate
from gpustack.worker.benchmark.runner import BenchmarkRunner
from gpustack.worker.schemas.benchmark_runner import GenerativeBenchmarksReport

RANDOM = {"dataset_name": "Random", "dataset_input_tokens": 128, "dataset_output_tokens": 64, "dataset_seed": 7}
SLOS = {"slo_avg_ttft_ms": 500.0, "slo_p95_tpot_ms": 50.0, "slo_p99_latency_ms": 9000.0}
KINDS: dict[str, dict[str, Any]] = {
    "concurrency": {"load_type": "concurrency", "request_rate": 8, "total_requests": 100, **RANDOM},
    "fixed_rate": {"load_type": "fixed_rate", "request_rate": 5, "max_seconds": 60.0, "warmup": 0.1, "cooldown": 0.05, **RANDOM},
    "stages": {"load_type": "concurrency", "stages": [{"rate": 2, "max_requests": 50}, {"rate": 4, "max_seconds": 30}], **RANDOM},
    "throughput": {"load_type": "concurrency", "auto_tune": True, "upper_bound": 256.0, "max_points": 6, **RANDOM},
    "slo": {"load_type": "fixed_rate", "auto_tune": True, "max_total_seconds": 900.0, **SLOS, **RANDOM},
    "sharegpt": {
        "load_type": "concurrency",
        "request_rate": 4,
        "total_requests": 20,
        "dataset_name": "ShareGPT",
        "dataset_input_max": 900,
    },
    "limits": {
        "load_type": "concurrency",
        "request_rate": 4,
        "total_requests": 20,
        "max_errors": 3,
        "max_error_rate": 0.1,
        "stop_on_saturation": True,
        "dataset_seed_increment": False,
        "dataset_input_stdev": 16,
        "prefix_buckets": [{"prefix_tokens": 32, "prefix_count": 2, "bucket_weight": 100}],
        **RANDOM,
    },
}


def arguments(kind: str, *, https: bool) -> list[str]:
    """The real worker's command line, of a benchmark with the settings of `kind`."""
    benchmark = Benchmark(id=7, name=kind, model_instance_name="m-1", model_name="m", **KINDS[kind])
    runner: Any = object.__new__(BenchmarkRunner)  # its own beginning asks a server
    runner._benchmark = benchmark
    runner._model_path, runner._model_endpoint = "/models/m", "http://127.0.0.1:8000"
    runner._benchmark_dir, runner._model_backend_parameters = "/benchmarks", ["--trust-remote-code"]
    runner._api_key, runner._route_name = "TOKEN", None
    runner._api_url = f"{'https' if https else 'http'}://server/v2/benchmarks/7/state"
    runner._progress_insecure_skip_tls_verify = https
    runner._config = SimpleNamespace()
    built: list[str] = runner._build_command_args(with_ca_cert=https)
    return built


def judged(path: str) -> dict[str, Any]:
    """What GPUStack keeps of a report file."""
    try:
        report = GenerativeBenchmarksReport.load_file(path)
        points = [BenchmarkResultCreate.model_validate(point) for point in report.to_results(input_tokens=128)]
        metrics = report.to_metrics()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    assert metrics is not None
    return {
        "points": [point.model_dump(exclude={"raw_metrics"}) for point in points],
        "metrics": metrics.model_dump(exclude={"raw_metrics"}),
        "failed": [sample.info.error for one in report.benchmarks for sample in one.requests_truncated.errored],
    }


if __name__ == "__main__":
    told = {kind: arguments(kind, https=kind == "limits") for kind in KINDS}
    json.dump({"arguments": told, "reports": {path: judged(path) for path in sys.argv[1:]}}, sys.stdout, indent=1)
