"""The columns of all workers put together into one log, piece by piece: what is gathered may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.errors import LoadError
from bench.load.columns import CHUNK_COLUMNS, REQUEST_COLUMNS, Texts, column_path, parse_spill, texts_path
from bench.load.messages import last_line
from bench.records import MISSING, EventLog, IntArray

_IN_MEMORY_B = 16 << 20
"""Columns up to this size stay in memory; longer ones become files that the kernel pages in and out."""
_PIECE = 1 << 20
"""Chunks that are gathered at once."""


def read_column(folder: Path, worker: int, name: str) -> IntArray:
    """A whole column file. Raises: LoadError."""
    path = column_path(folder, worker, name)
    try:
        return np.fromfile(path, dtype=np.int64)
    except OSError as error:
        raise LoadError(f"{path.name} can't be read back: {error.strerror}") from error


def read_log(folder: Path, workers: Sequence[int]) -> EventLog:
    """The columns of all workers as one log, in order of `sent_ns`. Raises: LoadError."""
    requests = {name: _joined([read_column(folder, w, name) for w in workers]) for name in (*REQUEST_COLUMNS, "chunks")}
    order = np.argsort(requests["sent_ns"], kind="stable")
    requests = {name: column[order] for name, column in requests.items()}
    counts = requests.pop("chunks")
    ours = requests.pop("output_retokenized")
    reasons: list[str | None] = []
    errors: list[str | None] = []
    for worker in workers:
        texts = msgspec.msgpack.decode(texts_path(folder, worker).read_bytes(), type=Texts)
        reasons += texts.finish_reason
        errors += texts.error
    return EventLog(
        **requests,
        output_retokenized=ours if (ours != MISSING).any() else None,
        **_chunks(folder, workers, requests["worker"], counts),
        finish_reason=tuple(reasons[i] for i in order),
        error=tuple(errors[i] for i in order),
    )


def _joined(parts: list[IntArray]) -> IntArray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class _Column:
    """A column that grows: in memory, or in a file that is gone from the folder as soon as it is mapped."""

    def __init__(self, path: Path, total: int) -> None:
        self._path = path
        self._file = path.open("wb") if 8 * total > _IN_MEMORY_B else None
        self._pieces: list[IntArray] = []

    def append(self, piece: IntArray) -> None:
        if self._file is None:
            self._pieces.append(piece)
        else:
            piece.tofile(self._file)

    def close(self) -> IntArray:
        """All of it."""
        if self._file is None:
            return _joined(self._pieces)
        self._file.close()
        mapped = np.asarray(np.memmap(self._path, dtype=np.int64, mode="r"))
        self._path.unlink()
        return mapped


def _chunks(folder: Path, workers: Sequence[int], sender: IntArray, counts: IntArray) -> dict[str, IntArray]:
    """The chunk columns in the order of the requests: `sender` is the worker of each, `counts` its chunks.

    A worker's file is in the order of its own requests, so that each piece takes the next stretch of every file.
    """
    total = int(counts.sum())
    columns = {name: _Column(folder / f"log.{name}.i64", total) for name in ("chunk_request", *CHUNK_COLUMNS)}
    try:
        with ExitStack() as stack:
            files = {
                name: [stack.enter_context(column_path(folder, w, name).open("rb")) for w in workers] for name in CHUNK_COLUMNS
            }
            for begin, end in _stretches(counts):
                taken = counts[begin:end]
                owner = np.repeat(sender[begin:end], taken)
                columns["chunk_request"].append(np.repeat(np.arange(begin, end, dtype=np.int64), taken))
                for name, piece in _gathered(files, [owner == w for w in workers]):
                    columns[name].append(piece)
        return {name: column.close() for name, column in columns.items()}
    except OSError as error:
        raise LoadError(f"events can't be put together: {error.strerror}", hint="is the disk full?") from error


def _stretches(counts: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of requests with about `_PIECE` chunks each, at least one request."""
    ends = np.cumsum(counts)
    begin, before = 0, 0
    while begin < len(counts):
        end = max(begin + 1, int(np.searchsorted(ends, before + _PIECE, side="right")))
        yield begin, end
        begin, before = end, int(ends[end - 1])


def _gathered(files: Mapping[str, Sequence[IO[bytes]]], masks: list[NDArray[np.bool_]]) -> Iterator[tuple[str, IntArray]]:
    for name, sources in files.items():
        piece = np.empty(len(masks[0]), dtype=np.int64)
        for mask, source in zip(masks, sources, strict=True):
            wanted = int(mask.sum())
            found = np.fromfile(source, np.int64, wanted)
            if len(found) != wanted:
                raise LoadError(f"a {name} column ends too soon: {wanted - len(found)} of {wanted} values are missing")
            piece[mask] = found
        yield name, piece


def recover(spill_dir: Path) -> EventLog:
    """What a run that was killed has left in `spill_dir`, as a log; empty where nothing is left.

    Requests that had no end yet are `CANCELLED`, with `closed_ns` missing. The raw files are left as they are.

    Raises: LoadError for files that can't be read, or that hold what no worker writes; OSError for a folder that can't be used.
    """
    try:
        workers = sorted(int(path.name.split("-")[1].split(".")[0]) for path in spill_dir.glob("worker-*.spill"))
        for worker in workers:
            parse_spill(spill_dir, worker)
        return read_log(spill_dir, workers)
    except (LoadError, OSError):
        raise
    except Exception as error:  # a border: what a dying machine left on disk may be wrong in any way
        raise LoadError(f"raw events can't be read back: {type(error).__name__}: {last_line(error)}") from error
    finally:
        for path in [*spill_dir.glob("worker-*.i64"), *spill_dir.glob("worker-*.msgpack"), *spill_dir.glob("log.*.i64")]:
            path.unlink(missing_ok=True)
