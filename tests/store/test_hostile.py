"""Shards made to do harm: each is refused with its reason, and the good ones beside it come in all the same."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import socket
import stat
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pytest

from bench import clock
from bench.errors import MissingError, StoreError, UsageError
from bench.records import Metric, Reading, Telemetry
from bench.store import Lab
from bench.store.foreign import bring_in
from bench.store.sql import ask
from bench.store.validation import BadShard, check_record
from bench.timing.spec import SPECS
from tests.factories import make_case, make_device, make_event_log, make_metric, make_record, make_telemetry, save_trial

DAY_NS = 86_400 * 10**9


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with two good trials; the second is the one to spoil."""
    results = tmp_path_factory.mktemp("pristine")
    save_trial(results, make_record(repeat=0), make_event_log(), make_telemetry())
    save_trial(results, make_record(repeat=1), make_event_log(), make_telemetry())
    return results


@pytest.fixture
def theirs(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(pristine, tmp_path / "theirs")


def second(results: Path) -> Path:
    return next((results / "shards").glob(f"*/*/{make_record(repeat=1).key.trial_id}"))


def rewrite(shard: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((shard / "trial.json").read_text(encoding="utf-8"))
    change(content)
    (shard / "trial.json").write_text(json.dumps(content), encoding="utf-8")


def vouch(shard: Path) -> None:
    """Give the record the hashes of its siblings as they are: whoever forges a file forges its hash as well."""
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in shard.iterdir() if p.is_file() and p.name != "trial.json"}
    rewrite(shard, lambda c: c.update(files=sums))


def parquet(query: str, name: str = "requests.parquet") -> Callable[[Path], None]:
    """Replace a file by the rows of a query over what it had (`old`)."""

    def act(shard: Path) -> None:
        path = shard / name
        with duckdb.connect() as con:
            con.execute(f"CREATE TABLE old AS FROM read_parquet('{path}', hive_partitioning = false)")
            con.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
        vouch(shard)

    return act


def data(content: bytes, name: str = "requests.parquet") -> Callable[[Path], None]:
    def act(shard: Path) -> None:
        (shard / name).write_bytes(content)
        vouch(shard)

    return act


def claims_a_billion_rows(shard: Path) -> None:
    """The footer's count of rows, a zigzag varint after the schema (field 3: 0x16), is made 10^9; the row group keeps its own."""
    path = shard / "requests.parquet"
    before = path.read_bytes()
    length = int.from_bytes(before[-8:-4], "little")
    body, footer = before[: -8 - length], before[-8 - length : -8]
    count = bytes([0x16, 2 * 4])
    assert footer.count(count) >= 1
    forged = footer.replace(count, b"\x16" + b"\x80\xa8\xd6\xb9\x07", 1)
    path.write_bytes(body + forged + len(forged).to_bytes(4, "little") + b"PAR1")
    vouch(shard)


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda shard: rewrite(shard, change)


def linked(shard: Path) -> None:
    (shard / "engine.log").symlink_to("/etc/passwd")
    rewrite(shard, lambda c: c["files"].update({"engine.log": hashlib.sha256(Path("/etc/passwd").read_bytes()).hexdigest()}))


def folder_for_a_log(shard: Path) -> None:
    (shard / "engine.log").mkdir()
    rewrite(shard, lambda c: c["files"].update({"engine.log": "0"}))


def deep(shard: Path) -> None:
    (shard / "trial.json").write_text('{"schema_version": 1, "extra": ' + "[" * 100_000, encoding="utf-8")


def ahead(days: float) -> Callable[[Path], None]:
    def act(shard: Path) -> None:
        at_ns = clock.SYSTEM.wall_ns() + int(days * DAY_NS)
        rewrite(shard, lambda c: (c["started"].update(wall_ns=at_ns), c["ended"].update(wall_ns=at_ns + 10**10)))

    return act


SQL = "x'); DROP TABLE trials; --"
SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "more rows than it can hold": (parquet("SELECT 'x' AS trial_id, 1 AS request FROM range(5_000_000)"), r"claims 5000000 rows"),
    "10^9 rows that are not": (claims_a_billion_rows, "1000000000 rows"),
    "unpacks to much": (parquet("SELECT old.* REPLACE (repeat('a', 70_000_000) AS error) FROM old LIMIT 1"), "unpacks"),
    "no parquet": (data(b"PAR1 no PAR1"), "can't be read"),
    "empty parquet": (data(b""), "can't be read"),
    "wrong type": (parquet("SELECT * REPLACE (CAST(sent_ns AS VARCHAR) AS sent_ns) FROM old"), "sent_ns as VARCHAR, not BIGINT"),
    "rows of another trial": (parquet("SELECT * REPLACE ('other' AS trial_id) FROM old"), "rows of another trial"),
    "rows of no trial": (
        parquet("SELECT * REPLACE (CAST(NULL AS VARCHAR) AS trial_id) FROM old", "chunks.parquet"),
        "rows of another trial",
    ),
    "no trial_id": (parquet("SELECT * EXCLUDE (trial_id) FROM old"), "no column trial_id"),
    "a column that queries add": (parquet("SELECT *, 'x' AS filename FROM old", "telemetry.parquet"), "a column filename"),
    "schema of the future": (edit(lambda c: c.update(schema_version=10**6)), "newer than this bench"),
    "a rate beyond all": (edit(lambda c: c["metrics"]["output_tok_per_s"].update(value=1e308)), "larger than anything"),
    "a spread beyond all": (edit(lambda c: c["metrics"]["ttft_ms"].update(p99=-1e19)), "larger than anything"),
    "less than no time": (edit(lambda c: c["metrics"]["ttft_ms"].update(p50=-1.0)), r"'ttft_ms'\] is -1, which can't be below 0"),
    "next to nothing": (edit(lambda c: c["metrics"]["ttft_ms"].update(p50=5e-324)), "smaller than anything that can be measured"),
    "less than no energy": (edit(lambda c: c["metrics"]["j_per_output_tok"].update(value=-0.25)), "can't be below 0"),
    "less than no tokens": (edit(lambda c: c["metrics"]["output_tok_per_s"].update(value=-400.0)), "can't be below 0"),
    "less than no observations": (edit(lambda c: c["metrics"]["ttft_ms"].update(n=-3)), "of -3 observations"),
    "a window that ends before it begins": (
        edit(lambda c: c["window"].update(t1_ns=c["window"]["t0_ns"] - 10**9)),
        "its window ends 1 s",
    ),
    "rows of less than no tokens": (parquet("SELECT * REPLACE (-5 :: BIGINT AS output_tokens) FROM old"), "output_tokens of -5"),
    "chunks of less than no tokens": (
        parquet("SELECT * REPLACE (-1 :: BIGINT AS tokens) FROM old", "chunks.parquet"),
        "chunks.parquet has tokens of -1",
    ),
    "readings of less than no energy": (
        parquet("SELECT * REPLACE (-300.0 :: DOUBLE AS energy_j) FROM old", "telemetry.parquet"),
        "energy_j of -300",
    ),
    "readings of no number": (
        parquet("SELECT * REPLACE ('nan' :: DOUBLE AS energy_j) FROM old", "telemetry.parquet"),
        "energy_j of nan",
    ),
    "readings without end": (
        parquet("SELECT * REPLACE ('inf' :: DOUBLE AS energy_j) FROM old", "telemetry.parquet"),
        "energy_j of inf",
    ),
    "started in the future": (ahead(400), r"started 400\.0 days in the future"),
    "ended in the future": (edit(lambda c: c["ended"].update(wall_ns=c["ended"]["wall_ns"] + 900 * DAY_NS)), "ended .* future"),
    "sql in its run": (edit(lambda c: c["key"].update(run_id=SQL)), "can't be a folder's name"),
    "sql in its trial": (edit(lambda c: c["key"].update(trial_id=SQL)), "can't be a folder's name"),
    "sql among its files": (edit(lambda c: c["files"].update({SQL: "0"})), "no part of a shard"),
    "a link for a log": (linked, "engine.log is no plain file"),
    "a folder for a log": (folder_for_a_log, "engine.log is no plain file"),
    "trial.json deep": (deep, "not a trial record"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_shard_is_refused_at_the_border_and_the_other_comes_in(theirs: Path, tmp_path: Path, name: str) -> None:
    spoil, reason = SPOILED[name]
    spoil(second(theirs))
    report = bring_in(tmp_path / "ours", [theirs])
    assert len(report.copied) == 1
    (rejection,) = report.rejected
    assert re.search(reason, rejection.reason), rejection.reason
    assert rejection.shard == str(second(theirs))
    assert [p.name for p in (tmp_path / "ours/shards").iterdir()] == ["date=2026-11-30"]
    assert list((tmp_path / "ours/.work").iterdir()) == []


@pytest.mark.parametrize("name", ["rows of another trial", "wrong type", "started in the future", "a link for a log"])
def test_a_shard_that_was_spoiled_in_place_is_found_by_verify(theirs: Path, name: str) -> None:
    spoil, reason = SPOILED[name]
    spoil(second(theirs))
    report = Lab(theirs).ingest(verify=True)
    assert report.added == 1
    assert [bool(re.search(f"{reason}|lies in", r.reason)) for r in report.rejected] == [True]


@pytest.mark.parametrize("name", SPECS)
def test_no_metric_is_below_zero_that_can_t_be(name: str) -> None:
    spec = SPECS[name]
    value, p50 = (-0.5, None) if spec.kind == "scalar" else (None, -0.5)
    record = make_record(metrics={name: Metric(name=name, unit=spec.unit, value=value, p50=p50)})
    if name == "ppl_delta" or "_net" in name:
        check_record(record)
    else:
        with pytest.raises(BadShard, match=r"is -0.5, which can't be below 0"):
            check_record(record)


def test_an_interval_may_reach_below_zero_and_a_metric_of_a_later_bench_may_be_anything() -> None:
    energy = make_metric("j_per_output_tok", 0.25, low=-0.1, high=0.6)
    check_record(make_record(metrics={"j_per_output_tok": energy, "newer": Metric(name="newer", unit="1", value=-1.0)}))


def test_sql_in_names_is_a_name(tmp_path: Path) -> None:
    case = make_case(model=SQL, suite=SQL, name=SQL, labels={SQL: SQL})
    record = make_record(case=case, devices=(make_device(name=SQL, uid=SQL),), error=SQL)
    telemetry = Telemetry(devices=record.devices, readings=(Reading(uid=SQL, before_ns=1, after_ns=2, power_w=3.0),))
    save_trial(tmp_path / "theirs", record, make_event_log(), telemetry)
    assert len(bring_in(tmp_path / "ours", [tmp_path / "theirs"]).copied) == 1
    lab = Lab(tmp_path / "ours")
    assert lab.ingest(verify=True).added == 1
    assert ask(lab, "SELECT model, suite, devices, error FROM trials_wide").rows == [(SQL, SQL, [SQL], SQL)]
    assert ask(lab, "SELECT uid FROM telemetry").rows == [(SQL,)]


@pytest.mark.parametrize("watts", [-0.3, math.inf, math.nan, 1e12])
def test_a_sensors_nonsense_is_kept_as_it_told_it(tmp_path: Path, watts: float) -> None:
    """It is refused where joules are made of it; the trial, and whoever brings it in, loses nothing."""
    record = make_record(devices=(make_device(uid="a"),))
    telemetry = Telemetry(devices=record.devices, readings=(Reading(uid="a", before_ns=1, after_ns=2, power_w=watts),))
    save_trial(tmp_path / "theirs", record, make_event_log(), telemetry)
    assert len(bring_in(tmp_path / "ours", [tmp_path / "theirs"]).copied) == 1
    assert Lab(tmp_path / "ours").ingest(verify=True).added == 1


def test_a_clock_that_is_a_little_ahead_is_believed(tmp_path: Path) -> None:
    shard = save_trial(tmp_path / "theirs", make_record())
    ahead(0.9)(shard)
    assert len(bring_in(tmp_path / "ours", [tmp_path / "theirs"]).copied) == 1


def test_a_file_of_an_earlier_bench_lacks_the_newest_columns(theirs: Path, tmp_path: Path) -> None:
    parquet("SELECT * EXCLUDE (output_retokenized_tokens) FROM old")(second(theirs))
    assert len(bring_in(tmp_path / "ours", [theirs]).copied) == 2


# --- zip files --------------------------------------------------------------------------------------------------------


def zipped(theirs: Path, to: Path, alter: Callable[[zipfile.ZipFile, Path], None] = lambda *_: None, *, but: str = "") -> Path:
    """The shards of a folder as CI packs them. Of the second one `but` is left out; `alter` adds what it likes."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(theirs.rglob("*")):
            if path.is_file() and not (path.parent == second(theirs) and path.name == but):
                archive.write(path, path.relative_to(theirs))
        alter(archive, second(theirs).relative_to(theirs))
    return to


def entry(name: str, content: bytes = b"x", mode: int = stat.S_IFREG | 0o644) -> Callable[[zipfile.ZipFile, Path], None]:
    def add(archive: zipfile.ZipFile, shard: Path) -> None:
        info = zipfile.ZipInfo(name.format(shard=shard))
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, content)

    return add


HOSTILE_ZIPS: dict[str, tuple[str, Callable[[zipfile.ZipFile, Path], None], str]] = {
    "bomb": ("chunks.parquet", entry("{shard}/chunks.parquet", bytes(64 << 20)), r"unpacks .* to 64"),
    "large record": ("trial.json", entry("{shard}/trial.json", bytes(17 << 20)), "more than"),
    "link": ("chunks.parquet", entry("{shard}/chunks.parquet", b"/etc/passwd", stat.S_IFLNK | 0o777), "no plain file"),
    "device": ("chunks.parquet", entry("{shard}/chunks.parquet", b"", stat.S_IFCHR | 0o666), "no plain file"),
    "twice": ("", entry("{shard}/trial.json", b"{}"), "in the archive 2 times"),
    "sibling gone": ("chunks.parquet", lambda *_: None, "chunks.parquet is missing"),
    "other content": ("chunks.parquet", entry("{shard}/chunks.parquet"), "its sha256 differs"),
}
CLIMBING = [
    "../../../evil/trial.json",
    "/evil/trial.json",
    "a\\..\\..\\evil\\trial.json",
    "C:/evil/trial.json",
    "shards/../../evil",
]


@pytest.mark.parametrize("name", HOSTILE_ZIPS)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_zip_entry_is_refused_and_the_other_shard_comes_in(theirs: Path, tmp_path: Path, name: str) -> None:
    but, alter, reason = HOSTILE_ZIPS[name]
    archive = zipped(theirs, tmp_path / "shards.zip", alter, but=but)
    report = bring_in(tmp_path / "ours", [archive])
    assert len(report.copied) == 1
    (rejection,) = report.rejected
    assert re.search(reason, rejection.reason), rejection.reason
    assert rejection.shard.startswith(f"{archive}!shards/date=")
    assert list((tmp_path / "ours/.work").iterdir()) == []


def test_names_that_climb_out_of_a_zip_are_refused_and_write_nothing(theirs: Path, tmp_path: Path) -> None:
    def climb(archive: zipfile.ZipFile, _: Path) -> None:
        for name in CLIMBING:
            archive.writestr(name, b"{}")

    before = {path for path in tmp_path.rglob("*") if "ours" not in path.parts}
    archive = zipped(theirs, tmp_path / "shards.zip", climb)
    report = bring_in(tmp_path / "ours", [archive])
    assert len(report.copied) == 2
    assert sorted(r.shard.partition("!")[2] for r in report.rejected) == sorted(CLIMBING)
    assert {r.reason for r in report.rejected} == {"its name leads out of the archive"}
    assert {path for path in tmp_path.rglob("*") if "ours" not in path.parts} - before == {archive}


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"PK\x05\x06" + bytes(18) + b"rest"])
def test_a_zip_that_is_none_is_refused_and_the_folder_around_it_comes_in(theirs: Path, tmp_path: Path, content: bytes) -> None:
    (theirs / "bad.zip").write_bytes(content)
    report = bring_in(tmp_path / "ours", [theirs])
    assert len(report.copied) == 2
    assert [r.shard for r in report.rejected] == ([] if content.endswith(b"rest") else [f"{theirs / 'bad.zip'}!"])


def test_a_damaged_zip_gives_what_is_whole(theirs: Path, tmp_path: Path) -> None:
    archive = zipped(theirs, tmp_path / "shards.zip")
    with zipfile.ZipFile(archive) as opened:
        at = opened.getinfo(f"{second(theirs).relative_to(theirs)}/requests.parquet").header_offset
    packed = bytearray(archive.read_bytes())
    packed[at + 400 : at + 500] = bytes(100)
    archive.write_bytes(packed)
    report = bring_in(tmp_path / "ours", [archive])
    assert len(report.copied) == 1
    assert "requests.parquet" in report.rejected[0].reason


# --- URLs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(theirs: Path, tmp_path: Path) -> Iterator[str]:
    """The shards at a URL, once as files and once in a zip file."""
    files = fsspec.filesystem("memory")
    for path in theirs.rglob("*.*"):
        if path.is_file():
            files.pipe_file(f"/bucket/nightly/{path.relative_to(theirs)}", path.read_bytes())
    files.pipe_file("/bucket/zips/a.zip", zipped(theirs, tmp_path / "a.zip").read_bytes())
    yield "memory://bucket"
    files.rm("/bucket", recursive=True)


@pytest.mark.parametrize("where", ["nightly", "zips", "zips/a.zip", ""])
def test_shards_come_from_a_url_once(bucket: str, tmp_path: Path, where: str) -> None:
    counts = [(len(r.copied), r.present) for r in (bring_in(tmp_path / "ours", [f"{bucket}/{where}"]) for _ in range(2))]
    assert counts == ([(2, 2), (0, 4)] if where == "" else [(2, 0), (0, 2)])
    assert Lab(tmp_path / "ours").ingest(verify=True).added == 2


def test_a_bad_shard_at_a_url_is_refused_by_its_address(bucket: str, tmp_path: Path) -> None:
    shard = f"/bucket/nightly/shards/date=2026-11-30/run-1/{make_record(repeat=1).key.trial_id}"
    fsspec.filesystem("memory").rm(f"{shard}/chunks.parquet")
    report = bring_in(tmp_path / "ours", [f"{bucket}/nightly"])
    assert [(r.shard, r.reason) for r in report.rejected] == [(f"memory://{shard}", "chunks.parquet is missing")]
    assert len(report.copied) == 1


@pytest.fixture
def closed_port() -> int:
    """A port of this host on which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture
def web(theirs: Path, tmp_path: Path) -> Iterator[str]:
    """The shards on a web server that lists its folders, once as files and once in a zip file."""
    archive = zipped(theirs, tmp_path / "a.zip")
    (theirs / "zips").mkdir()
    archive.rename(theirs / "zips" / "a.zip")
    handler = partial(SimpleHTTPRequestHandler, directory=str(theirs))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("path", ["/shards", "/shards/", "/zips/a.zip", "/zips/"])
def test_shards_come_from_a_web_server_that_lists_its_folders(web: str, tmp_path: Path, path: str) -> None:
    assert len(bring_in(tmp_path / "ours", [f"{web}{path}"]).copied) == 2


def test_a_folder_that_a_web_server_does_not_have_is_named(web: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{web}/nothing")):
        bring_in(tmp_path / "ours", [f"{web}/nothing"])


@pytest.mark.parametrize("path", ["", "/", "/shards", "/shards/", "/shards/a.zip"])
def test_an_address_that_can_t_be_reached_is_not_an_empty_one(tmp_path: Path, closed_port: int, path: str) -> None:
    url = f"http://127.0.0.1:{closed_port}{path}"
    with pytest.raises(StoreError, match=f"can't read {re.escape(url)}") as caught:
        bring_in(tmp_path / "ours", [url])
    assert "is the address right" in (caught.value.hint or "")


@pytest.mark.parametrize("url", ["memory://bucket/nothing", "nonsense://x/y", "", "nowhere"])
def test_a_place_without_shards_is_a_usage_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match=re.escape(url or "'' is not a folder")):
        bring_in(tmp_path / "ours", [url])


def test_a_url_without_fsspec_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingError) as caught:
        bring_in(tmp_path / "ours", ["s3://bucket/x"])
    assert caught.value.hint == "pip install 'tokjoule[remote]'"
