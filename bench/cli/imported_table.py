"""What other tools measured, as `bench import`, `bench gpustack import` and `bench table --imported` show it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from bench.cli.columns import show
from bench.imported import ImportedResult
from bench.printable import printable_lines
from bench.reports.imported import HEADER, imported_json, imported_notes, imported_rows
from bench.store.imported import keep


def keep_and_show(results: Path, found: Sequence[ImportedResult], *, source: str = "", as_json: bool) -> None:
    """Take results over, say how many are new (`source` comes before that), and show all. Raises: StoreError."""
    added = keep(results, found)
    if not as_json:
        click.echo(f"{source}{added} imported, {len(found) - added} known already", err=True)
    show_imported(found, as_json=as_json, added=added, known=len(found) - added)


def show_imported(found: Sequence[ImportedResult], *, as_json: bool, **counts: int) -> None:
    """A table with its notes, or one JSON object, with `counts` in it."""
    if as_json:
        click.echo(json.dumps({**counts, **imported_json(found)}, allow_nan=False))
    elif found:
        show(HEADER, imported_rows(found))
        click.echo(printable_lines("\n".join(imported_notes(found))), err=True)
