"""Bytes that anyone may have left in a results folder, and disks that are full: nothing is lost, and no command stops."""

from __future__ import annotations

import errno
import json
import os
import struct
import threading
from pathlib import Path

import pytest

from bench import codec
from bench.errors import BenchError, LoadError, StoreError
from bench.records import EventLog, TrialRecord
from bench.store import Lab, ShardStore, adopt, layout, parquet, work_root
from bench.store import shards as shards_module
from bench.store.foreign import bring_in
from bench.store.layout import check_results, shard_path
from tests.factories import make_event_log, make_record, make_telemetry
from tests.store.test_adoption import dead_pid, leave_partial, recover, stored

POISON = [
    OSError(errno.EIO, "Input/output error"),
    ValueError("bad bytes"),
    OverflowError("too large"),
    AssertionError(),
    struct.error("unpack"),
    MemoryError(),
    RecursionError("deep"),
    KeyError("x"),
    BenchError("refused"),
]


def raising(error: Exception) -> shards_module.Recover:
    def recover_badly(folder: Path) -> EventLog:
        raise error

    return recover_badly


def full_disk(folder: Path) -> EventLog:
    raise LoadError("worker-0 can't be read back") from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FULL = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    LoadError("events can't be put together: No space left on device"),
    OSError("200000 requested and 512 written"),  # NumPy's, which has no number
]


@pytest.mark.parametrize("error", POISON, ids=lambda e: type(e).__name__)
def test_whatever_recovery_raises_the_trial_is_adopted_and_its_raw_events_are_set_aside(tmp_path: Path, error: Exception) -> None:
    partial = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    report = adopt(tmp_path, raising(error))
    (home,) = report.adopted
    told = stored(home).extra["adopted"]["event_log"]
    aside = tmp_path / "shards" / ".partial-unreadable" / partial.name
    assert told.startswith("not recovered: ")
    assert told.endswith(f"the raw events are kept in shards/.partial-unreadable/{partial.name}")
    assert (aside / "worker-0.raw").read_bytes() == b"raw events"
    assert not partial.exists()
    assert Lab(tmp_path).ingest(verify=True).added == 1


def test_a_trial_whose_load_broke_off_keeps_raw_events_that_cannot_be_read(tmp_path: Path) -> None:
    record = make_record()
    trial = ShardStore(tmp_path, raising(OverflowError("too large"))).begin(record.key, record.case)
    (trial.folder / "worker-0.raw").write_bytes(b"raw")
    home = trial.save(record, None, make_telemetry())
    assert "too large" in stored(home).extra["event_log"]
    assert (tmp_path / "shards/.partial-unreadable" / record.key.trial_id / "worker-0.raw").read_bytes() == b"raw"


def test_readings_that_decode_but_cannot_be_stored_do_not_lose_the_trial(tmp_path: Path) -> None:
    partial = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    line = json.loads((partial / "telemetry.jsonl").read_bytes().splitlines()[0])
    (partial / "telemetry.jsonl").write_text(json.dumps(line | {"before_ns": 1 << 70}) + "\n")
    (home,) = adopt(tmp_path, recover).adopted
    assert stored(home).extra["adopted"]["telemetry"].startswith("not recovered: ")
    assert (tmp_path / "shards/.partial-unreadable" / partial.name / "telemetry.jsonl").is_file()
    assert Lab(tmp_path).ingest(verify=True).added == 1


