"""`bench table`, `ingest`, `sql`, `export` as a person runs them: output, messages and exit codes."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from bench.cli.answers import on_terminal
from bench.records import Reason, Status
from bench.store import ShardStore
from bench.store.sql import Answer
from tests.factories import make_case, make_event_log, make_metrics, make_record, make_telemetry, save_trial
from tests.in_process import Bench, run_here

ERRORS = Reason(code="errors", group="throughput", severity="invalid", message="12 of 100 requests failed")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three valid repeats, an invalid trial and a failed one."""
    folder = tmp_path_factory.mktemp("saved")
    for repeat in range(3):
        metrics = make_metrics(output_tok_per_s=400.0 + 3 * repeat)
        save_trial(folder, make_record(repeat=repeat, metrics=metrics), make_event_log(), make_telemetry())
    save_trial(folder, make_record(run_id="run-2", repeat=5, case=make_case(seed=1), status=Status.INVALID, reasons=(ERRORS,)))
    failed = make_case(model="gone", engine="openai", suite="other")
    save_trial(folder, make_record(run_id="run-0", case=failed, status=Status.FAILED, error="no route", metrics={}, engine=None))
    return folder


@pytest.fixture
def results(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with the trials of `saved`."""
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
    return shutil.copytree(saved, tmp_path / "results")


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `bench ARGS...` in this process."""
    return partial(run_here, capsys)


def test_table_shows_the_last_run_of_each_case(results: Path, bench: Bench) -> None:
    ran = bench("table")
    assert (ran.code, ran.err) == (0, "")
    header, *lines = ran.out.splitlines()
    assert header.split()[:6] == ["model", "precision", "engine", "devices", "load", "in/out"]
    assert [line.split()[0] for line in lines[:3]] == ["gone", "tiny", "tiny"]
    assert "valid x3" in ran.out
    assert "403.0 [395.6, 410.5]" in ran.out
    assert "400.0!" in ran.out
    assert "failed: no route" in ran.out
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("args", "models"),
    [
        (["--run", "run-1"], ["tiny"]),
        (["--run", "latest"], ["tiny"]),
        (["--model", "gone"], ["gone"]),
        (["--engine", "openai"], ["gone"]),
        (["--suite", "other"], ["gone"]),
        (["--status", "failed"], ["gone"]),
        (["--status", "valid", "--trials"], ["tiny", "tiny", "tiny"]),
        (["--all"], ["gone", "tiny", "tiny"]),
        (["--model", "gone", "--status", "valid"], []),
        (["--run", "run-1", "--engine", "openai"], []),
    ],
)
def test_table_filters(results: Path, bench: Bench, args: list[str], models: list[str]) -> None:
    ran = bench("table", *args, "--json")
    assert ran.code == 0
    assert [row["model"] for row in json.loads(ran.out)["rows"]] == models


def test_an_empty_result_is_said_on_stderr(results: Path, bench: Bench) -> None:
    ran = bench("table", "--model", "gone", "--status", "valid")
    assert (ran.code, ran.out) == (0, "")
    assert "matches --model gone --status valid" in ran.err
    assert "bench run quickstart" in ran.err


def test_a_folder_without_trials_refuses_no_name(tmp_path: Path, bench: Bench) -> None:
    (tmp_path / "results").mkdir()
    for args in ([], ["--model", "x"]):
        ran = bench("table", *args, "--results", str(tmp_path / "results"))
        assert (ran.code, ran.out) == (0, "")
        assert "bench run quickstart" in ran.err


@pytest.mark.parametrize("command", [["table", "--json"], ["export", "--format", "json"]])
def test_a_run_is_known_by_the_beginning_of_its_id(results: Path, bench: Bench, command: list[str]) -> None:
    save_trial(results, make_record(run_id="20261130T173005Z-006931"))
    whole, begun = (bench(*command, "--run", run_id) for run_id in ("20261130T173005Z-006931", "2026"))
    assert whole.code == 0
    assert "20261130T173005Z-006931" in whole.out
    assert begun.out == whole.out
    ran = bench(*command, "--run", "run-")
    assert (ran.code, ran.out) == (2, "")
    assert "beginning of 3 runs" in ran.err
    assert "run-2, run-" in ran.err


