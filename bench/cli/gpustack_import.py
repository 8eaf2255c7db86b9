"""`bench gpustack import`: what a GPUStack server has measured, beside our own results and never among them."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.imported_table import keep_and_show
from bench.cli.options import results_option
from bench.errors import EXIT_OK
from bench.lab.gpustack.server import GpuStackServer


@click.command("import")
@click.argument("url", metavar="URL")
@click.option(
    "--id", "numbers", type=click.IntRange(min=1), multiple=True, help="Only this benchmark; repeatable [default: all]."
)
@click.option("--api-key-env", default="GPUSTACK_API_KEY", show_default=True, metavar="NAME", help="Variable with the API key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: added, known, imported[].")
@results_option
def import_(*, url: str, numbers: tuple[int, ...], api_key_env: str, as_json: bool, results: Path) -> int:
    """Take over the benchmark results of the GPUStack server at URL: each point of each benchmark.

    They are shown by `bench table --imported` and in the SQL tables imported and imported_metrics. What was imported before
    changes nothing. GPUStack measures neither power nor energy.
    """
    server = GpuStackServer(url, api_key_env)
    chosen = [server.benchmark(number) for number in numbers] if numbers else list(server.benchmarks())
    found = [one for benchmark in chosen for one in server.results(benchmark)]
    keep_and_show(results, found, source=f"{len(chosen)} benchmarks: ", as_json=as_json)
    return EXIT_OK
