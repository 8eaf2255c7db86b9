"""Standard input, output and error as they may be found: closed by a shell's `>&-`, or on a full disk."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EBADF}


class _Unfailing(io.TextIOWrapper):
    """What is said while others work: that nobody reads it, or its disk is full, is no reason to lose what they measure."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def make_safe() -> None:
    """Put the null device in the place of a stream that is closed: else the next file to be opened gets its number, and what
    is said goes into that file. And let standard error never fail.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as long as the process
    if (was := sys.__stderr__) is not None and sys.stderr is was:
        sys.stderr = _Unfailing(was.buffer, encoding=was.encoding, errors=was.errors, line_buffering=True)


def refused(error: OSError) -> bool:
    """Whether `error` is of a write to a stream rather than of a file, which would have a name."""
    return error.filename is None and error.errno in _REFUSALS


def silence_stdout() -> None:
    """What is still held back for standard output is given up: writing it as the process ends would fail once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
