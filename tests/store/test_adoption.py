"""What a killed process leaves becomes a `killed` shard; what a live one holds is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from bench import codec
from bench.errors import LoadError
from bench.records import ClockAnchor, EventLog, Status, TrialRecord
from bench.store import Lab, ShardStore, adopt
from bench.store.adoption import UNKNOWN_HOST_ID
from bench.store.owner import Owner
from bench.store.parquet import read_log, read_readings
from tests.factories import STARTED_WALL_NS, make_event_log, make_record, make_telemetry, same_log

ROOT = Path(__file__).parents[2]


def leave_partial(results: Path, *, pid: int, started_s: float, repeat: int = 0) -> Path:
    """A partial trial as a process that is not there any more would have left it."""
    record = make_record(repeat=repeat)
    folder = results / "shards" / ".partial" / record.key.trial_id
    folder.mkdir(parents=True)
    owner = Owner(
        pid=pid,
        pid_started_s=started_s,
        key=record.key,
        case=record.case,
        bench_version="0.0",
        started=ClockAnchor(monotonic_ns=1, wall_ns=STARTED_WALL_NS),
    )
    (folder / "owner.json").write_bytes(codec.encode(owner))
    (folder / "engine.log").write_text("last words\n", encoding="utf-8")
    (folder / "worker-0.raw").write_bytes(b"raw events")
    readings = b"".join(codec.encode(r) + b"\n" for r in make_telemetry().readings)
    (folder / "telemetry.jsonl").write_bytes(readings + b'{"uid":"GPU-0001","befo')
    return folder


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def recover(folder: Path) -> EventLog:
    assert (folder / "worker-0.raw").read_bytes() == b"raw events"
    return make_event_log()


def stored(folder: Path) -> TrialRecord:
    return codec.decode((folder / "trial.json").read_bytes(), TrialRecord)


def test_a_dead_owners_trial_is_adopted_with_its_events_readings_and_log(tmp_path: Path) -> None:
    leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    report = adopt(tmp_path, recover)
    assert report.notes == ()
    (folder,) = report.adopted
    record = stored(folder)
    assert record.status is Status.KILLED
    assert record.key == make_record().key
    assert "ended before this trial was saved" in (record.error or "")
    assert record.host.host_id == UNKNOWN_HOST_ID
    assert record.ended.wall_ns >= record.started.wall_ns == STARTED_WALL_NS
    assert record.extra["adopted"]["event_log"] == "recovered: 4 requests"
    assert record.extra["adopted"]["telemetry"] == "recovered: 3 readings, 1 cut off"
    assert same_log(read_log(folder), make_event_log())
    assert read_readings(folder)[1] == make_telemetry().readings
    assert sorted(p.name for p in folder.iterdir()) == sorted([*record.files, "trial.json"])
    assert "engine.log" in record.files
    assert adopt(tmp_path, recover).adopted == ()
    assert Lab(tmp_path).ingest(verify=True).added == 1


def test_what_cannot_be_recovered_is_noted(tmp_path: Path) -> None:
    def broken(folder: Path) -> EventLog:
        raise LoadError("no raw events here")

    folder = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    (folder / "telemetry.jsonl").unlink()
    (adopted,) = adopt(tmp_path, broken).adopted
    record = stored(adopted)
    assert record.extra["adopted"]["event_log"].startswith("not recovered: no raw events here; the raw events are kept in ")
    assert record.extra["adopted"]["telemetry"] == "none was written"
    assert list(record.files) == ["engine.log"]


def test_a_draft_tells_the_host_and_engine(tmp_path: Path) -> None:
    record = make_record()
    folder = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    (folder / "draft.json").write_bytes(codec.encode(record))
    adopted = stored(adopt(tmp_path, recover).adopted[0])
    assert adopted.host == record.host
    assert adopted.engine == record.engine
    assert adopted.status is Status.KILLED


def test_describe_writes_a_draft_that_save_removes(tmp_path: Path) -> None:
    record = make_record()
    trial = ShardStore(tmp_path).begin(record.key, record.case)
    trial.describe(record)
    assert codec.decode((trial.folder / "draft.json").read_bytes(), TrialRecord) == record
    folder = trial.save(record, None, None)
    assert [p.name for p in folder.iterdir()] == ["trial.json"]


def test_a_live_owner_is_left_alone(tmp_path: Path) -> None:
    me = psutil.Process()
    folder = leave_partial(tmp_path, pid=me.pid, started_s=me.create_time())
    assert adopt(tmp_path, recover).adopted == ()
    assert (folder / "worker-0.raw").is_file()


def test_a_reused_pid_is_not_the_owner(tmp_path: Path) -> None:
    me = psutil.Process()
    leave_partial(tmp_path, pid=me.pid, started_s=me.create_time() - 1000)
    assert len(adopt(tmp_path, recover).adopted) == 1


def test_a_held_lock_means_alive_whatever_the_pid_says(tmp_path: Path) -> None:
    """Another container shares the folder, not the pids."""
    record = make_record()
    trial = ShardStore(tmp_path).begin(record.key, record.case)
    owner = codec.decode((trial.folder / "owner.json").read_bytes(), Owner)
    assert owner.pid == os.getpid()
    gone = codec.encode(codec.convert({**codec.to_builtins(owner), "pid": dead_pid()}, Owner))
    (trial.folder / "owner.json").write_bytes(gone)
    assert adopt(tmp_path, recover).adopted == ()
    assert trial.save(record, None, None).is_dir()


_BEGIN_AND_DIE = """
import os, signal, sys
from pathlib import Path
from bench.store import ShardStore
from tests.factories import make_event_log, make_record, make_telemetry
import bench.store.shards as shards

record = make_record()
trial = ShardStore(Path(sys.argv[1])).begin(record.key, record.case)
if sys.argv[2] == "complete":
    shards.publish = lambda folder, home: os.kill(os.getpid(), signal.SIGKILL)
    trial.save(record, make_event_log(), make_telemetry())
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("moment", "status"), [("begun", Status.KILLED), ("complete", Status.VALID)])
def test_a_really_killed_process(tmp_path: Path, moment: str, status: Status) -> None:
    command = [sys.executable, "-c", _BEGIN_AND_DIE, str(tmp_path), moment]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == -9
    (folder,) = adopt(tmp_path).adopted
    assert stored(folder).status is status
    assert Lab(tmp_path).ingest(verify=True).added == 1


def test_two_at_once_adopt_each_trial_once(tmp_path: Path) -> None:
    pid = dead_pid()
    for repeat in range(6):
        leave_partial(tmp_path, pid=pid, started_s=1.0, repeat=repeat)
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(adopt(tmp_path, recover))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    adopted = [folder for report in reports for folder in report.adopted]
    assert len(adopted) == len(set(adopted)) == 6
    assert all(report.notes == () for report in reports)
    assert Lab(tmp_path).ingest(verify=True).added == 6


def test_an_unreadable_owner_is_a_note_and_nothing_is_deleted(tmp_path: Path) -> None:
    folder = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    (folder / "owner.json").write_bytes(b"{")
    (tmp_path / "shards" / ".partial" / "empty").mkdir()
    other = tmp_path / "shards" / ".partial" / "other"
    other.mkdir()
    (other / "raw").write_bytes(b"x")
    report = adopt(tmp_path, recover)
    assert report.adopted == ()
    assert len(report.notes) == 2
    assert all("left as it is" in note for note in report.notes)
    assert (folder / "worker-0.raw").is_file()


def test_no_results_yet_is_nothing_to_adopt(tmp_path: Path) -> None:
    assert adopt(tmp_path / "none").adopted == ()