def test_an_unknown_name_says_which_there_are_and_the_nearest(results: Path, bench: Bench) -> None:
    ran = bench("table", "--engine", "opnai")
    assert ran.code == 2
    assert "no engine 'opnai'" in ran.err
    assert "did you mean 'openai'?" in ran.err
    assert "there is: mock, openai" in ran.err
    far = bench("table", "--suite", "zzz").err
    assert "did you mean" not in far
    assert "there is: demo, other" in far


@pytest.mark.usefixtures("results")
def test_of_very_many_cases_those_measured_last_are_shown_and_the_others_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.cli.results.MOST_CASES", 1)
    ran = bench("table")
    assert (ran.code, ran.out.count("tiny"), "gone" in ran.out) == (0, 1, False)
    assert "2 cases measured before these are not shown: choose with" in ran.err
    for args in (("--all",), ("--json",), ("--run", "run-0"), ("--model", "gone")):
        ran = bench("table", *args)
        assert "gone" in ran.out
        assert "not shown" not in ran.err


def test_an_older_run_needs_all(results: Path, bench: Bench) -> None:
    save_trial(results, make_record(run_id="run-9", repeat=50))
    assert [len(json.loads(bench("table", "--json", *args).out)["rows"]) for args in ([], ["--all"])] == [3, 4]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["table", "--run", "nope"], "no run 'nope'"),
        (["table", "--model", "none"], "no model 'none'"),
        (["table", "--engine", "none"], "no engine 'none'"),
        (["table", "--suite", "none"], "no suite 'none'"),
        (["export", "--format", "csv", "--run", "nope"], "no run 'nope'"),
        (["table", "--results", "nowhere"], "nowhere\n"),
        (["sql", "SELECT 1", "--results", "nowhere"], "nowhere\n"),
        (["export", "--format", "csv", "--results", "nowhere"], "nowhere\n"),
        (["ingest", "--results", "nowhere"], "nowhere\n"),
        (["ingest", "nowhere"], "'nowhere' is not a folder"),
        (["table", "--status", "fine"], "fine"),
        (["export"], "--format"),
        (["sql"], "give one query"),
        (["sql", "SELECT 1", "--json", "--csv"], "exclude each other"),
        (["sql", "SELEC 1"], "syntax error"),
        (["sql", "SELECT nothing FROM trials"], "nothing"),
        (["sql", "DELETE FROM trials"], "read-only"),
        (["sql", "-f", "nowhere.sql"], "nowhere.sql"),
    ],
)
def test_usage_errors_are_one_message_and_exit_two(results: Path, bench: Bench, args: list[str], message: str) -> None:
    ran = bench(*args)
    assert ran.code == 2
    assert ran.out == ""
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_sql_answers_in_text_json_and_csv(results: Path, bench: Bench) -> None:
    query = (
        "SELECT status, count(*) AS n, max(j_per_output_tok) AS j, min(started_at) AS at FROM trials_wide GROUP BY 1 ORDER BY 1"
    )
    assert bench("sql", query).out.splitlines() == [
        "status   n  j     at",
        "failed   1  NULL  2026-11-30 15:00:00",
        "invalid  1  0.25  2026-11-30 15:01:40",
        "valid    3  0.25  2026-11-30 15:00:00",
    ]
    data = json.loads(bench("sql", query, "--json").out)
    assert data[0] == {"status": "failed", "n": 1, "j": None, "at": "2026-11-30 15:00:00"}
    rows = list(csv.reader(io.StringIO(bench("sql", query, "--csv").out)))
    assert rows[:2] == [["status", "n", "j", "at"], ["failed", "1", "", "2026-11-30 15:00:00"]]


