"""Shards: written whole or not at all, read back exactly, adopted after a death."""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench import codec
from bench.errors import StoreError
from bench.records import EventLog, Metric, Reading, Status, Telemetry, TrialRecord
from bench.store import ShardStore
from bench.store.parquet import read_log, read_readings, write_log, write_telemetry
from bench.store.shards import encode_record
from tests.factories import make_case, make_event_log, make_metrics, make_record, make_telemetry, same_log, save_trial

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=20)


def read(folder: Path) -> TrialRecord:
    return codec.decode((folder / "trial.json").read_bytes(), TrialRecord)


def test_a_saved_trial_lies_under_its_utc_date_with_hashes_of_its_siblings(tmp_path: Path) -> None:
    record = make_record()
    trial = ShardStore(tmp_path).begin(record.key, record.case)
    (trial.folder / "engine.log").write_text("hello\n", encoding="utf-8")
    (trial.folder / "worker-0.raw").write_bytes(b"spilled")
    (trial.folder / "deeper").mkdir()
    (trial.folder / "deeper" / "raw").write_bytes(b"spilled")

    folder = trial.save(record, make_event_log(), make_telemetry())

    assert folder == tmp_path / "shards" / "date=2026-11-30" / "run-1" / record.key.trial_id
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["chunks.parquet", "engine.log", "requests.parquet", "telemetry.parquet", "trial.json"]
    stored = read(folder)
    assert stored == structs.replace(record, files=stored.files)
    assert stored.files == {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in names if n != "trial.json"}
    assert list((tmp_path / "shards" / ".partial").iterdir()) == []


def test_a_failed_trial_without_events_leaves_a_shard(tmp_path: Path) -> None:
    record = make_record(status=Status.FAILED, error="engine died", metrics={}, window=None)
    folder = save_trial(tmp_path, record)
    assert [path.name for path in folder.iterdir()] == ["trial.json"]
    assert read(folder).error == "engine died"


def test_a_broken_load_keeps_what_it_spilled(tmp_path: Path) -> None:
    record = make_record(status=Status.FAILED)
    trial = ShardStore(tmp_path, recover=lambda folder: make_event_log(2)).begin(record.key, record.case)
    (trial.folder / "worker-0.raw").write_bytes(b"spilled")
    folder = trial.save(record, None, None)
    assert same_log(read_log(folder), make_event_log(2))
    assert read(folder).extra == {"event_log": "recovered: 2 requests"}


def test_a_trial_is_saved_once(tmp_path: Path) -> None:
    record = make_record()
    trial = ShardStore(tmp_path).begin(record.key, record.case)
    trial.save(record, None, None)
    with pytest.raises(StoreError, match="saved already"):
        trial.save(record, None, None)
    with pytest.raises(StoreError, match="there already"):
        save_trial(tmp_path, record)


@given(
    values=st.lists(FINITE, min_size=1, max_size=4),
    text=TEXT,
    extra=st.dictionaries(TEXT, st.none() | st.booleans() | FINITE | TEXT, max_size=3),
    wall_ns=st.integers(min_value=0, max_value=4_000_000_000 * 10**9),
)
@settings(max_examples=60, deadline=None)
def test_a_record_survives_json(values: list[float], text: str, extra: dict[str, object], wall_ns: int) -> None:
    base = make_record()
    record = make_record(
        case=make_case(name=text, labels={text: text}),
        error=text,
        metrics=make_metrics(output_tok_per_s=values[0], ttft_ms=None),
        engine_metrics_after={f"m{i}": v for i, v in enumerate(values)},
        extra=extra,
        started=structs.replace(base.started, wall_ns=wall_ns),
    )
    assert codec.decode(encode_record(record), TrialRecord) == record


def test_what_json_cannot_hold_does_not_cost_the_trial(tmp_path: Path) -> None:
    odd = Metric(name="output_tok_per_s", unit="tok/s", value=np.float64(2.5), n=np.int64(3))  # type: ignore[arg-type]
    record = make_record(
        error="bad byte \udc80",
        engine_metrics_before={"ok": 1.0, "nan": float("nan"), "inf": float("inf")},
        metrics={"output_tok_per_s": odd},
    )
    stored = read(save_trial(tmp_path, record))
    assert stored.engine_metrics_before == {"ok": 1.0}
    assert stored.error == "bad byte ?"
    assert (stored.metrics["output_tok_per_s"].value, stored.metrics["output_tok_per_s"].n) == (2.5, 3)


# --- Parquet ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [make_event_log(), make_event_log(1), make_event_log(50, 1), make_event_log(3, 0)])
def test_an_event_log_survives_parquet(tmp_path: Path, log: EventLog) -> None:
    write_log(tmp_path, "t", log)
    assert same_log(read_log(tmp_path), log)


