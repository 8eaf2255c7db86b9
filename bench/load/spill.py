"""Raw events on disk while a load runs: what a worker has seen survives its death and takes no memory.

One file a worker, a sequence of blocks; a torn last block (the worker was killed) is ignored.

    header  kind u8, pad, request u32, count u32, size u32 (little endian, 16 bytes)
    META    JSON: protocol, worker
    SENT    scheduled i64, sent i64, input tokens asked i32, output tokens asked i32
    DATA    count stamps i64, count ends of reads u32 (offsets in this block's body), the body bytes
    END     opened i64, closed i64, end u8, coding u8, status u16, error text
"""

from __future__ import annotations

import os
import queue
import struct
import threading
from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from bench.errors import LoadError
from bench.load.inflate import GZIP_MAGIC, Coding
from bench.records import IntArray

_HEADER = struct.Struct("<B3xIII")
_SENT = struct.Struct("<qqii")
_END = struct.Struct("<qqBBH")
_META, _SENT_KIND, _DATA, _END_KIND = 1, 2, 3, 4
_BACKLOG_LIMIT_B = 512 << 20


class End(IntEnum):
    """How a request ended on the wire; what its body says is told later."""

    COMPLETE = 0
    CONNECT = 1
    BROKEN = 2
    """The connection ended in mid-answer."""
    NOT_HTTP = 3
    TIMEOUT = 4
    CANCELLED = 5


class Sink(Protocol):
    """Where a connection puts what it saw."""

    def data(self, request: int, stamps_ns: array[int], ends_b: array[int], body: bytearray) -> None:
        """A piece of a body: how far each read filled it, and the stamp of that read. Reused as soon as this returns."""
        ...

    def end(
        self, request: int, opened_ns: int, closed_ns: int, end: End, *, status: int, error: str | None, coding: Coding
    ) -> None: ...


class Meta(msgspec.Struct):
    """First block of a file."""

    protocol: str
    worker: int
    api_key_env: str | None = None
    """Name of the variable with the key: what is read back later must not hold it either."""


class SpillWriter:
    """Appends blocks; the disk is written by a thread, so that a slow one does not stop the event loop."""

    def __init__(self, path: Path, meta: Meta) -> None:
        self._file = path.open("wb", buffering=0)
        self._blocks: list[bytes] = []
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued_b = 0
        self._written_b = 0
        self.failure: str | None = None
        self.pending_b = 0
        text = msgspec.json.encode(meta)
        self._blocks += (_HEADER.pack(_META, 0, 0, len(text)), text)
        self._thread = threading.Thread(target=self._write, name="spill", daemon=True)
        self._thread.start()

    def sent(self, request: int, scheduled_ns: int, sent_ns: int, input_tokens: int, output_tokens: int) -> None:
        """A request's first byte was handed to the kernel."""
        self._blocks.append(
            _HEADER.pack(_SENT_KIND, request, 0, _SENT.size) + _SENT.pack(scheduled_ns, sent_ns, input_tokens, output_tokens)
        )

    def data(self, request: int, stamps_ns: array[int], ends_b: array[int], body: bytearray) -> None:
        """A piece of a request's body: how far each read filled it, and the stamp of that read. All is copied."""
        count = len(stamps_ns)
        header = _HEADER.pack(_DATA, request, count, 12 * count + len(body))
        self._blocks += (header, stamps_ns.tobytes(), ends_b.tobytes(), bytes(body))
        self.pending_b += 12 * count + len(body)

    def end(
        self,
        request: int,
        opened_ns: int,
        closed_ns: int,
        end: End,
        *,
        status: int,
        error: str | None,
        coding: Coding = Coding.IDENTITY,
    ) -> None:
        """A request is over."""
        text = (error or "").encode("utf-8", "replace")
        said = _END.pack(opened_ns, closed_ns, end, coding, status)
        self._blocks.append(_HEADER.pack(_END_KIND, request, 0, _END.size + len(text)) + said + text)

    def flush(self) -> None:
        """Hand what has gathered to the writing thread."""
        if not self._blocks:
            return
        data = b"".join(self._blocks)
        self._blocks.clear()
        self.pending_b = 0
        self._queued_b += len(data)
        self._queue.put(data)
        if self.behind_b > _BACKLOG_LIMIT_B and self.failure is None:
            self.failure = f"the disk is {_BACKLOG_LIMIT_B >> 20} MiB behind the incoming stream"

    @property
    def behind_b(self) -> int:
        """How far the disk is behind what was handed to the writing thread [bytes]."""
        return self._queued_b - self._written_b

    def close(self) -> None:
        """Write all that is left. `failure` says whether that went well."""
        self.flush()
        self._queue.put(None)
        self._thread.join()
        self._file.close()

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            if self.failure is None:
                try:
                    view = memoryview(data)
                    while view:
                        view = view[self._file.write(view) :]
                except OSError as error:
                    self.failure = error.strerror or str(error)
            self._written_b += len(data)


