"""The cache: in line with the shards whatever happens, and never in the way of a reader."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bench.errors import StoreError, UsageError
from bench.records import Reason, Status, TrialRecord
from bench.reports.rows import newest
from bench.reports.text import csv_line
from bench.store import Lab, TrialFilter, records, schema
from bench.store.foreign import bring_in
from bench.store.records import count_cases
from bench.store.sql import Answer, ask, change
from bench.store.validation import TRIAL_JSON_LIMIT_B, BadShard, check_record
from tests.factories import make_case, make_event_log, make_host, make_metrics, make_record, make_telemetry, save_trial

ROOT = Path(__file__).parents[2]


def rewrite(shard: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Alter a shard's `trial.json` as someone with an editor would."""
    path = shard / "trial.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def rows(lab: Lab, query: str) -> list[tuple[Any, ...]]:
    return ask(lab, query).rows


# --- what goes in -----------------------------------------------------------------------------------------------------


def test_a_trial_becomes_rows_with_null_for_what_is_missing(tmp_path: Path) -> None:
    reasons = (Reason(code="errors", group="throughput", severity="warning", message="2% failed"),)
    record = make_record(reasons=reasons, metrics=make_metrics(j_per_output_tok=None, tpot_ms=0.0))
    save_trial(tmp_path, record, make_event_log(), make_telemetry())
    lab = Lab(tmp_path)
    assert lab.ingest() == lab.ingest().__class__(added=1)
    trial = rows(lab, "SELECT status, reasons, model, batch_size, devices, started_at, window_s, request_rate, shard FROM trials")
    (status, codes, model, batch, devices, started, window_s, rate, shard) = trial[0]
    assert (status, codes, model, batch, devices, rate) == ("valid", ["errors"], "tiny", 8, ["Example Accelerator"], None)
    assert (str(started), window_s) == ("2026-11-30 15:00:00", 10.0)
    assert (tmp_path / shard).is_dir()
    assert rows(lab, "SELECT value, reason FROM metrics WHERE name = 'j_per_output_tok'") == [(None, "not measured")]
    assert rows(lab, "SELECT ttft_p50_ms, tpot_p50_ms, output_tok_per_s, j_per_output_tok FROM trials_wide") == [
        (50.0, 0.0, 400.0, None)
    ]
    assert rows(lab, "SELECT code, metric_group, severity FROM reasons") == [("errors", "throughput", "warning")]


