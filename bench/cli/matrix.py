"""`bench matrix`: a suite as jobs for GitHub's `strategy.matrix`, and the pairs that the gate asks for as such jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from bench import codec, suite
from bench.cli.columns import plain_lines
from bench.cli.loading import pinned
from bench.cli.options import a_day, duration_s, results_option
from bench.cli.results import current_lab
from bench.errors import EXIT_OK, UsageError
from bench.image_name import check_pinned
from bench.lab.matrix import JOB_MINUTES, MOST_JOBS, Job, Wishes, jobs_of, place_of
from bench.printable import printable
from bench.suite import Suite


@click.command()
@click.argument("suite_ref", metavar="SUITE")
@click.option("--on", "places", default="cpu", show_default=True, metavar="VENDOR[/DEVICE],...", help="Hosts, as labelled.")
@click.option("--runner", metavar="LABEL[,LABEL]", help="Runner labels instead: ubuntu-24.04.")
@click.option("--image", default="", metavar="NAME:TAG", help="Run jobs in this container image.")
@click.option("--job-time", help=f"Cut a job that is expected to take longer [default: {JOB_MINUTES:g}m].")
@click.option("--most-jobs", type=click.IntRange(1, MOST_JOBS), default=MOST_JOBS, show_default=True, help="Above, longer ones.")
@click.option("--confirm", is_flag=True, help="Only pairs: what bench gate wants measured in turns, where it was measured.")
@click.option(
    "--night",
    callback=a_day,
    metavar="YYYY-MM-DD",
    help="With --confirm: the day (UTC) to judge [default: that of the last trial].",
)
@click.option("--json", "as_json", is_flag=True, help='One line for strategy.matrix: {"include": [job, ...]}.')
@results_option
def matrix(
    *,
    suite_ref: str,
    places: str,
    runner: str | None,
    image: str,
    job_time: str | None,
    most_jobs: int,
    confirm: bool,
    night: str | None,
    as_json: bool,
    results: Path,
) -> int:
    """Cut SUITE into jobs, one a kind of host and engine, for a CI matrix.

    \b
    bench matrix nightly --on nvidia/h100,nvidia/l40s --json
    bench matrix smoke --on cpu --runner ubuntu-24.04
    bench matrix nightly --on nvidia/h100 --confirm
    """
    if night is not None and not confirm:
        raise UsageError("--night without --confirm", hint="it says which night's triggers are to be confirmed")
    chosen = pinned(suite.load(suite_ref))
    wishes = Wishes(
        places=tuple(dict.fromkeys(place_of(text.strip()) for text in places.split(","))),
        runner=tuple(label.strip() for label in runner.split(",") if label.strip()) if runner else (),
        image=_pinned_image(image),
        job_minutes=JOB_MINUTES if job_time is None else duration_s("--job-time", job_time) / 60.0,
        most_jobs=most_jobs,
    )
    jobs = jobs_of(chosen, suite_ref, wishes)
    if confirm:
        jobs = _pairs(results, night, jobs, chosen)
    if as_json:
        click.echo(json.dumps({"include": [codec.to_builtins(job) for job in jobs]}, ensure_ascii=True))
    else:
        click.echo(_text(jobs))
    return EXIT_OK


def _pairs(results: Path, night: str | None, jobs: Sequence[Job], chosen: Suite) -> list[Job]:
    from bench.lab.gate import histories, last_night, verdicts
    from bench.lab.gate_pairs import pair_jobs
    from bench.store.findings import read_accepted

    with current_lab(results) as lab:
        tonight = night or last_night(lab)
        if tonight is None:
            return []
        found = verdicts(lab, histories(lab, read_accepted(results), until=tonight), tonight)
        made = pair_jobs(lab, found, jobs, chosen)
    for note in made.notes:
        click.echo(f"note: {printable(note)}", err=True)
    return list(made.jobs)


def _pinned_image(image: str) -> str:
    """An image that is the same one tomorrow, or none. Raises: UsageError."""
    try:
        if image:
            check_pinned(image)
    except ValueError as error:
        raise UsageError(f"--image: {error}") from error
    return image


def _text(jobs: Sequence[Job]) -> str:
    """A line a job, and what all of them take."""
    rows = []
    for job in jobs:
        cases = str(len(job.cases.splitlines())) + (" in pairs" if job.pairs else "")
        rows.append([job.id, " ".join(job.runs_on), cases, f"{job.minutes} min", f"{job.limit_minutes} min"])
    total = sum(job.minutes for job in jobs)
    lines = plain_lines(("job", "runs on", "cases", "expected", "limit"), rows)
    return "\n".join([*lines, f"{len(jobs)} job{'s' * (len(jobs) != 1)}, {total} minutes of machines"])
