"""What a killed process left under `.partial/` becomes a shard with status `killed`, so that nothing is lost.

Safe to run from several processes at once: the one that gets the lock of `owner.json` does the work, and only when the
process named in it is gone.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import codec
from bench.errors import BenchError, StoreError
from bench.records import ClockAnchor, EventLog, HostInfo, Reading, Status, Telemetry, TrialRecord
from bench.store import layout
from bench.store.owner import Owner, take_over
from bench.store.shards import Recover, finish, publish, recovered_log

UNKNOWN_HOST_ID = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """Shards made out of what dead processes left, and what could not be adopted with the reason."""

    adopted: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def adopt(results: Path, recover: Recover | None = None) -> AdoptReport:
    """Make `killed` shards of the partial trials whose owner is dead. Never raises for a single bad folder, nor for a
    folder that can't be written: that is a note.
    """
    adopted: list[Path] = []
    notes: list[str] = []
    for folder in _partial_folders(results):
        try:
            home = _adopt_one(results, folder, recover)
        except (FileNotFoundError, NotADirectoryError):
            notes += filter(None, [_ownerless(folder)])
        except (BenchError, OSError, ValueError, RecursionError) as error:
            notes.append(f"{folder} is left as it is: {error}")
        else:
            if home is not None:
                adopted.append(home)
    return AdoptReport(adopted=tuple(adopted), notes=tuple(notes))


def _partial_folders(results: Path) -> list[Path]:
    try:
        return sorted(path for path in layout.partial_dir(results).iterdir() if path.is_dir() and not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _adopt_one(results: Path, folder: Path, recover: Recover | None) -> Path | None:
    taken = take_over(folder)
    if taken is None:
        return None
    lock, owner = taken
    try:
        if not folder.is_dir():
            return None  # the other one was faster
        return _complete(results, folder) or _as_killed(results, folder, owner, recover)
    finally:
        os.close(lock)


def _complete(results: Path, folder: Path) -> Path | None:
    """A trial killed between its last byte and the rename is whole: only move it."""
    try:
        record = codec.decode((folder / layout.TRIAL_JSON).read_bytes(), TrialRecord)
        home = results / layout.shard_path(record)
        if any(layout.sha256_file(folder / name) != digest for name, digest in record.files.items()):
            return None
    except (OSError, ValueError):
        return None
    if home.exists():
        raise StoreError(f"{home} is there already")
    publish(folder, home)
    return home


def _as_killed(results: Path, folder: Path, owner: Owner, recover: Recover | None) -> Path:
    told = {"event_log": "not recovered: nothing here can read the raw events"}
    log: EventLog | None = None
    if recover is not None:
        log, told["event_log"] = recovered_log(folder, recover)
    readings = _recovered_readings(folder, told)
    record = _killed_record(folder, owner, told)
    for name in (layout.REQUESTS, layout.CHUNKS, layout.TELEMETRY, layout.TRIAL_JSON):
        (folder / name).unlink(missing_ok=True)  # half written, and made again from the raw events
    telemetry = Telemetry(devices=record.devices, readings=readings) if readings else None
    return finish(results, folder, record, log, telemetry)


def _recovered_readings(folder: Path, told: dict[str, str]) -> tuple[Reading, ...]:
    try:
        lines = (folder / layout.TELEMETRY_SPILL).read_bytes().split(b"\n")
    except FileNotFoundError:
        told["telemetry"] = "none was written"
        return ()
    readings: list[Reading] = []
    lost = 0
    for line in filter(None, lines):
        try:
            readings.append(codec.decode(line, Reading))
        except ValueError:
            lost += 1
    told["telemetry"] = f"recovered: {len(readings)} readings" + (f", {lost} cut off" if lost else "")
    return tuple(readings)


def _killed_record(folder: Path, owner: Owner, told: dict[str, str]) -> TrialRecord:
    ended = _last_sign_of_life(folder, owner.started)
    error = f"the bench process (pid {owner.pid}) was killed before this trial ended"
    try:
        draft = codec.decode((folder / layout.DRAFT_JSON).read_bytes(), TrialRecord)
    except (OSError, ValueError):
        told["host"] = "not recorded before the kill"
        return TrialRecord(
            bench_version=owner.bench_version,
            key=owner.key,
            status=Status.KILLED,
            error=error,
            case=owner.case,
            host=_unknown_host(),
            started=owner.started,
            ended=ended,
            extra={"adopted": told},
        )
    return dataclasses.replace(
        draft, key=owner.key, status=Status.KILLED, error=error, ended=ended, extra={**draft.extra, "adopted": told}
    )


def _last_sign_of_life(folder: Path, started: ClockAnchor) -> ClockAnchor:
    """The newest change in the folder, on both clocks: a killed trial ended no earlier."""
    newest_ns = max((path.stat().st_mtime_ns for path in folder.rglob("*")), default=started.wall_ns)
    wall_ns = max(newest_ns, started.wall_ns)
    return ClockAnchor(monotonic_ns=started.monotonic_ns + wall_ns - started.wall_ns, wall_ns=wall_ns)


def _unknown_host() -> HostInfo:
    """This machine, but with no id: boards were not recorded, and the folder may have come from elsewhere."""
    return HostInfo(
        host_id=UNKNOWN_HOST_ID,
        system=platform.system(),
        release=platform.release(),
        machine=platform.machine(),
        cpu_model=None,
        cpu_count=psutil.cpu_count() or 1,
        memory_b=psutil.virtual_memory().total,
        python=platform.python_version(),
    )


def _ownerless(folder: Path) -> str | None:
    """A folder without an owner. Empty: about to be marked by a live bench, or never was; both are harmless."""
    if not any(folder.glob("*")):
        return None
    return f"{folder} is left as it is: it has no {layout.OWNER_JSON} that says whose it is"