@pytest.mark.parametrize("name", ["owner.json", "draft.json", "trial.json", "telemetry.jsonl", "worker-1.raw"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_plain_file_is_never_opened(tmp_path: Path, name: str, kind: str) -> None:
    partial = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    other = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0, repeat=1)
    (partial / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(partial / name)
    else:
        os.mkfifo(tmp_path / "pipe")
        (partial / name).symlink_to(tmp_path / "pipe")
    reports = []
    thread = threading.Thread(target=lambda: reports.append(adopt(tmp_path, recover)), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for the pipe"
    assert [home.name for home in reports[0].adopted] == [other.name]
    assert "no plain file" in reports[0].notes[0]
    assert (partial / "worker-0.raw").is_file()


def test_a_complete_trial_cannot_name_a_place_outside(tmp_path: Path) -> None:
    results = tmp_path / "results"
    partial = leave_partial(results, pid=dead_pid(), started_s=1.0)
    plain = codec.to_builtins(make_record())
    plain["key"]["run_id"] = "../../../../outside"
    (partial / "trial.json").write_text(json.dumps(plain))
    (home,) = adopt(results, recover).adopted
    assert home.is_relative_to(results / "shards")
    assert stored(home).key == make_record().key
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_a_full_disk_leaves_the_partial_trial_for_later(tmp_path: Path, error: Exception) -> None:
    partial = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    before = sorted(path.name for path in partial.iterdir())
    report = adopt(tmp_path, raising(error))
    assert report.adopted == ()
    assert " free)" in report.notes[0]
    assert sorted(path.name for path in partial.iterdir()) == before
    (home,) = adopt(tmp_path, recover).adopted
    assert stored(home).extra["adopted"]["event_log"] == "recovered: 4 requests"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("where", ["write_log", "write_telemetry", "_write_bytes", "sync", "publish"])
def test_a_disk_that_fills_while_a_trial_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int) -> None:
    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    partial = leave_partial(tmp_path, pid=dead_pid(), started_s=1.0)
    target = parquet if where.startswith("write_") else layout if where == "sync" else shards_module
    with monkeypatch.context() as patched:
        patched.setattr(target, where, full)
        report = adopt(tmp_path, recover)
    assert report.adopted == ()
    assert " free)" in report.notes[0]
    assert (partial / "worker-0.raw").is_file()
    assert (partial / "telemetry.jsonl").is_file()
    (home,) = adopt(tmp_path, recover).adopted
    assert "requests.parquet" in stored(home).files


def test_a_live_trial_that_meets_a_full_disk_says_where_its_events_are(tmp_path: Path) -> None:
    record = make_record()
    trial = ShardStore(tmp_path, full_disk).begin(record.key, record.case)
    (trial.folder / "worker-0.raw").write_bytes(b"raw")
    with pytest.raises(StoreError, match="free") as caught:
        trial.save(record, None, None)
    assert str(trial.folder) in (caught.value.hint or "")
    assert (trial.folder / "worker-0.raw").read_bytes() == b"raw"
    assert not (tmp_path / shard_path(record)).exists()


def test_two_imports_of_one_source_at_once_bring_each_shard_in_once(tmp_path: Path) -> None:
    for repeat in range(8):
        record = make_record(repeat=repeat)
        ShardStore(tmp_path / "from").begin(record.key, record.case).save(record, make_event_log(), None)
    reports, gate = [], threading.Barrier(4)

    def one() -> None:
        gate.wait()
        reports.append(bring_in(tmp_path / "to", [tmp_path / "from"]))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 4, "one ended with an error"
    assert sum(len(report.copied) for report in reports) == 8
    assert sum(report.present for report in reports) == 24
    assert all(report.rejected == () for report in reports)
    assert Lab(tmp_path / "to").ingest(verify=True).added == 8


@pytest.mark.parametrize("other", [False, True])
def test_a_shard_that_appears_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: bool) -> None:
    record = make_record()
    ShardStore(tmp_path / "from").begin(record.key, record.case).save(record, make_event_log(), None)
    to, rename = tmp_path / "to", Path.rename

    def late(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        bring_in(to, [tmp_path / "from"])
        if other:
            (to / shard_path(record) / "trial.json").write_bytes(b"{}")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    report = bring_in(to, [tmp_path / "from"])
    assert report.copied == ()
    assert (report.present, len(report.rejected)) == ((0, 1) if other else (1, 0))


def test_a_dead_process_leaves_no_work_folder_behind(tmp_path: Path) -> None:
    dead, mine = tmp_path / ".work" / f"run.{dead_pid()}", work_root(tmp_path, "run")
    odd = tmp_path / ".work" / "run.\N{SUPERSCRIPT TWO}"
    for clear in (lambda: adopt(tmp_path), lambda: Lab(tmp_path).ingest(), lambda: work_root(tmp_path, "next")):
        for folder in (dead, mine, odd):
            folder.mkdir(parents=True, exist_ok=True)
        clear()
        assert not dead.exists()
        assert mine.is_dir()
        assert odd.is_dir()


def test_folders_that_cannot_hold_results_are_refused_with_a_next_step(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    odd = [tmp_path / name for name in ("a?b", "a*b", "a[b", "a\\b", "x" * 300, os.fsdecode(b"a\xff"), "a\nb")]
    for folder in [loop, loop / "below", *odd]:
        with pytest.raises(StoreError) as caught:
            check_results(folder)
        assert "--results" in (caught.value.hint or "")
        str(caught.value).encode()


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a{b}", "a;b", "a$b", "a b", "a%41", "s3:b", "~", "#", "é"])
def test_folders_with_other_odd_names_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path(name), tmp_path / name):
        record = make_record(repeat=int(folder.is_absolute()))
        ShardStore(check_results(folder)).begin(record.key, record.case).save(record, make_event_log(), make_telemetry())
        assert Lab(folder).ingest().added == 1
    assert (tmp_path / name / "lab.duckdb").is_file()


def test_loops_and_long_names_below_the_store_are_store_errors(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for folder in (loop, tmp_path / ("x" * 300)):
        assert adopt(folder).adopted == ()
        with pytest.raises(StoreError):
            Lab(folder).ingest()
        record: TrialRecord = make_record()
        with pytest.raises(StoreError):
            ShardStore(folder).begin(record.key, record.case)
