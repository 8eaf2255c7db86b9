"""Who is writing a partial trial, so that another command can tell a live one from one left by a dead process."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from bench import codec
from bench.process_life import lives
from bench.records import Case, ClockAnchor, TrialKey
from bench.store.layout import OWNER_JSON, write_all
from bench.store.locks import try_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that writes a trial (pid and its start as Unix time [s]), and what was known when it began."""

    pid: int
    pid_started_s: float
    key: TrialKey
    case: Case
    bench_version: str
    started: ClockAnchor

    def process_lives(self) -> bool:
        """Whether this very process is there."""
        return lives(self.pid, self.pid_started_s)


def claim(folder: Path, owner: Owner) -> int:
    """Write `owner.json` and hold its lock while this process lives. Returns the descriptor that holds it.

    The lock tells death where pids can't: another container has other pids.

    Raises: OSError.
    """
    handle = os.open(folder / OWNER_JSON, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        write_all(handle, codec.encode_pretty(owner))
    except BaseException:
        os.close(handle)
        raise
    return handle


def take_over(folder: Path) -> tuple[int, Owner] | None:
    """The lock and the owner of a partial trial whose owner is dead; None where it lives, or can't be told.

    Raises: OSError, ValueError (an unreadable `owner.json`).
    """
    handle = try_lock(folder / OWNER_JSON, create=False)
    if handle is None:
        return None
    try:
        owner = codec.decode((folder / OWNER_JSON).read_bytes(), Owner)
        if owner.process_lives():
            os.close(handle)
            return None
    except BaseException:
        os.close(handle)
        raise
    return handle, owner
