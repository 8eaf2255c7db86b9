"""`bench selfcheck`: what this machine's client can be trusted with."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bench import __version__, codec
from bench.cli.options import NumberRange, results_option
from bench.lab import selfcheck as lab
from bench.session.host import host_info
from bench.session.interrupts import Interrupts

_HEADER = "client   streams  chunks/s  TTFT p99    true   ICL p99    true  us/chunk  verdict"


@click.command()
@click.option("--seconds", type=NumberRange(min=0, min_open=True), default=5.0, show_default=True, help="Window of each rung.")
@click.option("--streams", type=int, multiple=True, help="Try only these; repeatable [default: a ladder from 30 to 4000].")
@click.option("--no-reference", is_flag=True, help="Leave out the plain aiohttp and httpx clients.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@results_option
def selfcheck(seconds: float, streams: tuple[int, ...], no_reference: bool, as_json: bool, results: Path) -> int:
    """Find the highest rate of streaming that this machine's client follows with a true p99.

    Runs the client against the mock engine, which tells what it really sent. Leave the machine alone meanwhile. The result is
    kept in the results folder, so that later runs can say how near they came to it.
    """
    click.echo(_HEADER, err=as_json)

    def say(rung: lab.Rung) -> None:
        click.echo(_line(rung), err=as_json)

    ladder = tuple(sorted(streams)) or lab.LADDER
    with Interrupts():  # an ordinary exception, so that the mock engine and its folder go too
        rungs = tuple(lab.climb(seconds, say, ladder=ladder))
        middle = next((rung.streams for rung in rungs if rung.streams >= 200), rungs[-1].streams)
        plain = () if no_reference else tuple(lab.references(middle, seconds, say))
    check = lab.summed(rungs, plain, host_id=host_info(()).host_id, bench_version=__version__, cores=os.cpu_count() or 1)
    lab.save(results, check)
    if as_json:
        click.echo(codec.encode(check))
    else:
        click.echo(_verdict(check))
    return 0 if check.limit_chunks_per_s else 1


def _line(rung: lab.Rung) -> str:
    numbers = (rung.ttft_p99_ms, rung.true_ttft_p99_ms, rung.icl_p99_ms, rung.true_icl_p99_ms, rung.cpu_us_per_chunk)
    a, b, c, d, cpu = ("-" if number is None else f"{number:.1f}" for number in numbers)
    return f"{rung.client:8} {rung.streams:7} {rung.chunks_per_s:9.0f} {a:>9} {b:>7} {c:>9} {d:>7} {cpu:>9}  {rung.verdict}"


def _verdict(check: lab.SelfCheck) -> str:
    if all(rung.verdict == "too_few" for rung in check.rungs):
        return "no rung had the 100 requests that a p99 needs: raise --seconds or --streams"
    if check.limit_chunks_per_s is None:
        return "no rung gave a true p99: stop what else runs here and try again"
    limit = f"true up to {check.limit_streams} streams, {check.limit_chunks_per_s:.0f} chunks/s on {check.cores} cores"
    why = {
        "server_saturated": "; above that the mock engine was late, so the client's own limit may be higher",
        "client_saturated": "; above that the client says that it is saturated: more cores, or fewer streams",
        "off": "; above that its p99 was off",
    }
    return limit + why.get(check.limited_by or "", "")
