"""Event-log columns on disk: written request by request, read back without copying, merged over workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from bench.errors import LoadError
from bench.load.parse import ParsedRequest, parse_request
from bench.load.protocols import wire_protocol
from bench.load.spill import RawRequest, SpillFile
from bench.records import MISSING, EventLog, IntArray, Outcome

REQUEST_COLUMNS = (
    "scheduled_ns",
    "sent_ns",
    "opened_ns",
    "closed_ns",
    "outcome",
    "http_status",
    "input_requested",
    "output_requested",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "worker",
)
CHUNK_COLUMNS = ("chunk_ns", "chunk_kind", "chunk_tokens", "chunk_bytes")
_IN_MEMORY_B = 64 << 20
"""Columns up to this size are read into memory; longer ones stay files that the kernel pages in and out."""


class _Texts(msgspec.Struct):
    finish_reason: list[str | None]
    error: list[str | None]


def spill_path(folder: Path, worker: int) -> Path:
    """Raw events of one worker."""
    return folder / f"worker-{worker}.spill"


def column_path(folder: Path, worker: int, name: str) -> Path:
    """One column of one worker: int64, native order."""
    return folder / f"worker-{worker}.{name}.i64"


def remove_files(folder: Path) -> None:
    """Delete all that workers have left in `folder`."""
    for path in folder.glob("worker-*.*"):
        path.unlink(missing_ok=True)


def strike_out(text: str, secret: str | None) -> str:
    """`text` without the key."""
    return text.replace(secret, "***") if secret else text


def parse_spill(folder: Path, worker: int, secret: str | None = None) -> None:
    """Parse one worker's raw events into column files beside it. Memory stays at one request and its blocks' index.

    `secret` is struck out of error texts: some servers quote the key that they refuse.
    """
    spill = SpillFile(spill_path(folder, worker))
    try:
        _Parse(folder, worker, spill, secret).run()
    finally:
        spill.close()


class _Parse:
    """One pass over a spill file."""

    def __init__(self, folder: Path, worker: int, spill: SpillFile, secret: str | None) -> None:
        self._secret = secret
        self._folder, self._worker, self._spill = folder, worker, spill
        self._protocol = wire_protocol(spill.meta.protocol) if spill.meta is not None else None
        self._rows: list[tuple[int, ...]] = []
        self._texts = _Texts([], [])

    def run(self) -> None:
        files = {name: column_path(self._folder, self._worker, name).open("wb", buffering=1 << 20) for name in CHUNK_COLUMNS}
        counts: list[int] = []
        try:
            for raw in sorted(self._spill.requests.values(), key=lambda raw: raw.sent_ns):
                counts.append(self._request(raw, files))  # noqa: PERF401  a generator would hide that this writes
        finally:
            for file in files.values():
                file.close()
        table = np.array(self._rows, dtype=np.int64).reshape(-1, len(REQUEST_COLUMNS))
        for column, name in enumerate(REQUEST_COLUMNS):
            table[:, column].tofile(column_path(self._folder, self._worker, name))
        np.array(counts, dtype=np.int64).tofile(column_path(self._folder, self._worker, "chunks"))
        texts = msgspec.msgpack.encode(self._texts)
        (self._folder / f"worker-{self._worker}.texts.msgpack").write_bytes(texts)

    def _request(self, raw: RawRequest, files: Mapping[str, IO[bytes]]) -> int:
        assert self._protocol is not None
        body, stamps_ns, ends_b = self._spill.body(raw)
        parsed = parse_request(
            self._protocol,
            body,
            stamps_ns,
            ends_b,
            end=raw.end,
            status=raw.status,
            error=raw.error,
            asked_tokens=raw.output_requested,
        )
        for name, file in files.items():
            file.write(getattr(parsed, name).tobytes())
        self._rows.append(self._row(raw, parsed))
        self._texts.finish_reason.append(parsed.finish_reason)
        error = parsed.error if parsed.outcome is not Outcome.OK else None
        self._texts.error.append(strike_out(error, self._secret) if error else None)
        return len(parsed.chunk_ns)

    def _row(self, raw: RawRequest, parsed: ParsedRequest) -> tuple[int, ...]:
        usage = parsed.usage
        prompt = usage.prompt_tokens_details if usage else None
        completion = usage.completion_tokens_details if usage else None
        counts = (
            usage.prompt_tokens if usage else None,
            usage.completion_tokens if usage else None,
            prompt.cached_tokens if prompt else None,
            completion.reasoning_tokens if completion else None,
        )
        return (
            raw.scheduled_ns,
            raw.sent_ns,
            raw.opened_ns,
            raw.closed_ns,
            int(parsed.outcome),
            raw.status,
            raw.input_requested,
            raw.output_requested,
            *(MISSING if count is None else count for count in counts),
            self._worker,
        )


def read_column(folder: Path, worker: int, name: str) -> IntArray:
    """A column file; large ones are mapped, and stay readable after the file is removed. Raises: LoadError."""
    path = column_path(folder, worker, name)
    try:
        size_b = path.stat().st_size
        if size_b <= _IN_MEMORY_B:
            return np.fromfile(path, dtype=np.int64)
        return np.asarray(np.memmap(path, dtype=np.int64, mode="r"))
    except OSError as error:
        raise LoadError(f"{path.name} can't be read back: {error.strerror}") from error


def read_log(folder: Path, workers: list[int]) -> EventLog:
    """The columns of all workers as one log, in order of `sent_ns`. Raises: LoadError."""
    parts = {name: [read_column(folder, w, name) for w in workers] for name in (*REQUEST_COLUMNS, *CHUNK_COLUMNS, "chunks")}
    texts = [msgspec.msgpack.decode((folder / f"worker-{w}.texts.msgpack").read_bytes(), type=_Texts) for w in workers]
    sent_ns = _joined(parts["sent_ns"])
    order = np.argsort(sent_ns, kind="stable")
    counts = _joined(parts["chunks"])[order]
    pick = None if len(workers) == 1 else _chunk_order(_joined(parts["chunks"]), order)
    chunks = {name: _joined(parts[name]) if pick is None else _joined(parts[name])[pick] for name in CHUNK_COLUMNS}
    reasons = [text for part in texts for text in part.finish_reason]
    errors = [text for part in texts for text in part.error]
    return EventLog(
        **{name: _joined(parts[name])[order] for name in REQUEST_COLUMNS},
        **chunks,
        chunk_request=np.repeat(np.arange(len(order), dtype=np.int64), counts),
        finish_reason=tuple(reasons[i] for i in order),
        error=tuple(errors[i] for i in order),
    )


def _joined(parts: list[IntArray]) -> IntArray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _chunk_order(counts: IntArray, order: IntArray) -> IntArray:
    """Where each chunk of the merged log lies in the workers' columns laid end to end."""
    starts = np.cumsum(counts) - counts
    taken = counts[order]
    first = np.repeat(starts[order] - (np.cumsum(taken) - taken), taken)
    return np.asarray(first + np.arange(len(first), dtype=np.int64))


def recover(spill_dir: Path) -> EventLog:
    """What a run that was killed has left in `spill_dir`, as a log; empty where nothing is left.

    Requests that had no end yet are `CANCELLED`, with `closed_ns` missing. The raw files are left as they are.

    Raises: LoadError for files that can't be read.
    """
    workers = sorted(int(path.name.split("-")[1].split(".")[0]) for path in spill_dir.glob("worker-*.spill"))
    try:
        for worker in workers:
            parse_spill(spill_dir, worker)
        return read_log(spill_dir, workers)
    finally:
        for path in [*spill_dir.glob("worker-*.i64"), *spill_dir.glob("worker-*.msgpack")]:
            path.unlink(missing_ok=True)
