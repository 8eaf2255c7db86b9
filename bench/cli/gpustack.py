"""`bench gpustack`: the benchmark command that GPUStack has not, its benchmark image, and its results."""

from __future__ import annotations

import sys

import click

from bench.cli.main import LazyGroup, main

COMMANDS = {
    "benchmark": ("bench.cli.gpustack_benchmark:benchmark", "Measure one model, and show GPUStack's four columns first."),
    "runner": ("bench.cli.gpustack_runner:runner", "Do what GPUStack's benchmark image does."),
    "import": ("bench.cli.gpustack_import:import_", "Take over the benchmark results of a GPUStack server."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def gpustack() -> None:
    """Benchmarks as people around GPUStack ask for them."""


def benchmark_main() -> None:
    """The console script `gpustack-benchmark`."""
    main(["gpustack", "benchmark", *sys.argv[1:]])
