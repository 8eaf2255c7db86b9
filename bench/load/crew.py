"""The worker processes of one trial, seen from the harness: hire, tell, hear, dismiss."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Self

import bench
from bench.errors import LoadError
from bench.load.messages import Failed, FromWorker, Inbox, ToWorker, pack

_BOOT = "import sys; sys.path.append(sys.argv[1]); from bench.load.worker import main; main(sys.argv[2])"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""numpy's thread pools would only compete with the engine."""
_PATIENCE_S = 5.0


class _Member:
    def __init__(self, loop: str) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        root = str(Path(bench.__file__).resolve().parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, root, loop],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **_ONE_THREAD},
            process_group=0,  # a signal for the terminal's group is the harness's to handle
        )
        self.inbox = Inbox(FromWorker)
        self.finished = False


class Crew:
    """Leaving its `with` block ends every worker."""

    def __init__(self, count: int, loop: str = "auto") -> None:
        self._members: list[_Member] = []
        self._selector = selectors.DefaultSelector()
        try:
            for number in range(count):
                member = _Member(loop)
                self._members.append(member)
                assert member.process.stdout is not None
                os.set_blocking(member.process.stdout.fileno(), False)
                self._selector.register(member.process.stdout, selectors.EVENT_READ, number)
        except OSError as error:
            self._dismiss()
            raise LoadError(f"a load worker can't be started: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._members)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, in worker order."""
        return tuple(member.process.pid for member in self._members)

    def tell(self, worker: int, message: ToWorker) -> None:
        """Send a message to one worker. Raises: LoadError if it is gone."""
        stdin = self._members[worker].process.stdin
        assert stdin is not None
        try:
            stdin.write(pack(message))
            stdin.flush()
        except OSError:
            raise self._death(worker) from None

    def tell_all(self, message: ToWorker) -> None:
        """Send a message to each worker."""
        for worker in range(len(self)):
            self.tell(worker, message)

    def hear(self, timeout_s: float) -> list[tuple[int, object]]:
        """What workers have said, waiting up to `timeout_s` for the first word. Raises: LoadError for one that failed."""
        heard: list[tuple[int, object]] = []
        for key, _ in self._selector.select(timeout_s):
            worker = int(key.data)
            heard += ((worker, message) for message in self._read(worker, key.fd))
        for _, message in heard:
            if isinstance(message, Failed):
                raise LoadError(message.message, hint=message.hint)
        return heard

    def finished(self, workers: Iterable[int]) -> None:
        """These have said their last word: their end is no failure."""
        for worker in workers:
            self._members[worker].finished = True

    def _read(self, worker: int, fd: int) -> list[object]:
        member = self._members[worker]
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return []
        if data:
            return list(member.inbox.feed(data))
        if member.process.stdout is not None:
            self._selector.unregister(member.process.stdout)
        if member.finished:
            return []
        raise self._death(worker)

    def _death(self, worker: int) -> LoadError:
        """How a worker ended, in words."""
        member = self._members[worker]
        try:
            code = member.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return LoadError(f"load worker {worker} no longer answers")
        if code < 0:
            name = signal.Signals(-code).name
            hint = "was the machine short of memory?" if -code == signal.SIGKILL else None
            return LoadError(f"load worker {worker} was ended by {name}", hint=hint)
        member.errors.seek(0)
        last = member.errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return LoadError(f"load worker {worker} ended with exit status {code}: {last[0] if last else 'it left no message'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._dismiss()

    def _dismiss(self) -> None:
        for member in self._members:
            if not member.finished:
                member.process.terminate()
        deadline = monotonic() + _PATIENCE_S  # for all of them together
        for member in self._members:
            try:
                member.process.wait(max(0.0, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
            for pipe in (member.process.stdin, member.process.stdout, member.errors):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        self._selector.close()
