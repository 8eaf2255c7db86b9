"""A running account of the tokens sent, in a file: what a simulated device draws its power from.

After `tjemit1`, a line feed and the stamp of its beginning, which tells one engine's file from the next, come records of two
little-endian 64-bit numbers: monotonic stamp [ns], tokens sent at it. A record of 0 tokens means: everything up to this stamp is
in the file. Whoever reads it takes whole records only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from array import array
from pathlib import Path

from bench.errors import EngineStartError
from bench.mock.schedule import now_ns

MAGIC = b"tjemit1\n"
FLUSH_S = 0.02
"""Between two writes of the file."""


class Emission:
    """Collects on the send path, writes in a thread: the schedule never waits for a disk."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        """Begins the file anew. Raises: EngineStartError."""
        self._loop = loop
        self._pending: array[int] = array("q")
        self._writing: asyncio.Future[int] | None = None
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            os.write(self._fd, MAGIC + now_ns().to_bytes(8, "little"))
        except OSError as error:
            raise EngineStartError(
                f"the emission file {path} can't be written: {error.strerror}", hint="name a file in a writable folder"
            ) from error
        self._timer = loop.call_later(FLUSH_S, self._flush)

    def add(self, stamp_ns: int, tokens: int) -> None:
        """Tokens that were sent at `stamp_ns`."""
        self._pending.extend((stamp_ns, tokens))

    def close(self) -> None:
        """Write what is left, once a write under way has ended."""
        self._timer.cancel()
        if self._writing is not None and not self._writing.done():
            self._writing.add_done_callback(lambda _: self._end())
        else:
            self._end()

    def _flush(self) -> None:
        if self._writing is None or self._writing.done():
            if self._failed():
                return
            self._writing = self._loop.run_in_executor(None, os.write, self._fd, self._taken())
        self._timer = self._loop.call_later(FLUSH_S, self._flush)

    def _taken(self) -> bytes:
        """Everything so far, and the stamp up to which it is everything."""
        batch, self._pending = self._pending, array("q")
        batch.extend((now_ns(), 0))
        if sys.byteorder == "big":
            batch.byteswap()
        return batch.tobytes()

    def _failed(self) -> bool:
        """A file with a hole would be a lie: then no stamp follows, and the reader takes the engine for gone."""
        return self._writing is not None and self._writing.done() and self._writing.exception() is not None

    def _end(self) -> None:
        if not self._failed():
            with contextlib.suppress(OSError):
                os.write(self._fd, self._taken())
        os.close(self._fd)
