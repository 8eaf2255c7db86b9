"""`bench report` as a person runs it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bench.records import LoadSpec, Status
from tests.factories import make_case, make_engine, make_metrics, make_record, make_telemetry, save_trial
from tests.in_process import Bench, run_here


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two builds of one engine, two repeats each, with readings; a failed trial. Reports only read it."""
    folder = tmp_path_factory.mktemp("measured") / "results"
    for run, version, speed in (("run-1", "1.0", 400.0), ("run-2", "1.1", 380.0)):
        for repeat in range(2):
            record = make_record(
                run_id=run,
                repeat=repeat,
                engine=make_engine(version=version),
                config_id=version,
                telemetry_period_s=0.1,
                metrics=make_metrics(output_tok_per_s=speed + repeat),
            )
            save_trial(folder, record, telemetry=make_telemetry(30))
    failed = make_case(model="gone", load=LoadSpec(kind="closed", batch_size=2))
    save_trial(folder, make_record(run_id="run-0", case=failed, status=Status.FAILED, error="no route", metrics={}, engine=None))
    return folder


@pytest.fixture
def results(measured: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `bench` finds them."""
    monkeypatch.setenv("BENCH_RESULTS", str(measured))
    return measured


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `bench ARGS...` in this process."""
    return partial(run_here, capsys)


@pytest.mark.parametrize(
    ("args", "told", "count"),
    [
        ((), "The last run of each case.", 3),
        (("--run", "run-1"), "Run run-1.", 2),
        (("--run", "latest"), "Run run-2.", 2),
        (("--filter", "output_tok_per_s < 390"), "Trials that meet: output_tok_per_s &lt; 390", 2),
        (("--filter", "status = 'failed'"), "no route", 1),
        (("--compare", "version:1.0", "version:1.1"), "version:1.0 (base) and version:1.1 (candidate).", 4),
    ],
)
def test_the_chosen_trials_are_reported(
    results: Path, bench: Bench, tmp_path: Path, args: tuple[str, ...], told: str, count: int
) -> None:
    out = tmp_path / "out.html"
    ran = bench("report", *args, "--out", str(out))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith(f"{count} trial")
    page = out.read_text(encoding="utf-8")
    assert told in page
    assert ('id="compared"' in page) == ("--compare" in args)


def test_the_power_of_a_trial_is_drawn_from_its_readings(results: Path, bench: Bench, tmp_path: Path) -> None:
    assert bench("report", "--run", "run-2", "--out", str(tmp_path / "a.html")).code == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Example Accelerator 0" in page
    assert "window 10.00 s" in page


def test_it_replaces_what_is_there_and_can_be_in_chinese(results: Path, bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("old", encoding="utf-8")
    assert bench("report", "--out", str(out), "--lang", "zh").code == 0
    assert "吞吐与延迟" in out.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.glob("report*")) == ["report.html"]


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--run", "run-1", "--filter", "true"), 2, "exclude each other"),
        (("--run", "nothing"), 2, "no run 'nothing'"),
        (("--filter", "model = 'none'"), 2, "nothing to report"),
        (("--filter", "nonsense = 1"), 2, "nonsense"),
        (("--compare", "run-1", "nothing"), 2, "nothing is called 'nothing'"),
        (("--lang", "fr"), 2, "fr"),
        (("--out", "missing/report.html"), 1, "can't write"),
    ],
)
def test_what_can_not_be_reported_is_said_and_leaves_no_file(
    results: Path, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], code: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = bench("report", *args)
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err
    assert list(tmp_path.glob("*.html*")) == []
