"""Runs under the Python of an installed `gpustack`: its models read a report, and the server gets what they made of it.

python take_in.py URL KEY BENCHMARK_ID REPORT
"""

from __future__ import annotations

import sys

import httpx
from gpustack.worker.schemas.benchmark_runner import GenerativeBenchmarksReport


def take_in(url: str, key: str, number: str, path: str) -> None:
    """Post points and metrics. Raises: httpx.HTTPStatusError where the server refuses them."""
    report = GenerativeBenchmarksReport.load_file(path)
    metrics = report.to_metrics()
    assert metrics is not None
    bodies = {"results": report.to_results(input_tokens=16), "metrics": metrics.model_dump(mode="json")}
    for what, body in bodies.items():
        headers = {"Authorization": f"Bearer {key}"}
        httpx.post(f"{url}/v2/benchmarks/{number}/{what}", json=body, headers=headers).raise_for_status()


if __name__ == "__main__":
    take_in(*sys.argv[1:])
