"""What a person types first and wrongly: one answer, with the next step in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import mock
from bench.records import Reason, Status
from tests.factories import make_metrics, make_record, save_trial
from tests.in_process import run_here

BUSY = Reason(code="client_saturated", group="latency", severity="invalid", message="late")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_RESULTS", raising=False)
    return tmp_path


@pytest.mark.parametrize("args", [(), ("suites",), ("models",)], ids=" ".join)
def test_a_group_alone_prints_its_help(capsys: pytest.CaptureFixture[str], args: tuple[str, ...]) -> None:
    ran = run_here(capsys, *args)
    assert ran.code == 2
    assert ran.err.startswith(f"Usage: {' '.join(['bench', *args])}")
    assert "error:" not in ran.err


@pytest.mark.parametrize("address", ["127.0.0.1:8123", "localhost:8000/v1", "gpu-1.lab"])
def test_an_address_without_its_scheme_is_mended(capsys: pytest.CaptureFixture[str], address: str) -> None:
    ran = run_here(capsys, "run", "--base-url", address, "--model", "m")
    assert ran.code == 2
    assert f"did you mean http://{address}?" in ran.err


@pytest.mark.parametrize("path", ["chat/completions", "completions", "models", "chat/completions/"])
def test_the_url_of_one_kind_of_request_is_mended(capsys: pytest.CaptureFixture[str], path: str) -> None:
    for base_url in ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/models/v1", "unix:/run/models:/v1"):
        for more in ((), ("--model", "m")):
            ran = run_here(capsys, "run", "--base-url", f"{base_url}/{path}", *more)
            assert ran.code == 2
            assert f"next: did you mean {base_url}?" in ran.err


def test_the_path_of_a_gateway_is_not_mended(capsys: pytest.CaptureFixture[str]) -> None:
    for base_url in ("http://127.0.0.1:9/models", "http://127.0.0.1:9/completions/v1"):
        assert "did you mean" not in run_here(capsys, "run", "--base-url", base_url, "--model", "m", "--dry-run").out
    assert "did you mean http://127.0.0.1:9?" in run_here(capsys, "run", "--base-url", "http://127.0.0.1:9/chat/completions").err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--ab", "threads=1", "threads=2"), "next: for an argument of the engine write engine_args.threads=1"),
        (("--ab", "bach_size=1", ""), "did you mean 'batch_size'?"),
        (("--ab", "batch_size=1", "--pairs", "2"), "--ab takes two settings, BASE and CAND, and got '--pairs' as one"),
        (("--ab", "batch_size=1", "smoke"), "'smoke' is not of the form KEY=VALUE"),
        (("--case", "closed"), "no case is called 'closed': did you mean 'closed/*'?\n  next: bench suites expand smoke\n"),
        (("--case", "opne"), "did you mean 'open'?"),
        (("--ab", "", "seed=2", "--case", "closed"), "did you mean 'closed/*'?"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_what_is_meant_by_a_flag_of_a_suite_is_guessed(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    ran = run_here(capsys, "run", "smoke", *args, "--dry-run")
    assert ran.code == 2
    assert said in ran.err
    assert "unexpected extra argument" not in ran.err


def test_a_suite_of_ones_own_is_told_by_its_path(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "own.yaml").write_text("name: other\ncases: [{name: a, model: m, engine: mock}]\n")
    assert "next: bench suites expand own.yaml\n" in run_here(capsys, "run", "own.yaml", "--case", "b", "--dry-run").err


def test_the_latest_trial_is_measured_again_by_that_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = make_record(repeat=2)
    for record in (make_record(repeat=1), saved):
        save_trial(here / "results", record)
    ran = run_here(capsys, "reproduce", "latest", "--dry-run")
    assert f"trial {saved.key.trial_id}:" in ran.err


@pytest.mark.parametrize("address", ["user:secret@host:80", "host:80?key=secret", "secret words"])
def test_what_may_hold_a_secret_is_not_repeated(capsys: pytest.CaptureFixture[str], address: str) -> None:
    ran = run_here(capsys, "run", "--base-url", address, "--model", "m")
    assert ran.code == 2
    assert "secret" not in ran.err


def test_an_endpoint_without_a_model_is_asked_what_it_serves(capsys: pytest.CaptureFixture[str]) -> None:
    with mock.start(ttft_ms=5, gap_ms=1) as server:
        ran = run_here(capsys, "run", "--base-url", server.url)
    assert ran.code == 2
    assert "give --model NAME" in ran.err
    assert "the endpoint serves: mock" in ran.err
    gone = run_here(capsys, "run", "--base-url", server.url)
    assert gone.code == 2
    assert "give --model NAME" in gone.err


def test_a_folder_that_is_not_there_is_named_in_full(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"there is no folder {here / 'nowhere'}" in run_here(capsys, "table", "--results", "nowhere").err


@pytest.mark.parametrize(("status", "said"), [(Status.INVALID, True), (Status.VALID, False)])
def test_an_empty_answer_says_that_nothing_is_valid(
    here: Path, capsys: pytest.CaptureFixture[str], status: Status, said: bool
) -> None:
    save_trial(here / "results", make_record(status=status, reasons=(BUSY,) if said else ()))
    ran = run_here(capsys, "sql", "SELECT * FROM trials_wide WHERE status = 'valid' AND model = 'none such'")
    assert ran.code == 0
    assert ("none of the 1 trials here is valid" in ran.err) is said
    some = run_here(capsys, "sql", "SELECT model FROM trials")
    assert (some.code, some.err) == (0, "")


def test_the_latest_trial_is_the_one_that_started_last(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no folder" in run_here(capsys, "explain", "tpot_ms", "--trial", "latest").err
    for repeat, tpot_ms in ((1, 11.0), (2, 22.0)):
        save_trial(here / "results", make_record(repeat=repeat, metrics=make_metrics(tpot_ms=tpot_ms)))
    ran = run_here(capsys, "explain", "tpot_ms", "--trial", "latest")
    assert ran.code == 0
    assert "repeat 2)" in ran.out
    assert "p50 22" in ran.out
