"""`lab.duckdb`: a cache of all shards that SQL can be asked of.

How many processes share it: the file named `lab.duckdb` is never opened for writing. Whoever writes takes `.lab.lock`, copies
the file, changes the copy in one transaction, closes it and renames it over the old one. Readers therefore open a file that
is complete and that nobody changes under them: they need no lock, never wait, and a reader that is open keeps the state that
it began with. kill -9 of a writer leaves the old file and a copy that the next writer removes. There is never a write-ahead
log beside `lab.duckdb`, nor an ALTER: another schema is another file, built from the shards.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.errors import StoreError
from bench.store import layout, locks, schema, seen
from bench.store.database import attach, close_copy, memory, open_copy, remove
from bench.store.ingest import Ingest, IngestReport, Progress, run_of
from bench.store.layout import write_error
from bench.store.work import clear_work

if TYPE_CHECKING:
    import duckdb

DATABASE = "lab.duckdb"
LOCK = ".lab.lock"
_COPY = ".lab.duckdb.new"


def _to_stderr(message: str) -> None:
    sys.stderr.write(message + "\n")


class Lab:
    """The cache of one results folder. `cache` is where the database lies, the results folder itself by default."""

    def __init__(self, results: Path, *, cache: Path | None = None, on_wait: Callable[[str], None] = _to_stderr) -> None:
        self._results = results
        self._cache = cache or results
        self._on_wait = on_wait
        self._open: tuple[object, duckdb.DuckDBPyConnection] | None = None

    @classmethod
    @contextmanager
    def for_reading(cls, results: Path, on_wait: Callable[[str], None] = _to_stderr) -> Iterator[Self]:
        """A lab that can be brought up to date: where `results` can't be written, its database is a temporary one."""
        if os.access(results, os.W_OK):
            yield cls(results, on_wait=on_wait)
            return
        with tempfile.TemporaryDirectory(prefix="bench-lab-") as folder:
            yield cls(results, cache=Path(folder), on_wait=on_wait)

    @property
    def results(self) -> Path:
        return self._results

    @property
    def database(self) -> Path:
        return self._cache / DATABASE

    def ingest(self, progress: Progress | None = None, *, verify: bool = False) -> IngestReport:
        """Bring the database in line with the shards. A shard whose `trial.json` is unchanged is not read again; `verify`
        reads all of them with their siblings. Bad shards go to the table `rejected` and stop nothing.

        Raises: StoreError (the folder can't be written, no space).
        """
        clear_work(self._results)
        with self._writing():
            return self._ingest(seen.look(self._results), None, progress, verify=verify)

    def refresh(self, progress: Progress | None = None) -> IngestReport:
        """As `ingest`, for who only reads: of all runs only those are looked at to which a shard was added, or from which one was
        removed, since the last one. A shard that was changed in its place, which none ever should be, is noticed by `ingest`
        only. Raises: StoreError.
        """
        if self._changed_runs(seen.look(self._results)) == []:
            return IngestReport()
        clear_work(self._results)
        with self._writing():
            now = seen.look(self._results)  # another may have been first
            return self._ingest(now, self._changed_runs(now), progress, verify=False)

    def _changed_runs(self, now: seen.Seen) -> list[str] | None:
        return seen.changed_runs(self._cache, self.database, now)

    def _ingest(self, now: seen.Seen, runs: list[str] | None, progress: Progress | None, *, verify: bool) -> IngestReport:
        import duckdb

        base = self._base()
        try:
            return self._pass(base, now, runs, progress, verify=verify)
        except duckdb.Error as error:
            if base is None:
                raise write_error(self.database, error) from error
        remove(self._cache / _COPY)
        try:  # it opened, but is damaged inside: build another
            return self._pass(None, now, None, progress, verify=verify)
        except duckdb.Error as error:
            raise write_error(self.database, error) from error

    def _pass(
        self, base: Path | None, now: seen.Seen, runs: list[str] | None, progress: Progress | None, *, verify: bool
    ) -> IngestReport:
        """One pass over `runs`, or where that is None or there is no database over all, which were seen at `now`."""
        one = Ingest(self._results, base, self._cache / _COPY, runs if base else None, verify=verify)
        report = one.run(self._publish, progress)
        seen.keep(self._cache, self.database, now, {run_of(rejection.shard) for rejection in report.rejected})
        return report

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection in which the database, as it is now, is attached read-only as `lab` and is the default, and which reaches
        no file outside the shards. While the database stays the same, another one costs next to nothing. Raises: StoreError.
        """
        found = self._identity()
        if self._open is None or self._open[0] != found:
            self._open = found, self._fenced()
        con = self._open[1].cursor()
        con.execute("USE lab")
        return con

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            stat = self.database.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _fenced(self) -> duckdb.DuckDBPyConnection:
        con = memory()
        attach(con, self.database, read_only=True)
        inside = str(layout.shards_dir(self._results.absolute())).replace("'", "''")
        con.execute(f"SET allowed_directories = ['{inside}/']")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        return con

    @contextmanager
    def changing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection whose changes replace the database when the block ends well. Raises: StoreError."""
        with self._writing():
            copy = self._cache / _COPY
            con = open_copy(self._base(), copy)
            try:
                con.execute("USE lab")
                yield con
                con.execute("USE memory")
                close_copy(con)
            finally:
                con.close()
            self._publish(copy)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        import duckdb

        with locks.exclusive(self._cache / LOCK, self._on_wait):
            try:
                remove(self._cache / _COPY)
                yield
            except (OSError, duckdb.IOException, duckdb.TransactionException) as error:
                raise write_error(self.database, error) from error
            finally:
                remove(self._cache / _COPY)

    def _base(self) -> Path | None:
        """The present database, or None where there is none, none that opens, or one of another schema."""
        import duckdb

        if not self.database.exists():
            return None
        try:
            with memory() as con:
                attach(con, self.database, read_only=True)
                found = con.execute("SELECT schema_tag FROM lab.meta").fetchall()
        except (duckdb.Error, StoreError):
            return None
        return self.database if found == [(schema.SCHEMA_TAG,)] else None

    def _publish(self, copy: Path) -> None:
        layout.sync(copy)
        self.database.with_name(DATABASE + ".wal").unlink(missing_ok=True)  # of someone who opened it with another tool
        copy.replace(self.database)
        layout.sync(self._cache)
