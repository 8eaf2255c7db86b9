"""A file that a command was told to write with `--out`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from bench.errors import StoreError


def write_output(out: Path, data: bytes) -> None:
    """All of `data` in `out`, or what was there. A link stays one, and what it leads to is replaced; a pipe or a device, such as
    /dev/stdout, is written to. Raises: StoreError.
    """
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(out)), data)
    except OSError as error:
        raise StoreError(f"can't write {out}: {error.strerror}", hint="give another file with --out") from error


def _replace(home: Path, data: bytes) -> None:
    """By a new file beside it of a name that nobody else has: two may write at once, and what lies there is not followed."""
    part = home.parent / f".bench-{secrets.token_hex(8)}.part"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        part.replace(home)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
