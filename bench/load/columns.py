"""Event-log columns of one worker on disk, written request by request out of what it has spilled."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec
import numpy as np

from bench.load.keys import key_in, strike_out
from bench.load.parse import ParsedRequest, named_counts, parse_request
from bench.load.protocols import wire_protocol
from bench.load.protocols.base import Usage, clip
from bench.load.retokenize import Retokenizer
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
    "output_retokenized",
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


def parse_spill(folder: Path, worker: int, retokenizer: Retokenizer | None = None) -> None:
    """Parse one worker's raw events into column files beside it. Memory stays at one request and its blocks' index.
    `retokenizer` counts output tokens where the server told none.

    The key is struck out of every text that the server sent: some quote the key that they refuse.
    """
    spill = SpillFile(spill_path(folder, worker))
    try:
        _Parse(folder, worker, spill, retokenizer).run()
    finally:
        spill.close()


class _Parse:
    """One pass over a spill file."""

    def __init__(self, folder: Path, worker: int, spill: SpillFile, retokenizer: Retokenizer | None) -> None:
        self._secret = key_in(spill.meta.api_key_env) if spill.meta is not None else None
        self._folder, self._worker, self._spill, self._retokenizer = folder, worker, spill, retokenizer
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
            retokenizer=self._retokenizer,
        )
        for name, file in files.items():
            file.write(getattr(parsed, name).tobytes())
        self._rows.extend(self._row(raw, parsed))
        self._texts.finish_reason.append(self._kept(parsed.finish_reason))
        self._texts.error.append(self._kept(parsed.error) if parsed.outcome is not Outcome.OK else None)
        return len(parsed.chunk_ns)

    def _kept(self, text: str | None) -> str | None:
        """A text of the server's as it may be kept: short, on one line, without the key."""
        return strike_out(clip(strike_out(text, self._secret)), self._secret) if text else None

    def _row(self, raw: RawRequest, parsed: ParsedRequest) -> tuple[int, ...]:
        counts = named_counts(parsed.usage or Usage()).values()
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
            parsed.retokenized,
            self._worker,
        )