def test_counts_of_a_tokenizer_survive_parquet(tmp_path: Path) -> None:
    log = structs.replace(make_event_log(3, 0), output_retokenized=np.array([4, -1, 5]))
    write_log(tmp_path, "t", log)
    assert same_log(read_log(tmp_path), log)


def test_a_log_of_an_earlier_bench_without_the_newest_column_is_read(tmp_path: Path) -> None:
    log = make_event_log()
    write_log(tmp_path, "t", log)
    path = tmp_path / "requests.parquet"
    older = f"SELECT * EXCLUDE (output_retokenized_tokens) FROM '{path}'"
    duckdb.sql(f"COPY ({older}) TO '{tmp_path}/older.parquet' (FORMAT parquet)")
    (tmp_path / "older.parquet").replace(path)
    assert same_log(read_log(tmp_path), log)


def test_an_empty_event_log_survives_parquet(tmp_path: Path) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    special = {"finish_reason": (), "error": (), "output_retokenized": None}
    log = EventLog(**{f.name: special.get(f.name, nothing) for f in structs.fields(EventLog)})  # type: ignore[arg-type]
    write_log(tmp_path, "t", log)
    assert same_log(read_log(tmp_path), log)


@given(errors=st.lists(st.none() | st.text(max_size=8), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_texts_survive_parquet(tmp_path_factory: pytest.TempPathFactory, errors: list[str | None]) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = structs.replace(make_event_log(len(errors)), error=tuple(errors))
    write_log(folder, "o'clock", log)
    assert read_log(folder).error == log.error


def test_missing_is_null_and_zero_is_zero_in_parquet(tmp_path: Path) -> None:
    write_log(tmp_path, "t", make_event_log(2))
    columns = "trial_id, outcome, http_status, cached_tokens, scheduled_ns"
    rows = duckdb.execute(f"SELECT {columns} FROM '{tmp_path}/requests.parquet'").fetchall()
    assert rows == [("t", "ok", 200, 0, None), ("t", "connect", None, None, None)]
    kinds = duckdb.execute(f"SELECT DISTINCT kind, tokens FROM '{tmp_path}/chunks.parquet'").fetchall()
    assert kinds == [("content", None)]


def test_readings_survive_parquet(tmp_path: Path) -> None:
    readings = (
        Reading(uid="a", before_ns=1, after_ns=2),
        Reading(uid="a", before_ns=3, after_ns=4, power_w=0.0, energy_j=1.5, memory_used_b=2**60 + 1, throttle=()),
        Reading(uid="b", before_ns=5, after_ns=6, utilisation=0.5, temperature_c=40.0, clock_mhz=1980.0, throttle=("x", "y")),
    )
    write_telemetry(tmp_path, "t", Telemetry(readings=readings, idle_readings=readings[:1]))
    assert read_readings(tmp_path) == (readings[:1], readings)
    write_telemetry(tmp_path, "t", Telemetry())
    assert read_readings(tmp_path) == ((), ())


def test_every_field_of_a_reading_and_of_a_log_is_stored(tmp_path: Path) -> None:
    """A field that someone adds and nobody stores would be lost to whoever works the numbers out again."""
    full = Reading(
        uid="a", before_ns=1, after_ns=2, power_w=1.5, energy_j=2.5, memory_used_b=3, utilisation=0.5, temperature_c=4.5,
        clock_mhz=5.5, throttle=("x",), foreign_processes=2.0, engine_memory_b=6,
    )  # fmt: skip
    assert all(getattr(full, f.name) is not None for f in structs.fields(Reading))
    write_telemetry(tmp_path, "t", Telemetry(readings=(full,)))
    assert read_readings(tmp_path)[1] == (full,)
    fields = {f.name: np.full(1, i) for i, f in enumerate(structs.fields(EventLog))}
    texts = {"finish_reason": ("stop",), "error": ("why",)}
    one = np.ones(1, dtype=np.int64)
    few = {"outcome": one, "chunk_kind": one, "chunk_request": 0 * one}
    log = EventLog(**{**fields, **texts, **few})  # type: ignore[arg-type]
    write_log(tmp_path, "t", log)
    assert same_log(read_log(tmp_path), log)


def test_readings_of_an_earlier_bench_lack_what_it_did_not_know(tmp_path: Path) -> None:
    write_telemetry(tmp_path, "t", Telemetry(readings=(Reading(uid="a", before_ns=1, after_ns=2, power_w=1.5),)))
    path = tmp_path / "telemetry.parquet"
    duckdb.execute(
        f"COPY (SELECT * EXCLUDE (foreign_processes, engine_memory_b) FROM '{path}') TO '{tmp_path}/old.parquet' (FORMAT parquet)"
    )
    (tmp_path / "old.parquet").replace(path)
    assert read_readings(tmp_path)[1] == (Reading(uid="a", before_ns=1, after_ns=2, power_w=1.5),)


def test_a_nan_reading_is_null(tmp_path: Path) -> None:
    write_telemetry(tmp_path, "t", Telemetry(readings=(Reading(uid="a", before_ns=1, after_ns=2, power_w=float("nan")),)))
    assert read_readings(tmp_path)[1][0].power_w is None


# --- a folder that can't be written -----------------------------------------------------------------------------------


@pytest.mark.parametrize("blocked", ["results", "results/shards", "results/shards/.partial"])
def test_a_file_in_the_way_is_named(tmp_path: Path, blocked: str) -> None:
    path = tmp_path / blocked
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way", encoding="utf-8")
    record = make_record()
    with pytest.raises(StoreError, match=r"can't (make|write) .*partial") as caught:
        ShardStore(tmp_path / "results").begin(record.key, record.case)
    assert "--results" in (caught.value.hint or "")
    assert path.read_text(encoding="utf-8") == "in the way"


def test_a_read_only_folder_is_named_with_the_reason() -> None:
    record = make_record()
    with pytest.raises(StoreError, match=r"can't write /proc/.*: ") as caught:  # not even root may write there
        ShardStore(Path("/proc/results")).begin(record.key, record.case)
    assert "BENCH_RESULTS" in (caught.value.hint or "")


def test_a_live_trial_of_the_same_id_is_not_touched(tmp_path: Path) -> None:
    record = make_record()
    store = ShardStore(tmp_path)
    trial = store.begin(record.key, record.case)
    with pytest.raises(StoreError, match="being written by another") as caught:
        store.begin(record.key, record.case)
    assert "keeps what" in (caught.value.hint or "")  # never a hint to throw it away
    assert trial.save(record, None, None).is_dir()


@pytest.mark.parametrize("run_id", ["../up", "a/b", "", ".hidden", "x" * 200, "a\nb"])
def test_a_run_id_that_is_no_name_is_refused(tmp_path: Path, run_id: str) -> None:
    record = make_record(run_id=run_id)
    with pytest.raises(StoreError, match="can't be a folder's name"):
        ShardStore(tmp_path).begin(record.key, record.case)
    assert list(tmp_path.iterdir()) == []


_SAVE_WITH_LITTLE_SPACE = """
import resource, signal, sys
from pathlib import Path
from bench.errors import StoreError
from bench.store import ShardStore
from tests.factories import make_event_log, make_record, make_telemetry

results, limit_b = Path(sys.argv[1]), int(sys.argv[2])
record = make_record()
trial = ShardStore(results).begin(record.key, record.case)
log, telemetry = make_event_log(3000, 20), make_telemetry(2000)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit_b, limit_b))
try:
    trial.save(record, log, telemetry)
except StoreError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.parametrize("limit_b", [0, 100, 3000, 40_000])
def test_no_space_at_any_file_is_one_clear_error_and_nothing_half_visible(tmp_path: Path, limit_b: int) -> None:
    command = [sys.executable, "-c", _SAVE_WITH_LITTLE_SPACE, str(tmp_path), str(limit_b)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    assert "can't write" in done.stdout
    assert "free)" in done.stdout
    assert [path.name for path in (tmp_path / "shards").iterdir()] == [".partial"]
    kept = tmp_path / "shards" / ".partial" / make_record().key.trial_id
    assert (kept / "owner.json").is_file()


def test_no_space_at_the_start_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from pathlib import Path
from bench.errors import StoreError
from bench.store import ShardStore
from tests.factories import make_record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    ShardStore(Path(sys.argv[1])).begin(make_record().key, make_record().case)
except StoreError as error:
    sys.exit(str(error))
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60, check=False)
    assert "can't write" in done.stderr
    assert "File too large" in done.stderr
    assert list((tmp_path / "shards" / ".partial").iterdir()) == []


def test_the_file_limit_above_is_what_stops_it(tmp_path: Path) -> None:
    limit = str(resource.RLIM_INFINITY)
    command = [sys.executable, "-c", _SAVE_WITH_LITTLE_SPACE, str(tmp_path), limit]
    assert subprocess.run(command, cwd=Path(__file__).parents[2], timeout=60, check=False).returncode == 0
    assert [p.name for p in (tmp_path / "shards" / "date=2026-11-30" / "run-1").iterdir()] == [make_record().key.trial_id]
