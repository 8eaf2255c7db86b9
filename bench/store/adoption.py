"""What a process that ended too soon left under `.partial/` becomes a shard with status `killed`, so that nothing is lost.

Safe to run from several processes at once: the one that gets the lock of `owner.json` does the work, and only when the
process named in it is gone.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil
from msgspec.structs import replace

from bench import codec
from bench.errors import StoreError
from bench.records import ClockAnchor, EventLog, HostInfo, Reading, Status, Telemetry, TrialRecord
from bench.store import layout
from bench.store.owner import Owner, take_over
from bench.store.shards import Recover, finish, publish, recovered_log
from bench.store.validation import check_record, read_shard
from bench.store.work import clear_work

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
    clear_work(results)
    for folder in _partial_folders(results):
        try:
            home = _adopt_one(results, folder, recover)
        except (FileNotFoundError, NotADirectoryError):
            notes += filter(None, [_ownerless(folder)])
        except Exception as error:  # noqa: BLE001 - the folder may be anyone's: nothing in it may stop a command
            notes.append(f"{folder} is left as it is: {str(error) or layout.reason(error)}")
        else:
            if home is not None:
                adopted.append(home)
    return AdoptReport(adopted=tuple(adopted), notes=tuple(notes))


def _partial_folders(results: Path) -> list[Path]:
    try:
        return sorted(path for path in layout.partial_dir(results).iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:  # what can't be listed can't be adopted; whoever needs the folder says why
        return []


def _adopt_one(results: Path, folder: Path, recover: Recover | None) -> Path | None:
    taken = take_over(folder)
    if taken is None:
        return None
    lock, owner = taken
    try:
        if not folder.is_dir():
            return None  # the other one was faster
        _check_plain(folder)
        return _complete(results, folder) or _as_killed(results, folder, owner, recover)
    finally:
        os.close(lock)


def _complete(results: Path, folder: Path) -> Path | None:
    """A trial killed between its last byte and the rename is whole: only move it."""
    try:
        home = results / layout.shard_path(read_shard(folder, verify=True).record)
    except Exception:  # noqa: BLE001 - half written, or anyone's bytes: then it is made from the raw events
        return None
    if home.exists():
        raise StoreError(f"{home} is there already")
    publish(folder, home)
    return home


def _as_killed(results: Path, folder: Path, owner: Owner, recover: Recover | None) -> Path:
    told: dict[str, str] = {}
    log, told["event_log"] = recovered_log(folder, recover or _no_reader)
    readings = _recovered_readings(folder, told)
    record = _killed_record(folder, owner, told)
    check_record(record)
    _unlink(folder, layout.REQUESTS, layout.CHUNKS, layout.TELEMETRY, layout.TRIAL_JSON)  # half written; made again
    telemetry = Telemetry(devices=record.devices, readings=readings) if readings else None
    try:
        return finish(results, folder, record, log if log is not None and len(log) else None, telemetry, keep_raw=log is None)
    except Exception as error:  # readings or events that decode, and can't be stored all the same
        if layout.no_space(folder, error) or not folder.is_dir() or (log is None and telemetry is None):
            raise
        told["event_log"] = told["telemetry"] = f"not recovered: {layout.reason(error)}"
    _unlink(folder, layout.REQUESTS, layout.CHUNKS, layout.TELEMETRY)
    return finish(results, folder, _killed_record(folder, owner, told), None, None, keep_raw=True)


def _no_reader(folder: Path) -> EventLog:
    raise StoreError("nothing here can read the raw events")


def _unlink(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _check_plain(folder: Path) -> None:
    """A pipe or a device would be waited for, a link leads elsewhere. Raises: StoreError, OSError."""
    with os.scandir(folder) as entries:
        odd = [e.name for e in entries if not e.is_file(follow_symlinks=False) and not e.is_dir(follow_symlinks=False)]
    if odd:
        raise StoreError(f"{odd[0]!r} in it is no plain file")


def _recovered_readings(folder: Path, told: dict[str, str]) -> tuple[Reading, ...]:
    try:
        lines = (folder / layout.TELEMETRY_SPILL).read_bytes().split(b"\n")
    except FileNotFoundError:
        told["telemetry"] = "none was written"
        return ()
    except OSError as error:
        told["telemetry"] = f"not recovered: {layout.reason(error)}"
        return ()
    readings: list[Reading] = []
    lost = 0
    for line in filter(None, lines):
        try:
            readings.append(codec.decode(line, Reading))
        except (ValueError, RecursionError):
            lost += 1
    told["telemetry"] = f"recovered: {len(readings)} readings" + (f", {lost} cut off" if lost else "")
    return tuple(readings)


def _killed_record(folder: Path, owner: Owner, told: dict[str, str]) -> TrialRecord:
    ended = _last_sign_of_life(folder, owner.started)
    error = f"the bench process (pid {owner.pid}) ended before this trial was saved"
    try:
        draft = codec.decode((folder / layout.DRAFT_JSON).read_bytes(), TrialRecord)
        check_record(draft)
    except (OSError, ValueError, RecursionError):
        told["host"] = "not recorded before that"
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
    return replace(draft, key=owner.key, status=Status.KILLED, error=error, ended=ended, extra={**draft.extra, "adopted": told})


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