def test_a_query_that_is_not_utf_8_is_refused_wherever_it_is_written(results: Path, bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "query.sql"
    path.write_bytes(b"SELECT '\xff'")
    bad = "'\udcff' = 'x'"
    for args in (("sql", "-f", str(path)), ("sql", f"SELECT {bad}"), ("gate", "--where", bad), ("report", "--filter", bad)):
        ran = bench(*args)
        assert (ran.code, ran.out) == (2, "")
        assert "is not UTF-8" in ran.err


def test_sql_reads_raw_events(results: Path, bench: Bench) -> None:
    query = "SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM chunks), (SELECT count(*) FROM telemetry)"
    assert list(json.loads(bench("sql", query, "--json").out)[0].values()) == [12, 27, 9]


def test_sql_of_odd_types_is_json(results: Path, bench: Bench) -> None:
    query = "SELECT 'nan'::DOUBLE AS a, [1, 2] AS b, {'x': 1.5::DECIMAL(5,2)} AS c, DATE '2026-01-01' AS d, 'x'::BLOB AS e"
    data = json.loads(bench("sql", query, "--json").out)
    assert data == [{"a": None, "b": [1, 2], "c": {"x": 1.5}, "d": "2026-01-01", "e": "b'x'"}]


def test_sql_of_numbers_without_end_is_what_they_are(results: Path, bench: Bench) -> None:
    """JSON alone has no word for them."""
    query = "SELECT 'inf'::DOUBLE AS a, '-inf'::DOUBLE AS b, 'nan'::DOUBLE AS c, ['inf'::DOUBLE] AS d, NULL AS e"
    assert bench("sql", query).out.splitlines()[1].split() == ["inf", "-inf", "nan", "[inf]", "NULL"]
    assert bench("sql", query, "--csv").out.splitlines()[1].split(",")[:3] == ["inf", "-inf", "nan"]
    (row,) = json.loads(bench("sql", query, "--json").out)
    assert row == {"a": None, "b": None, "c": None, "d": [None], "e": None}


def test_sql_from_a_file_and_from_stdin(results: Path, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.sql"
    path.write_text("SELECT 41 + 1 AS n", encoding="utf-8")
    assert bench("sql", "-f", str(path), "--csv").out == "n\n42\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 7 AS n"))
    assert bench("sql", "-", "--csv").out == "n\n7\n"
    assert bench("sql", "SELECT 1", "-f", str(path)).code == 2


def test_sql_write_changes_the_database_only_when_asked(results: Path, bench: Bench) -> None:
    assert bench("sql", "CREATE TABLE notes AS SELECT 'x' AS note", "--write").code == 0
    assert bench("sql", "FROM notes", "--csv").out == "note\nx\n"
    assert bench("sql", "DROP TABLE notes").code == 2


def test_ingest_counts_and_exits_one_for_a_rejected_shard(results: Path, bench: Bench) -> None:
    assert bench("ingest").out == "5 added, 0 unchanged, 0 rejected\n"
    assert json.loads(bench("ingest", "--verify", "--json").out) == {"added": 0, "unchanged": 5, "removed": 0, "rejected": []}
    bad = save_trial(results, make_record(repeat=9))
    (bad / "trial.json").write_text("{", encoding="utf-8")
    ran = bench("ingest")
    assert ran.code == 1
    assert ran.out.startswith("0 added, 5 unchanged, 1 rejected\nrejected shards/date=2026-11-30/run-1/")
    shown = bench("table")
    assert shown.code == 0
    assert "is left out" in shown.err
    shutil.rmtree(bad)
    assert bench("ingest").code == 0


def test_ingest_brings_shards_in(results: Path, bench: Bench, tmp_path: Path) -> None:
    theirs = tmp_path / "artifact"
    save_trial(theirs, make_record(run_id="run-7"), make_event_log(), None)
    bad = save_trial(theirs, make_record(run_id="run-7", repeat=1), make_event_log(), None)
    (bad / "chunks.parquet").write_bytes(b"")
    ran = bench("ingest", str(theirs))
    assert ran.code == 1
    assert ran.out.startswith("6 added, 0 unchanged, 1 rejected\n")
    assert f"rejected {bad}: chunks.parquet is not the file that was written" in ran.out
    assert bench("ingest", str(theirs / "shards"), "--json").code == 1
    assert "run-7" in bench("table", "--all").out


def test_ingest_makes_a_new_results_folder(bench: Bench, tmp_path: Path) -> None:
    save_trial(tmp_path / "theirs")
    ran = bench("ingest", str(tmp_path / "theirs"), "--results", str(tmp_path / "new"))
    assert (ran.code, ran.out) == (0, "1 added, 0 unchanged, 0 rejected\n")


