"""Event-log columns of one worker on disk, written request by request out of what it has spilled."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from bench.load.parse import ParsedRequest, parse_request
from bench.load.protocols import wire_protocol
from bench.load.spill import RawRequest, SpillFile
from bench.records import MISSING, Outcome

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


class Texts(msgspec.Struct):
    """The columns that hold text, beside the files of numbers."""

    finish_reason: list[str | None]
    error: list[str | None]


def spill_path(folder: Path, worker: int) -> Path:
    """Raw events of one worker."""
    return folder / f"worker-{worker}.spill"


def column_path(folder: Path, worker: int, name: str) -> Path:
    """One column of one worker: int64, native order."""
    return folder / f"worker-{worker}.{name}.i64"


def texts_path(folder: Path, worker: int) -> Path:
    """The text columns of one worker."""
    return folder / f"worker-{worker}.texts.msgpack"


def remove_files(folder: Path) -> None:
    """Delete all that workers have left in `folder`."""
    for path in [*folder.glob("worker-*.*"), *folder.glob("log.*.i64")]:
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
        self._rows = array("q")  # row after row: tuples would take five times the memory
        self._texts = Texts([], [])

    def run(self) -> None:
        files = {name: column_path(self._folder, self._worker, name).open("wb", buffering=1 << 20) for name in CHUNK_COLUMNS}
        counts = array("q")
        try:
            for raw in sorted(self._spill.requests.values(), key=lambda raw: raw.sent_ns):
                counts.append(self._request(raw, files))
        finally:
            for file in files.values():
                file.close()
        table = np.array(self._rows).reshape(-1, len(REQUEST_COLUMNS))
        for column, name in enumerate(REQUEST_COLUMNS):
            table[:, column].tofile(column_path(self._folder, self._worker, name))
        np.array(counts).tofile(column_path(self._folder, self._worker, "chunks"))
        texts_path(self._folder, self._worker).write_bytes(msgspec.msgpack.encode(self._texts))

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
            coding=self._spill.coding(raw),
        )
        for name, file in files.items():
            file.write(getattr(parsed, name).tobytes())
        self._rows.extend(self._row(raw, parsed))
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