@dataclass(slots=True)
class RawRequest:
    """One request as found in a spill file. `end` is None for one that was in flight when the worker died. `blocks`: offset,
    reads and size of each piece of its body, one after the other.
    """

    request: int
    scheduled_ns: int
    sent_ns: int
    input_requested: int
    output_requested: int
    opened_ns: int = -1
    closed_ns: int = -1
    end: End | None = None
    status: int = -1
    error: str | None = None
    coding: Coding | None = None
    blocks: array[int] = field(default_factory=lambda: array("q"))


class SpillFile:
    """A spill file read back: an index of requests, bodies on demand. Memory grows with blocks, not with bytes.

    Read, not mapped: the pages of a mapped file count as this process's own for as long as memory is free.
    """

    def __init__(self, path: Path) -> None:
        self.meta: Meta | None = None
        self.requests: dict[int, RawRequest] = {}
        try:
            self._file = path.open("rb", buffering=1 << 14)
            self._scan(path.stat().st_size)
        except OSError as error:
            raise LoadError(f"{path.name} can't be read back: {error.strerror}") from error

    def body(self, raw: RawRequest) -> tuple[bytes, IntArray, IntArray]:
        """The whole body, the stamp [ns] of each piece, and the offset behind each piece."""
        bodies: list[bytes] = []
        stamps: list[IntArray] = []
        ends: list[IntArray] = []
        before_b = 0
        blocks = iter(raw.blocks)
        for offset, count, size in zip(blocks, blocks, blocks, strict=True):
            block = os.pread(self._file.fileno(), size, offset)
            stamps.append(np.frombuffer(block, "<i8", count))
            ends.append(np.frombuffer(block, "<u4", count, 8 * count).astype(np.int64) + before_b)
            before_b += size - 12 * count
            bodies.append(block[12 * count :])
        if not bodies:
            return b"", np.zeros(0, np.int64), np.zeros(0, np.int64)
        return b"".join(bodies), np.concatenate(stamps), np.concatenate(ends)

    def coding(self, raw: RawRequest) -> Coding:
        """How a body is compressed; told by its first bytes where the request had no end."""
        if raw.coding is not None:
            return raw.coding
        begins_gzip = bool(raw.blocks) and os.pread(self._file.fileno(), 2, raw.blocks[0] + 12 * raw.blocks[1]) == GZIP_MAGIC
        return Coding.GZIP if begins_gzip else Coding.IDENTITY

    def close(self) -> None:
        self._file.close()

    def _scan(self, total: int) -> None:
        at = 0
        while at + _HEADER.size <= total:
            kind, request, count, size = _HEADER.unpack(self._file.read(_HEADER.size))
            at += _HEADER.size
            if at + size > total:
                return
            if kind == _DATA:
                self._file.seek(size, os.SEEK_CUR)
                if request in self.requests:
                    self.requests[request].blocks.extend((at, count, size))
            else:
                self._block(self._file.read(size), kind=kind, request=request)
            at += size

    def _block(self, data: bytes, *, kind: int, request: int) -> None:
        if kind == _SENT_KIND:
            scheduled_ns, sent_ns, asked_in, asked_out = _SENT.unpack(data)
            self.requests[request] = RawRequest(request, scheduled_ns, sent_ns, asked_in, asked_out)
        elif kind == _END_KIND and request in self.requests:
            raw = self.requests[request]
            raw.opened_ns, raw.closed_ns, end, coding, raw.status = _END.unpack_from(data)
            raw.end, raw.coding = End(end), Coding(coding)
            raw.status = raw.status or -1
            raw.error = data[_END.size :].decode() or None
        elif kind == _META:
            self.meta = msgspec.json.decode(data, type=Meta)
