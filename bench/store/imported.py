"""Results of other tools: `imported/<import_id>.json` in a results folder, and the tables in which SQL finds them.

They are in no table of trials: what is compared, pooled or gated never meets them by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import codec
from bench.errors import StoreError
from bench.imported import ImportedResult
from bench.store import layout
from bench.store.database import temp_table
from bench.store.dates import check_moment
from bench.whole_file import write_whole

if TYPE_CHECKING:
    import duckdb

FOLDER = "imported"
IMPORT_TABLES = ("imported", "imported_metrics")
_COLUMNS = {
    "imported": {
        "import_id": "VARCHAR",
        "source": "VARCHAR",
        "tool": "VARCHAR",
        "tool_version": "VARCHAR",
        "file": "VARCHAR",
        "file_sha256": "VARCHAR",
        "place": "BIGINT",
        "imported_at": "TIMESTAMP",
        "started_at": "VARCHAR",
        "model": "VARCHAR",
        "engine": "VARCHAR",
        "engine_version": "VARCHAR",
        "device": "VARCHAR",
        "load": "VARCHAR",
        "batch_size": "DOUBLE",
        "request_rate": "DOUBLE",
        "num_prompts": "BIGINT",
        "input_tokens": "DOUBLE",
        "output_tokens": "DOUBLE",
        "requests_ok": "BIGINT",
        "requests_failed": "BIGINT",
        "window_s": "DOUBLE",
        "notes": "VARCHAR",
    },
    "imported_metrics": {
        "import_id": "VARCHAR",
        "name": "VARCHAR",
        "unit": "VARCHAR",
        "key": "VARCHAR",
        "differs": "VARCHAR",
        "value": "DOUBLE",
        "mean": "DOUBLE",
        "p50": "DOUBLE",
        "p90": "DOUBLE",
        "p99": "DOUBLE",
        "n": "BIGINT",
        "reason": "VARCHAR",
    },
}


def keep(results: Path, found: Sequence[ImportedResult]) -> int:
    """Write down what is not there yet; returns how many that were. Raises: StoreError."""
    folder = results / FOLDER
    added = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            home = folder / f"{one.import_id}.json"
            if not home.exists():
                write_whole(home, codec.encode_pretty(one))
                added += 1
        layout.sync(folder)
    except OSError as error:
        raise layout.write_error(folder, error) from error
    return added


def imported(results: Path) -> list[ImportedResult]:
    """All that were imported into `results`, in the order in which that happened. Raises: StoreError (a damaged file)."""
    try:
        files = sorted(_files(results))
    except OSError as error:
        raise StoreError(f"{results / FOLDER} can't be read: {error.strerror}") from error
    return sorted(map(_read, files), key=lambda one: (one.imported_at, one.file, one.place))


def count(results: Path) -> int:
    """How many there are, without reading them."""
    return len(_files(results))


def import_tables(con: duckdb.DuckDBPyConnection, results: Path) -> None:
    """`imported` and `imported_metrics` for one connection. Raises: StoreError."""
    found = imported(results)
    rows: dict[str, list[dict[str, Any]]] = {
        "imported": [codec.to_builtins(one) | {"notes": "; ".join(one.notes) or None} for one in found],
        "imported_metrics": [
            {"import_id": one.import_id, **codec.to_builtins(metric)} for one in found for metric in one.metrics
        ],
    }
    for name, columns in _COLUMNS.items():
        temp_table(con, name, columns, rows[name])


def _files(results: Path) -> list[Path]:
    return [path for path in (results / FOLDER).glob("*.json") if not path.name.startswith(".")]


def _read(path: Path) -> ImportedResult:
    try:
        found = codec.decode(layout.read_plain(path), ImportedResult)
        check_moment(found.imported_at)
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}", hint="mend it or move it away") from error
    except ValueError as error:
        raise StoreError(f"{path} is no imported result: {error}", hint="remove it, and import its file again") from error
    return found