def test_raw_events_are_queried_where_they_lie(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.ingest()
    for view in ("requests", "chunks", "telemetry"):
        assert rows(lab, f"SELECT count(*) FROM {view}") == [(0,)]
    first = save_trial(tmp_path, make_record(repeat=0), make_event_log(4), make_telemetry(3))
    save_trial(tmp_path, make_record(repeat=1), make_event_log(6), None)
    save_trial(tmp_path, make_record(repeat=2, status=Status.FAILED), None, None)
    lab.ingest()
    assert rows(lab, "SELECT repeat, count(*) FROM requests JOIN trials USING (trial_id) GROUP BY 1 ORDER BY 1") == [
        (0, 4),
        (1, 6),
    ]
    assert rows(lab, "SELECT count(*), count(power_w) FROM telemetry") == [(3, 2)]
    assert rows(lab, "SELECT count(DISTINCT date), count(DISTINCT filename) FROM chunks") == [(1, 2)]
    (first / "requests.parquet").unlink()  # old raw events may be thrown away
    assert rows(lab, "SELECT count(*) FROM requests") == [(6,)]
    assert len(records(lab)) == 3


def test_ingest_follows_the_shards(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    folders = [save_trial(tmp_path, make_record(repeat=i)) for i in range(3)]
    assert lab.ingest().added == 3
    report = lab.ingest()
    assert (report.added, report.unchanged) == (0, 3)
    rewrite(folders[0], lambda c: c.update(error="edited"))
    report = lab.ingest()
    assert (report.added, report.unchanged) == (1, 2)
    assert rows(lab, "SELECT count(*) FROM trials WHERE error = 'edited'") == [(1,)]
    shutil.rmtree(folders[1])
    report = lab.ingest()
    assert (report.removed, report.unchanged) == (1, 2)
    assert rows(lab, "SELECT (SELECT count(*) FROM trials), (SELECT count(DISTINCT trial_id) FROM metrics)") == [(2, 2)]
    os.utime(folders[2] / "trial.json", ns=(1, 1))  # copied about without its times: still the same shard
    assert lab.ingest() == report.__class__(unchanged=2)


def test_progress_is_told(tmp_path: Path) -> None:
    for i in range(3):
        save_trial(tmp_path, make_record(repeat=i))
    seen: list[tuple[int, int]] = []
    Lab(tmp_path).ingest(lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def age(results: Path) -> None:
    """Make every run folder an hour old, as if no shard had come since."""
    for run in (results / "shards").glob("*/*"):
        os.utime(run, ns=(time.time_ns() - 3600 * 10**9,) * 2)


def test_a_refresh_looks_at_no_shard_where_none_came_or_went(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    kept, other = (save_trial(tmp_path, make_record(run_id=run_id)) for run_id in ("run-1", "run-2"))
    assert lab.refresh().added == 2
    assert lab.refresh().unchanged == 2  # so young a folder may have changed within the same tick
    age(tmp_path)
    assert lab.refresh().unchanged == 2
    assert lab.refresh() == lab.refresh().__class__()
    rewrite(kept, lambda c: c.update(error="edited"))  # in place, which is what nobody should do
    assert lab.refresh().added == 0
    shutil.rmtree(other)
    assert lab.refresh() == lab.refresh().__class__(removed=1, unchanged=1)
    assert rows(lab, "SELECT run_id, error FROM trials") == [("run-1", None)]
    assert lab.ingest().added == 1
    assert rows(lab, "SELECT run_id, error FROM trials") == [("run-1", "edited")]


@pytest.mark.parametrize("how", ["a shard more", "a run more", "the database changed", "no database", "a bad shard"])
def test_a_refresh_after_something_happened_is_an_ingest(tmp_path: Path, how: str) -> None:
    save_trial(tmp_path)
    if how == "a bad shard":
        (save_trial(tmp_path, make_record(repeat=5)) / "trial.json").write_text("{", encoding="utf-8")
    lab = Lab(tmp_path)
    lab.ingest()
    age(tmp_path)
    lab.ingest()
    if how == "a shard more":
        save_trial(tmp_path, make_record(repeat=1))
    elif how == "a run more":
        save_trial(tmp_path, make_record(run_id="run-2"))
    elif how == "the database changed":
        change(lab, "CREATE TABLE x (a INTEGER)")
    elif how == "no database":
        lab.database.unlink()
    report = lab.refresh()
    assert (report.added, report.unchanged, len(report.rejected)) == {
        "a shard more": (1, 1, 0),
        "a run more": (1, 1, 0),
        "the database changed": (0, 1, 0),
        "no database": (1, 0, 0),
        "a bad shard": (0, 1, 1),
    }[how]


def test_a_refresh_reads_only_the_runs_in_which_something_happened(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    gone, edited, grown = (save_trial(tmp_path, make_record(run_id=run_id)) for run_id in ("gone", "edited", "grown"))
    bad = save_trial(tmp_path, make_record(run_id="bad"))
    (bad / "trial.json").write_text("{", encoding="utf-8")
    age(tmp_path)
    lab.ingest()
    rewrite(edited, lambda c: c.update(error="edited"))  # would be seen if its run were looked at
    shutil.rmtree(gone.parent)
    save_trial(tmp_path, make_record(run_id="grown", repeat=1))
    shutil.copytree(grown, tmp_path / "shards" / "date=2026-11-30" / "twin" / grown.name)
    report = lab.refresh()
    assert (report.added, report.unchanged, report.removed) == (1, 2, 1)
    assert sorted(Path(rejection.shard).parts[2] for rejection in report.rejected) == ["bad", "twin"]
    assert rows(lab, "SELECT run_id, error FROM trials ORDER BY run_id, repeat") == [
        ("edited", None),
        ("grown", None),
        ("grown", None),
    ]
    assert rows(lab, "SELECT count(DISTINCT trial_id), count(*) FROM metrics") == [(3, 18)]
    shutil.copytree(grown, bad, dirs_exist_ok=True)  # mended in its place: what was refused is looked at each time
    rewrite(bad, lambda c: c["key"].update(run_id="bad", trial_id=bad.name))
    assert lab.refresh().added == 1


def test_a_rebuild_from_shards_gives_the_same_tables_byte_for_byte(tmp_path: Path) -> None:
    reasons = (Reason(code="errors", group="throughput", severity="warning", message="2% failed"),)
    for repeat in (5, 3, 1):
        save_trial(tmp_path, make_record(run_id="b", repeat=repeat, reasons=reasons, metrics=make_metrics(tpot_ms=repeat / 3)))
    lab = Lab(tmp_path)
    lab.ingest()
    for repeat in (4, 0, 2):
        save_trial(tmp_path, make_record(run_id="a", repeat=repeat, error="a, 'b' \n \N{SNOWMAN}"))
        lab.ingest()

    def tables() -> dict[str, bytes]:
        names = [name for name in schema.TABLES if name != "rejected"]
        return {name: csv_bytes(ask(lab, f"FROM {name} ORDER BY ALL")) for name in [*names, "trials_wide", "points", "latest"]}

    before = tables()
    lab.database.unlink()
    assert lab.ingest().added == 6
    assert tables() == before
    assert b"0.3333333333333333" in before["metrics"]


def csv_bytes(answer: Answer) -> bytes:
    return "".join(csv_line(row) for row in [answer.columns, *answer.rows]).encode()


# --- what is refused --------------------------------------------------------------------------------------------------


def text(content: str | bytes) -> Callable[[Path], None]:
    def act(shard: Path) -> None:
        (shard / "trial.json").write_bytes(content.encode() if isinstance(content, str) else content)

    return act


def edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    return lambda shard: rewrite(shard, change)


def replace_text(old: str, new: str) -> Callable[[Path], None]:
    def act(shard: Path) -> None:
        path = shard / "trial.json"
        before = path.read_text(encoding="utf-8")
        assert old in before
        path.write_text(before.replace(old, new), encoding="utf-8")

    return act


def huge(shard: Path) -> None:
    with (shard / "trial.json").open("r+b") as file:
        file.truncate(TRIAL_JSON_LIMIT_B + 1)


def link(shard: Path) -> None:
    (shard / "trial.json").rename(shard / "elsewhere.json")
    (shard / "trial.json").symlink_to(shard / "elsewhere.json")


BAD = {
    "empty": (text(""), "not a trial record"),
    "no json": (text("{"), "not a trial record"),
    "not utf-8": (text(b"\xff\xfe"), "not a trial record"),
    "an array": (text("[]"), "not a trial record"),
    "deep": (text('{"schema_version": 1, "extra": ' + "[" * 100_000), "not a trial record"),
    "future": (edit(lambda c: c.update(schema_version=99)), "newer than this bench"),
    "future and strange": (text('{"schema_version": 2, "key": 7}'), "newer than this bench"),
    "no version of ours": (edit(lambda c: c.update(schema_version=0)), "unknown"),
    "missing key": (edit(lambda c: c.pop("key")), "missing required field `key`"),
    "wrong type": (edit(lambda c: c.update(status="fine")), "status"),
    "nan": (replace_text('"value": 400.0', '"value": NaN'), "not a trial record"),
    "infinity": (replace_text('"value": 400.0', '"value": 1e999'), "out of range"),
    "beyond 64 bits": (edit(lambda c: c["window"].update(t1_ns=10**30)), "64 bits"),
    "no date": (edit(lambda c: c["started"].update(wall_ns=2**63 - 1)), "lies in|not a date"),
    "run id climbs": (edit(lambda c: c["key"].update(run_id="../../etc")), "can't be a folder's name"),
    "trial id climbs": (edit(lambda c: c["key"].update(trial_id="..")), "can't be a folder's name"),
    "file climbs": (edit(lambda c: c.update(files={"../../passwd": "0"})), "no part of a shard"),
    "file is absolute": (edit(lambda c: c.update(files={"/etc/passwd": "0"})), "no part of a shard"),
    "other trial": (edit(lambda c: c["key"].update(trial_id="another")), "belongs in"),
    "other run": (edit(lambda c: c["key"].update(run_id="another")), "belongs in"),
    "metric of another name": (edit(lambda c: c["metrics"]["ttft_ms"].update(name="tpot_ms")), "holds a metric named"),
    "sibling gone": (lambda shard: (shard / "chunks.parquet").unlink(), "chunks.parquet is missing"),
    "no trial.json": (lambda shard: (shard / "trial.json").unlink(), "trial.json is missing"),
    "huge": (huge, "more than"),
    "a link": (link, "no plain file"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_shard_is_refused_with_the_reason_and_stops_nothing(tmp_path: Path, name: str) -> None:
    spoil, reason = BAD[name]
    save_trial(tmp_path, make_record(repeat=0))
    bad = save_trial(tmp_path, make_record(repeat=1), make_event_log(), None)
    save_trial(tmp_path, make_record(repeat=2))
    spoil(bad)
    lab = Lab(tmp_path)
    report = lab.ingest()
    assert report.added == 2
    (rejection,) = report.rejected
    assert bad == tmp_path / rejection.shard
    assert re.search(reason, rejection.reason), rejection.reason
    assert rows(lab, "SELECT shard, reason FROM rejected") == [(rejection.shard, rejection.reason)]
    again = lab.ingest()
    assert (again.added, again.unchanged, again.rejected) == (0, 2, report.rejected)
    shutil.rmtree(bad)
    assert lab.ingest().rejected == ()
    assert rows(lab, "SELECT count(*) FROM rejected") == [(0,)]


@pytest.mark.parametrize(
    "value", [0, 2**63 - 1, 2**63, 9_999_999_999_999_999_999, 10**19, 10**400, -(2**63), -(2**63) - 1, -(10**19)]
)
def test_an_integer_is_taken_where_it_fits_into_64_bits(value: int) -> None:
    record = make_record(case=make_case(seed=value), extra={"any": [10**400]})  # what is in `extra` goes into no column
    if -(2**63) <= value < 2**63:
        check_record(record)
    else:
        with pytest.raises(BadShard, match=r"\$.case.seed does not fit into 64 bits"):
            check_record(record)


def test_a_changed_sibling_shows_under_verify_only(tmp_path: Path) -> None:
    bad = save_trial(tmp_path, make_record(repeat=0), make_event_log(), None)
    save_trial(tmp_path, make_record(repeat=1), make_event_log(), None)
    with (bad / "requests.parquet").open("ab") as file:
        file.write(b"x")
    lab = Lab(tmp_path)
    assert lab.ingest().added == 2
    report = lab.ingest(verify=True)
    assert report.unchanged == 1
    assert "requests.parquet" in report.rejected[0].reason
    assert rows(lab, "SELECT count(*) FROM trials") == [(1,)]


def test_a_good_trial_that_turns_bad_leaves_the_tables(tmp_path: Path) -> None:
    shard = save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    (shard / "trial.json").write_text("{", encoding="utf-8")
    assert len(lab.ingest().rejected) == 1
    assert rows(lab, "SELECT (SELECT count(*) FROM trials), (SELECT count(*) FROM metrics)") == [(0, 0)]


def test_one_trial_id_with_two_contents_keeps_the_first(tmp_path: Path) -> None:
    shard = save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    other = tmp_path / "shards" / "date=2026-11-30" / "aaa-earlier-by-name" / shard.name
    shutil.copytree(shard, other)
    rewrite(other, lambda c: c["key"].update(run_id="aaa-earlier-by-name"))
    report = lab.ingest()
    assert report.unchanged == 1
    assert "already that of" in report.rejected[0].reason
    assert rows(lab, "SELECT run_id FROM trials") == [("run-1",)]


# --- databases that are old, broken or shared -------------------------------------------------------------------------


def spoil_database(path: Path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"not a database" * 100)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "other schema":
        path.unlink()
        with duckdb.connect(str(path)) as con:
            con.execute("CREATE TABLE trials (a INTEGER)")
    elif how == "older tag":
        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE meta SET schema_tag = 'older'")


@pytest.mark.parametrize("how", ["garbage", "cut", "empty", "other schema", "older tag"])
def test_a_database_that_is_not_ours_is_rebuilt_from_the_shards(tmp_path: Path, how: str) -> None:
    save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    spoil_database(lab.database, how)
    assert lab.ingest().added == 1
    assert rows(lab, "SELECT count(*) FROM trials") == [(1,)]
    assert rows(lab, "SELECT schema_tag FROM meta") == [(schema.SCHEMA_TAG,)]


@pytest.mark.parametrize("at", range(9_000, 120_000, 12_345))
def test_a_damaged_database_is_rebuilt_or_named_and_never_a_crash(tmp_path: Path, at: int) -> None:
    for repeat in range(30):
        save_trial(tmp_path, make_record(repeat=repeat))
    lab = Lab(tmp_path)
    lab.ingest()
    data = bytearray(lab.database.read_bytes())
    at %= len(data)
    data[at : at + 3000] = b"\xa5" * min(3000, len(data) - at)
    lab.database.write_bytes(data)
    hint = "delete"
    try:
        assert lab.ingest().rejected == ()
        found = len(records(lab))
    except StoreError as error:
        hint = error.hint or ""
        lab.database.unlink()
        found = lab.ingest().added
    assert "delete" in hint
    assert found == 30


def test_a_left_over_log_of_another_tool_is_not_replayed(tmp_path: Path) -> None:
    save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    save_trial(tmp_path, make_record(repeat=1))
    (tmp_path / "lab.duckdb.wal").write_bytes(b"stale" * 100)
    lab.ingest()
    assert rows(lab, "SELECT count(*) FROM trials") == [(2,)]
    assert not (tmp_path / "lab.duckdb.wal").exists()


def test_a_reader_keeps_its_state_and_is_not_in_the_way(tmp_path: Path) -> None:
    save_trial(tmp_path, make_record(repeat=0))
    lab = Lab(tmp_path)
    lab.ingest()
    with lab.connect() as before:
        save_trial(tmp_path, make_record(repeat=1))
        assert lab.ingest().added == 1
        with lab.connect() as after:
            assert after.execute("SELECT count(*) FROM trials").fetchall() == [(2,)]
        assert before.execute("SELECT count(*) FROM trials").fetchall() == [(1,)]


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    with lab.changing() as con:
        con.execute("DELETE FROM trials")
        assert rows(lab, "SELECT count(*) FROM trials") == [(1,)]


def test_a_second_writer_waits_and_says_so(tmp_path: Path) -> None:
    save_trial(tmp_path)
    holder = os.open(tmp_path / ".lab.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    told: list[str] = []

    def on_wait(message: str) -> None:
        told.append(message)
        os.close(holder)

    assert Lab(tmp_path, on_wait=on_wait).ingest().added == 1
    assert len(told) == 1
    assert "waiting for another bench" in told[0]


_WRITE_AND_INGEST = """
import sys
from pathlib import Path
from bench.store import Lab
from tests.factories import make_record, save_trial

results, run_id = Path(sys.argv[1]), sys.argv[2]
for repeat in range(6):
    save_trial(results, make_record(run_id=run_id, repeat=repeat))
    Lab(results).ingest()
"""


def test_two_processes_write_and_ingest_at_once_while_one_reads(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.ingest()
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITE_AND_INGEST, str(tmp_path), f"run-{n}"], cwd=ROOT, stderr=subprocess.PIPE)
        for n in range(2)
    ]
    counts = []
    while any(writer.poll() is None for writer in writers):
        counts.append(rows(lab, "SELECT count(*) FROM trials")[0][0])
    for writer in writers:
        _, stderr = writer.communicate()
        assert writer.returncode == 0, stderr
    assert counts == sorted(counts)
    assert lab.ingest().unchanged == 12
    assert rows(lab, "SELECT count(*), count(DISTINCT trial_id) FROM trials") == [(12, 12)]


_IMPORT = """
import sys
from pathlib import Path
from bench.store import Lab
from bench.store.foreign import bring_in

print("ready", flush=True)
bring_in(Path(sys.argv[1]), [sys.argv[2]])
Lab(Path(sys.argv[1])).ingest()
"""


@pytest.mark.parametrize("moments", [3, pytest.param(60, marks=[pytest.mark.proof, pytest.mark.timeout(3600)])])
def test_kill_nine_while_shards_are_brought_in_leaves_whole_ones_only(tmp_path: Path, moments: int) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for repeat in range(8):
        save_trial(theirs, make_record(repeat=repeat), make_event_log(), None)
    chance = random.Random(11)
    for _ in range(moments):
        shutil.rmtree(ours, ignore_errors=True)
        child = subprocess.Popen([sys.executable, "-c", _IMPORT, str(ours), str(theirs)], cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        ours.mkdir(exist_ok=True)
        assert Lab(ours).ingest(verify=True).rejected == ()
        report = bring_in(ours, [theirs])
        assert (report.rejected, len(report.copied) + report.present) == ((), 8)
        Lab(ours).ingest(verify=True)
        assert list((ours / ".work").iterdir()) == []
        assert rows(Lab(ours), "SELECT count(*), count(DISTINCT trial_id) FROM trials") == [(8, 8)]


def test_the_database_opens_in_older_duckdb(tmp_path: Path) -> None:
    save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    save_trial(tmp_path, make_record(repeat=1))
    lab.ingest()  # a changed copy keeps the format
    version = int.from_bytes(lab.database.read_bytes()[12:20], "little")
    assert version < 69, "storage formats from 69 on need DuckDB 2"


def test_no_space_for_the_database_is_one_clear_error(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from bench.errors import StoreError
from bench.store import Lab
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
try:
    Lab(Path(sys.argv[1])).ingest()
except StoreError as error:
    sys.exit(str(error))
"""
    save_trial(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert "can't write" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lab.lock", "shards"]


def test_five_hundred_trials_are_quick(tmp_path: Path) -> None:
    for repeat in range(500):
        save_trial(tmp_path, make_record(run_id=f"run-{repeat % 20}", repeat=repeat))
    lab = Lab(tmp_path)
    began = time.process_time()
    assert lab.ingest().added == 500
    assert time.process_time() - began < 15  # about one; a row at a time took minutes
    assert lab.ingest().unchanged == 500
    assert rows(lab, "SELECT count(*) FROM metrics") == [(3000,)]


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM trials",
        "DROP TABLE trials",
        "CREATE TABLE x (a INTEGER)",
        "COPY trials TO 'out.csv'",
        "COPY (SELECT 1) TO 'results/shards/x.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
        "explain  analyze  DELETE FROM trials",
        "EXPLAIN (FORMAT json) DELETE FROM trials",
        "SELECT 1; DELETE FROM trials",
        "ATTACH 'other.duckdb'",
        "SET threads = 1",
        "INSTALL httpfs",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELEC 1",
        "SELECT nothing FROM trials",
        "",
        "-- nothing",
    ],
)
def test_a_query_that_writes_reaches_out_or_is_wrong_is_one_usage_error(tmp_path: Path, query: str) -> None:
    save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError):
        ask(lab, query)
    assert rows(lab, "SELECT count(*) FROM trials") == [(1,)]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT ttft_p50 FROM trials_wide", "trials_wide has ttft_p50_ms"),
        ("SELECT w.output_tok_s FROM trials_wide w", "output_tok_per_s"),
        ("SELECT ttft_p50_ms FROM trials", "trials_wide has ttft_p50_ms"),
        ("SELECT modle FROM points", "points has model; all columns: bench sql 'DESCRIBE points'"),
        ("SELECT outcom FROM requests", "requests has outcome"),
        ("SELECT m.valeu FROM trials t JOIN metrics m USING (trial_id)", "metrics has value"),
        ("SELECT zzz FROM trials", "columns: bench sql 'DESCRIBE trials'"),
        ("FROM trial", "did you mean trials"),
        ("FROM lab.metric", "did you mean metrics"),
        ("SELECT 1 FROM cost", "did you mean costs"),
        ("FROM finding", "did you mean findings"),
        ("FROM zzz", "bench sql 'SHOW TABLES'"),
        ("SELECT median(1, 2, 3)", "bench sql 'SHOW TABLES'"),
    ],
)
def test_a_wrong_name_is_answered_with_near_ones(tmp_path: Path, query: str, told: str) -> None:
    lab = Lab(tmp_path)
    lab.ingest()
    with pytest.raises(UsageError) as caught:
        ask(lab, query)
    assert told in (caught.value.hint or "")


READING = (
    "FROM trials",
    "SHOW TABLES",
    "DESCRIBE requests",
    "SUMMARIZE trials",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE FROM trials",
    "PIVOT metrics ON name USING max(value) GROUP BY trial_id",
    "WITH t AS (FROM trials) FROM t",
    "PRAGMA table_info('trials')",
)


@pytest.mark.parametrize("query", READING)
def test_every_kind_of_reading_works(tmp_path: Path, query: str) -> None:
    save_trial(tmp_path, None, make_event_log(), None)
    lab = Lab(tmp_path)
    lab.ingest()
    assert ask(lab, query).rows


def test_a_change_replaces_the_database_and_survives_an_ingest(tmp_path: Path) -> None:
    save_trial(tmp_path)
    lab = Lab(tmp_path)
    lab.ingest()
    change(lab, "CREATE TABLE notes AS SELECT 'x' AS note")
    save_trial(tmp_path, make_record(repeat=1))
    lab.ingest()
    assert rows(lab, "FROM notes") == [("x",)]
    with pytest.raises(UsageError):
        change(lab, "DELETE FROM trials; SELEC")
    with pytest.raises(UsageError):
        change(lab, "DELETE FROM trials; SELECT nothing FROM trials")
    assert rows(lab, "SELECT count(*) FROM trials") == [(2,)]


def test_a_database_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't open"):
        ask(Lab(tmp_path), "SELECT 1")


def test_a_folder_that_cannot_be_written_is_read_through_a_temporary_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_trial(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # tests may run as root, who may write anything
    with Lab.for_reading(tmp_path) as lab:
        assert lab.ingest().added == 1
        assert rows(lab, "SELECT count(*) FROM trials") == [(1,)]
        assert lab.database.parent != tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]
    assert not lab.database.exists()


def test_filters_pick_trials(tmp_path: Path) -> None:
    other = make_case(model="big", engine="openai", suite="nightly")
    save_trial(tmp_path, make_record(run_id="a"))
    save_trial(tmp_path, make_record(run_id="b", repeat=5, case=other, status=Status.INVALID))
    lab = Lab(tmp_path)
    lab.ingest()

    def runs(**wanted: str) -> list[str]:
        return [record.key.run_id for record in records(lab, TrialFilter(**wanted))]

    assert runs() == ["a", "b"]
    assert runs(run_id="latest") == ["b"]
    assert runs(run_id="a") == ["a"]
    assert runs(model="big") == runs(engine="openai") == runs(suite="nightly") == runs(status="invalid") == ["b"]
    assert runs(model="big", status="valid") == []
    assert runs(model="x' OR '1'='1") == []
    with pytest.raises(UsageError, match="no run 'c'"):
        runs(run_id="c")


def test_the_last_runs_are_all_that_the_newest_trials_are_chosen_from(tmp_path: Path) -> None:
    names_of_cases = ("good", "failed since", "never good", "two hosts")
    cases = {name: make_case(name=name, seed=seed) for seed, name in enumerate(names_of_cases)}
    plan = [  # (case, run, start in units of 20 s, valid, host)
        ("good", "a", 0, True, "h1"), ("good", "a", 1, False, "h1"), ("good", "b", 2, True, "h1"), ("good", "b", 3, True, "h1"),
        ("failed since", "a", 0, True, "h1"), ("failed since", "b", 2, False, "h1"), ("failed since", "c", 4, False, "h1"),
        ("never good", "a", 0, False, "h1"), ("never good", "b", 2, False, "h1"),
        ("two hosts", "a", 0, True, "h1"), ("two hosts", "b", 2, True, "h2"), ("two hosts", "c", 4, False, "h2"),
    ]  # fmt: skip
    for name, run_id, at, valid, host in plan:
        status = Status.VALID if valid else Status.FAILED
        record = make_record(case=cases[name], run_id=run_id, repeat=at, status=status, host=make_host(host_id=host))
        save_trial(tmp_path, record)
    lab = Lab(tmp_path)
    lab.ingest()

    def names(found: list[TrialRecord]) -> list[tuple[str, str]]:
        return sorted({(record.case.name, record.key.run_id) for record in found})

    few, every = records(lab, last_runs=True), records(lab)
    assert newest(few) == newest(every)
    assert names(few) == [
        ("failed since", "a"), ("failed since", "c"), ("good", "b"), ("never good", "b"), ("two hosts", "a"), ("two hosts", "b"),
        ("two hosts", "c"),
    ]  # fmt: skip
    last = records(lab, last_runs=True, most_cases=2)
    assert names(last) == [("failed since", "a"), ("failed since", "c"), *names(few)[-3:]]
    assert (count_cases(lab, TrialFilter()), count_cases(lab, TrialFilter(run_id="c"))) == (4, 2)
    failed = TrialFilter(status="failed")
    assert newest(records(lab, failed, last_runs=True)) == newest(records(lab, failed))


# --- shards from elsewhere --------------------------------------------------------------------------------------------


def test_foreign_shards_are_copied_once(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    save_trial(theirs, make_record(repeat=0), make_event_log(), make_telemetry())
    save_trial(theirs, make_record(repeat=1))
    report = bring_in(ours, [theirs])
    assert (len(report.copied), report.present, report.rejected) == (2, 0, ())
    assert Lab(ours).ingest(verify=True).added == 2
    again = bring_in(ours, [theirs / "shards"])
    assert (again.copied, again.present) == ((), 2)
    assert list((ours / ".work").iterdir()) == []


def test_a_bad_foreign_shard_is_refused_and_the_rest_comes_in(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    bad = save_trial(theirs, make_record(repeat=0), make_event_log(), None)
    save_trial(theirs, make_record(repeat=1))
    (bad / "chunks.parquet").write_bytes(b"other")
    same_id = save_trial(theirs, make_record(repeat=2))
    save_trial(ours, make_record(repeat=2, error="mine"))
    report = bring_in(ours, [theirs])
    assert len(report.copied) == 1
    assert {Path(r.shard) for r in report.rejected} == {bad, same_id}
    assert not (ours / "shards" / "date=2026-11-30" / "run-1" / bad.name).exists()


@pytest.mark.parametrize("kind", ["nothing there", "a file", "no shard in it"])
def test_a_path_without_shards_is_a_usage_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "path"
    if kind == "a file":
        path.write_text("x", encoding="utf-8")
    elif kind == "no shard in it":
        path.mkdir()
    with pytest.raises(UsageError, match="path"):
        bring_in(tmp_path / "ours", [path])
