"""What the kernel's files of a device hold: one number or one word each."""

from __future__ import annotations

import errno
from pathlib import Path

from bench.errors import ProbeError
from bench.probes import values
from bench.probes.values import Unavailable

_LOST = frozenset({errno.ENODEV, errno.ENXIO})


def scaled(path: Path, factor: float, marks: tuple[int, ...] = (values.MARK_32, values.MARK_64)) -> float:
    """The file's number times `factor`. Raises: Unavailable, ProbeError where the device is gone."""
    try:
        found = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        if error.errno in _LOST:
            raise ProbeError(f"{path}: {error.strerror}", hint="dmesg tells why the card left the bus") from error
        raise Unavailable(f"{path.name}: {error.strerror or error}", lasting=error.errno == errno.ENOENT) from error
    try:
        value = int(found)
    except ValueError:
        raise Unavailable(f"{path.name} holds {found[:40]!r}, not a number", lasting=False) from None
    return values.number(value, marks=marks) * factor


def text(path: Path) -> str | None:
    """The file's word; None where it can't be read or holds none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