def test_export_formats(results: Path, bench: Bench, tmp_path: Path) -> None:
    assert len(list(csv.DictReader(io.StringIO(bench("export", "--format", "csv").out)))) == 5
    assert len(json.loads(bench("export", "--format", "json", "--run", "run-1").out)) == 3
    assert bench("export", "--format", "markdown").out.startswith("| model | precision |")
    out = tmp_path / "x.csv"
    ran = bench("export", "--format", "csv", "--out", str(out))
    assert (ran.code, ran.out) == (0, "")
    assert out.read_text(encoding="utf-8").startswith("run_id,trial_id,")
    ran = bench("export", "--format", "csv", "--out", str(tmp_path / "no" / "x.csv"))
    assert ran.code == 1
    assert "can't write" in ran.err


def test_a_killed_trial_is_in_the_table_of_the_next_command(results: Path, bench: Bench) -> None:
    record = make_record(run_id="run-8", case=make_case(name="killed", model="killed-model"))
    script = (
        "import os, signal, sys; from pathlib import Path; from bench.store import ShardStore\n"
        "from tests.factories import make_case, make_record\n"
        "r = make_record(run_id='run-8', case=make_case(name='killed', model='killed-model'))\n"
        "ShardStore(Path(sys.argv[1])).begin(r.key, r.case); os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", script, str(results)], cwd=root, timeout=60, check=False).returncode == -9
    ran = bench("table", "--status", "killed")
    assert "a killed trial was kept" in ran.err
    assert "killed-model" in ran.out
    assert "ended before this trial was saved" in ran.out
    assert [path.parent.name for path in results.rglob(record.key.trial_id)] == ["run-8"]
    assert bench("table", "--status", "killed").err == ""


def test_a_running_trial_is_left_alone(results: Path, bench: Bench) -> None:
    record = make_record(run_id="run-8")
    trial = ShardStore(results).begin(record.key, record.case)
    assert bench("table").code == 0
    assert (trial.folder / "owner.json").is_file()
    trial.save(record, None, None)
    assert bench("ingest").out.startswith("1 added")


def test_commands_import_no_database_before_they_need_it() -> None:
    code = "import sys, bench.cli.main, bench.cli.results, bench.store; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=60, check=False).returncode == 0


def on_a_terminal(results: Path, columns: int, *args: str) -> str:
    """What `bench ARGS...` writes to a real pseudo terminal of that width, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "bench.cli.main", *args, "--results", str(results)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=theirs, cwd=root, env=env | {"TERM": "xterm"}) as process:
        os.close(theirs)
        written = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says the end of a terminal so
        return b""


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_the_table_on_a_terminal_has_every_column(results: Path, columns: int) -> None:
    text = on_a_terminal(results, columns, "table")
    assert max(map(len, text.splitlines())) <= columns
    for part in ("QPS", "J/token", "403.0", "0.2500!", "valid x3", "[1]", "failed: no route"):
        assert part in text, part


@pytest.mark.parametrize("columns", [80, 100])
def test_a_query_of_many_columns_is_shown_in_blocks(results: Path, columns: int) -> None:
    text = on_a_terminal(results, columns, "sql", "SELECT * FROM trials_wide ORDER BY trial_id")
    assert max(map(len, text.splitlines())) <= columns
    assert [line.rstrip() for line in text.splitlines() if line.startswith("row ")] == [f"row {n} of 5" for n in range(1, 6)]
    found = dict(line.split(maxsplit=1) for line in text.splitlines() if line.startswith(("model ", "output_tok_per_s ")))
    assert found["model"].strip() in ("tiny", "gone")
    assert text.count("\noutput_tok_per_s ") == 5
    assert on_a_terminal(results, columns, "sql", "SELECT * FROM trials_wide WHERE false").startswith("no rows (")


def test_a_query_of_few_columns_is_a_table(results: Path) -> None:
    text = on_a_terminal(results, 80, "sql", "SELECT model, status, repeat('long ', 40) AS words FROM trials ORDER BY trial_id")
    assert text.splitlines()[0].split() == ["model", "status", "words"]
    assert text.count("long") == 5 * 40
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 30, 80, 200])
@pytest.mark.parametrize("count", [0, 1, 5, 60])
def test_no_answer_is_empty_on_a_terminal(width: int, count: int) -> None:
    names = tuple(f"column_{n}" for n in range(count))
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(on_terminal(Answer(columns=names, rows=[tuple(range(count))] * 2), width))
    shown = "".join(captured.get().split())
    assert all(name in shown for name in names)
    assert max(map(len, captured.get().splitlines()), default=0) <= width
