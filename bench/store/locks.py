"""Locks between processes, kept by the kernel: a killed holder lets go at once."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import clock
from bench.store.layout import write_error

_POLL_S = 0.05
_QUIET_S = 1.0


def try_lock(path: Path, *, create: bool) -> int | None:
    """An open descriptor that holds the lock of `path`, or None where another holds it. Close it to let go.

    Raises: OSError (no such file, no permission, no plain file).
    """
    handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | (os.O_CREAT if create else 0), 0o666)
    try:
        _check_plain(handle, path)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_plain(handle: int, path: Path) -> None:
    """A pipe would be waited for. Raises: OSError."""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))


@contextmanager
def exclusive(path: Path, on_wait: Callable[[str], None], now: clock.Clock = clock.SYSTEM) -> Iterator[None]:
    """Hold the lock of `path`, waiting for whoever has it; `on_wait` is told once, after a second.

    Raises: StoreError where the lock file can't be made.
    """
    asked_ns, told = now.monotonic_ns(), False
    try:
        while (handle := try_lock(path, create=True)) is None:
            if not told and now.monotonic_ns() - asked_ns > _QUIET_S * 1e9:
                on_wait(f"waiting for another bench that is writing {path.parent}")
                told = True
            now.sleep(_POLL_S)
    except OSError as error:
        raise write_error(path, error) from error
    try:
        yield
    finally:
        os.close(handle)
