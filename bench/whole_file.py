"""A file that is there as a whole or not at all, whatever ends the writer."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Put all of `data` into `path`, or leave what was there: readers see the old file or the new one, by then on the disk.

    It is written beside `path` under a name that nobody else has: several may write at once, and no link that lies there is
    followed. Raises: OSError; then nothing of it is left.
    """
    part = path.with_name(f".bench-{secrets.token_hex(8)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
