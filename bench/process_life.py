"""Whether the process that a note on disk, or the label of a container, names is still the same one."""

from __future__ import annotations

import psutil

_SAME_START_S = 2.0
"""Start times that differ by less are the same process: they are worked out from the boot time, which NTP may move."""


def started_s(pid: int) -> float:
    """When process `pid` was started, as Unix time [s]. Raises: psutil.NoSuchProcess."""
    return psutil.Process(pid).create_time()


def lives(pid: int, its_start_s: float) -> bool:
    """Whether this very process is there: a reused pid has another start time."""
    try:
        return abs(started_s(pid) - its_start_s) < _SAME_START_S
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
