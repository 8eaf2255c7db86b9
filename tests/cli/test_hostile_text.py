"""Names and messages from outside on a terminal: shown as they are, and nothing in them acts."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cli.columns import plain_lines, problem_in_words
from bench.cli.live_line import LiveObserver
from bench.cli.main import main, show_error
from bench.cli.terminal import PlainObserver
from bench.errors import EngineError, TargetError
from bench.printable import printable, printable_json, printable_lines
from bench.records import ProbeProblem, Status
from tests.factories import make_case, make_record, save_trial

MARKUP = ["[/red]", "[bold]x", "[link=file:///x]y[/link]", "[/]", "[red", "a[b]c", ":smile:"]
ACTIVE = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x85", "\u202eevil", "\u2028", "\ud800", "\r"]
ACTS = ("Cc", "Cf", "Cs", "Zl", "Zp")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def acts(text: str) -> set[str]:
    """What of a text would act on a terminal, apart from line ends and tabs."""
    return {c for c in text if unicodedata.category(c) in ACTS and c not in "\n\t"}


@given(st.text(st.characters()))
def test_nothing_printable_acts(text: str) -> None:
    assert acts(printable(text)) == set()
    assert "\n" not in printable(text)
    assert acts(printable_lines(text)) == set()
    assert printable_lines(text).count("\n") == text.count("\n")


@given(st.recursive(st.text(st.characters()), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5))
def test_printable_json_means_the_same(value: object) -> None:
    shown = printable_json(json.dumps(value, indent=1, ensure_ascii=False))
    assert json.loads(shown) == value
    assert acts(shown) == set()


@pytest.mark.parametrize("name", [*MARKUP, *ACTIVE])
def test_a_live_run_shows_any_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    record = make_record(case=make_case(name=name), status=Status.FAILED, error=f"no {name}", metrics={}, engine=None)
    with LiveObserver(stream) as observer:
        observer.phase("trial", f"1 of 2: {name}")
        observer.phase("pull", name)
        observer.bytes_done(name, 1, 2)
        observer.note(name)
        observer.trial_done(record)
    shown = stream.getvalue()
    if name in MARKUP:
        assert f"1 of 2: {name}" in shown
        assert f"note: {name}" in shown
        assert f"no {name}" in shown
    else:
        assert f"note: {printable(name)}" in shown
        assert name.removesuffix("\r") not in shown or name == "\r"


@pytest.mark.parametrize("name", [*MARKUP, *ACTIVE])
def test_a_piped_run_shows_any_name(name: str) -> None:
    stream = io.StringIO()
    with PlainObserver(stream) as observer:
        observer.phase("pull", name)
        observer.note(name)
        observer.trial_done(make_record(case=make_case(name=name)))
    assert acts(stream.getvalue()) == set()
    assert stream.getvalue().count("\n") == 3


@pytest.mark.parametrize("name", ACTIVE)
def test_errors_and_rows_show_any_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_error(TargetError(f"does not serve\n{name}", hint=f"it serves: {name}"))
    show_error(EngineError("died", hint="look", log_tail=f"one\n{name}x"))
    problem = ProbeProblem(probe="cpu", subject=name, problem=name, fix=name)
    text = capsys.readouterr().err + problem_in_words(problem) + "\n".join(plain_lines(["name"], [[name]]))
    assert acts(text) == set()
    assert "error: does not serve\n" in text


def on_terminal(folder: Path, *args: str) -> str:
    """What `bench ARGS` writes to a pseudo terminal, its line ends as `\\n`."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "200", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "bench", *args]
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    read = bytearray()
    try:
        while select.select([ours], [], [], 60.0)[0]:
            part = os.read(ours, 1 << 16)
            if not part:
                break
            read += part
    except OSError:
        pass  # Linux: the other end is closed
    finally:
        os.close(ours)
        process.wait(timeout=60.0)
    return read.decode("utf-8", "replace").replace("\r\n", "\n")


SUITE = 'description: "a\\u009b31m b\\u202e"\ncases:\n  - model: "m"\n    batch_size: 1\n# \u009b2J\n'


@pytest.mark.parametrize(
    "args", [("list",), ("list", "--json"), ("show", "mine"), ("expand", "mine"), ("validate", "suites/\x1bnone.yaml")]
)
def test_suites_on_a_terminal(tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "mine.yaml").write_text(SUITE, encoding="utf-8")
    shown = on_terminal(tmp_path, "suites", *args)
    assert acts(shown) == set()
    assert "m" in shown
    assert "Traceback" not in shown


def test_a_suite_goes_to_a_pipe_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SUITE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["suites", "show", str(path)])
    assert capsys.readouterr().out == SUITE


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trial whose names hold controls."""
    folder = tmp_path / "results"
    monkeypatch.setenv("BENCH_RESULTS", str(folder))
    save_trial(folder, make_record(case=make_case(model="m\x9b31m\u202e", name="n\x9b2J")))
    return folder


@pytest.mark.parametrize(
    "args",
    [
        ("export", "--format", "json"),
        ("export", "--format", "csv"),
        ("export", "--format", "markdown"),
        ("sql", "SELECT model, name AS \"\x9b31m\" FROM (SELECT model, 'x' AS name FROM trials)", "--csv"),
        ("sql", 'SELECT model AS "\x9b31m" FROM trials'),
        ("table",),
    ],
)
def test_results_on_a_terminal(results: Path, args: tuple[str, ...]) -> None:
    shown = on_terminal(results.parent, *args)
    assert acts(re.sub(r"\x1b\[[0-9;]*m", "", shown)) == set()  # the styles of our own tables
    assert "31m" in shown
    assert "Traceback" not in shown
    if args[-1] == "json":
        assert json.loads(shown)[0]["case"]["model"] == "m\x9b31m\u202e"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_sql_writes_no_formula(results: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        main(["sql", f"SELECT '{text}' AS \"{text}\", -1 AS n, -1.5 AS x", "--csv"])
    header, row = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert (header[0], row) == (f"'{text}", [f"'{text}", "-1", "-1.5"])
