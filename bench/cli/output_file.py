"""A file that a command was told to write with `--out`."""

from __future__ import annotations

import os
from pathlib import Path

from bench.errors import StoreError
from bench.whole_file import write_whole


def write_output(out: Path, data: bytes) -> None:
    """All of `data` in `out`, or what was there. A link stays one, and what it leads to is replaced; a pipe or a device, such as
    /dev/stdout, is written to. Raises: StoreError.
    """
    try:
        if out.exists() and not out.is_file():
            out.write_bytes(data)
        else:
            write_whole(Path(os.path.realpath(out)), data)
    except OSError as error:
        raise StoreError(f"can't write {out}: {error.strerror}", hint="give another file with --out") from error
