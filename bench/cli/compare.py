"""`bench compare`: two selections of results, metric by metric."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bench.cli.options import results_option
from bench.cli.results import current_lab
from bench.errors import EXIT_FAILED, EXIT_OK, EXIT_REGRESSION, UsageError


@click.command()
@click.argument("base")
@click.argument("cand")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: pairs[].")
@click.option("--markdown", "as_markdown", is_flag=True, help="Markdown tables.")
@results_option
def compare(*, base: str, cand: str, as_json: bool, as_markdown: bool, results: Path) -> int:
    """Compare results: the ratio CAND / BASE of each metric with its 95% interval, and whether that shows a difference.

    BASE and CAND each are `latest`, a run's id (its beginning will do), an engine version, a commit (the engine's build), a
    device, a label NAME=VALUE, or an SQL condition on trials_wide. A prefix says which is meant: run: version: commit: device:
    label: sql: What another tool measured is imported:ID; it is shown beside ours, and never comparable.

    \b
    bench compare 20261201T0 latest
    bench compare version:0.11.0 version:0.12.0
    bench compare "engine = 'vllm' AND batch_size = 8" "engine = 'sglang' AND batch_size = 8"

    Exit status 3 where the same series got worse, 1 where nothing could be compared.
    """
    from bench.lab.compare import compare as compare_sides
    from bench.reports.compare import compare_json, compare_markdown, compare_text

    if as_json and as_markdown:
        raise UsageError("--json and --markdown exclude each other")
    with current_lab(results) as lab:
        found = compare_sides(lab, base, cand)
    if as_json:
        click.echo(json.dumps(compare_json(found), allow_nan=False))
    else:
        click.echo(compare_markdown(found) if as_markdown else compare_text(found))
    if any(one.regressions for one in found):
        return EXIT_REGRESSION
    return EXIT_OK if any(metric.ratio for one in found for metric in one.metrics) else EXIT_FAILED
