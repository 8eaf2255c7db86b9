"""`bench gate` and `bench history` over made-up nights: states, messages, exit codes, the accepted file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench import identity
from bench.records import ClockAnchor, Status, TrialRecord
from tests.factories import NS, STARTED_WALL_NS, make_case, make_engine, make_key, make_metrics, make_record, save_trial
from tests.in_process import Bench

DAY_NS = 86_400 * NS
FIRST_NIGHT_NS = STARTED_WALL_NS - 90 * DAY_NS
"""2026-09-01."""
WIGGLE = (0.0, 0.006, -0.006, 0.009, -0.004, 0.003, -0.009, 0.005, -0.002, 0.007)


def trial(
    night: int, factor: float = 1.0, *, role: str = "measure", repeat: int = 1, version: str = "1.0", **over: Any
) -> TrialRecord:
    """A trial of the one series on a night; throughput is 400 tok/s times `factor`."""
    case = make_case()
    engine = make_engine(version=version)
    run_id = over.pop("run_id", f"night-{night:03}" if role == "measure" else f"pairs-{night:03}")
    key = make_key(case, run_id, repeat)
    at = ClockAnchor(
        monotonic_ns=NS, wall_ns=FIRST_NIGHT_NS + night * DAY_NS + repeat * 20 * NS + (role != "measure") * 3600 * NS
    )
    series = identity.series_id(case, identity.workload_id(case), None, engine, ())
    values = {
        "case": case,
        "run_id": run_id,
        "repeat": repeat,
        "key": replace(key, role=role, trial_id=f"{role}-{night}-{repeat}"),
        "started": at,
        "engine": engine,
        "config_id": identity.config_id(series, engine, ()),
        "metrics": make_metrics(output_tok_per_s=400.0 * factor, j_per_output_tok=None),
    }
    return make_record(**(values | over))


def save_nights(results: Path, count: int = 10, *, first: int = 0, level: float = 1.0) -> None:
    for night in range(first, first + count):
        save_trial(results, trial(night, level * (1 + WIGGLE[night % 10])))


def save_pairs(results: Path, night: int, change: float, version: str = "1.0") -> None:
    for pair in range(1, 6):
        wobble = 1 + 0.001 * (pair % 3)
        save_trial(results, trial(night, wobble, role="ab_base", repeat=pair, version="0.9"))
        save_trial(results, trial(night, (1 - change) * wobble**2, role="ab_cand", repeat=pair, version=version))


def of_throughput(ran_out: str) -> dict[str, Any]:
    return next(one for one in json.loads(ran_out)["series"] if one["metric"] == "output_tok_per_s")


@pytest.fixture
def slow_night(results: Path) -> Path:
    """Ten ordinary nights and one that is 6% slower."""
    save_nights(results)
    save_trial(results, trial(10, 0.94))
    return results


def test_an_ordinary_night_is_no_news(results: Path, bench: Bench) -> None:
    save_nights(results, 11)
    ran = bench("gate")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "2026-09-11: 3 results judged: 3 ok\n"


def test_few_nights_are_said_to_be_few(results: Path, bench: Bench) -> None:
    save_nights(results, 5)
    ran = bench("gate")
    assert (ran.code, ran.out) == (0, "2026-09-05: 3 results judged: 3 too few nights\n")


@pytest.mark.usefixtures("slow_night")
def test_a_trigger_asks_for_pairs(bench: Bench) -> None:
    ran = bench("gate", "--github")
    assert ran.code == 1
    assert "to be confirmed: output_tok_per_s of tiny q4_1, mock, batch 8, 64/32" in ran.out
    assert "6.1% worse" in ran.out
    assert "--ab BASE CAND --pairs 5" in ran.out
    assert sum(line.startswith("::warning title=to be confirmed%3A output_tok") for line in ran.out.splitlines()) == 1


def test_pairs_confirm_it(slow_night: Path, bench: Bench, tmp_path: Path) -> None:
    save_pairs(slow_night, 10, 0.06)
    ran = bench("gate", "--github", "--summary", str(tmp_path / "summary.md"))
    assert ran.code == 3
    assert "regression: output_tok_per_s" in ran.out
    assert "5 pairs: 5.9% worse" in ran.out
    assert sum(line.startswith("::error title=regression%3A") for line in ran.out.splitlines()) == 1
    assert "| regression |" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_pairs_against_a_base_that_was_upgraded_meanwhile_are_not_mixed(slow_night: Path, bench: Bench) -> None:
    """Two pairs before the engine of the base was upgraded in its place, and three after it, which show nothing."""
    for pair in range(1, 6):
        wobble, old = 1 + 0.001 * (pair % 3), pair < 3
        save_trial(slow_night, trial(10, wobble, role="ab_base", repeat=pair, version="0.8" if old else "0.9"))
        save_trial(slow_night, trial(10, (0.8 if old else 1.0) * wobble**2, role="ab_cand", repeat=pair, version="1.0"))
    ran = bench("gate")
    assert ran.code != 3
    assert "3 pairs" in ran.out


@pytest.mark.parametrize(("change", "version"), [(0.0, "1.0"), (0.06, "7.7")])
def test_pairs_that_show_nothing_or_are_of_another_build_confirm_nothing(
    slow_night: Path, bench: Bench, change: float, version: str
) -> None:
    save_pairs(slow_night, 10, change, version)
    ran = bench("gate", "--json")
    assert ran.code == (0 if version == "1.0" else 1)
    assert of_throughput(ran.out)["state"] == "trigger"


def test_pairs_night_after_night_that_show_nothing_are_a_shift_of_the_host(slow_night: Path, bench: Bench) -> None:
    for night in range(10, 15):
        if night > 10:
            save_trial(slow_night, trial(night, 0.94))
        save_pairs(slow_night, night, 0.0)
    ran = bench("gate")
    assert ran.code == 3
    assert "shift of the host: output_tok_per_s" in ran.out
    assert bench("gate", "--night", "2026-09-14").code == 0


def test_a_result_that_is_not_there_is_missed_with_the_reason(results: Path, bench: Bench) -> None:
    save_nights(results)
    other = make_case(model="other")
    save_trial(results, trial(10, case=other, key=make_key(other, "night-010")))
    ran = bench("gate")
    assert ran.code == 1
    assert ran.out.count("missing result: ") == 1
    assert "missing result: 3 metrics of tiny" in ran.out
    assert "it was not run" in ran.out
    assert "3 missing result" in ran.out.splitlines()[-1]
    assert "next: " in ran.err
    assert "--where" in ran.err
    assert "not over" not in ran.err
    save_trial(results, trial(10, status=Status.FAILED, error="out of memory", series_id=None, config_id=None, metrics={}))
    assert "failed: out of memory" in bench("gate").out


@pytest.mark.parametrize("form", ["text", "summary", "annotations"])
def test_what_one_series_lacks_is_one_thing_to_tell(results: Path, bench: Bench, tmp_path: Path, form: str) -> None:
    save_nights(results)
    summary = tmp_path / "summary.md"
    ran = bench("gate", "--night", "2026-09-11", "--summary", str(summary), "--github")
    told = {"text": ran.out.split("::")[0], "summary": summary.read_text(), "annotations": ran.out.partition("::")[2]}[form]
    assert told.count("3 metrics of tiny") == 1
    assert "output_tok_per_s of" not in told
    found = json.loads(bench("gate", "--night", "2026-09-11", "--json").out)["series"]
    assert [one["state"] for one in found] == ["missing result"] * 3


@pytest.mark.parametrize(("days", "said"), [(-1, ""), (0, "is not over"), (1, "is yet to come")])
def test_a_night_that_is_not_over_is_said_to_be(
    results: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch, days: int, said: str
) -> None:
    save_nights(results)
    monkeypatch.setattr("bench.cli.gate.iso_utc", lambda _: f"2026-09-{11 - days}T12:00:00Z")
    assert bench("gate", "--night", "2026-09-10").err == "", "nothing is missing, so nothing is to be explained"
    ran = bench("gate", "--night", "2026-09-11")
    assert ("the night 2026-09-11" in ran.err) == bool(said)
    assert said in ran.err


@pytest.mark.parametrize("night", ["banana", "", "2026-9-11", "20260911", "2026-W37-5", "2026-13-45"])
@pytest.mark.parametrize("more", [(), ("--accept", "x", "--reason", "y")], ids=["judge", "accept"])
def test_a_night_that_is_no_day_is_refused_and_nothing_is_written(
    slow_night: Path, bench: Bench, night: str, more: tuple[str, ...]
) -> None:
    ran = bench("gate", "--night", night, *more)
    assert (ran.code, ran.out) == (2, "")
    assert "YYYY-MM-DD" in ran.err
    assert list(slow_night.glob("*.jsonl")) == []


def test_an_accepted_change_begins_anew_and_outlives_the_database(slow_night: Path, bench: Bench) -> None:
    series = of_throughput(bench("gate", "--json").out)["series_id"]
    ran = bench("gate", "--accept", f"{series[:6]}:output_tok_per_s", "--reason", "smaller batches on purpose")
    assert ran.code == 0
    assert "accepted change: output_tok_per_s" in ran.out
    assert "smaller batches on purpose" in ran.out
    save_nights(slow_night, 9, first=11, level=0.94)
    (slow_night / "lab.duckdb").unlink()
    assert of_throughput(bench("gate", "--json").out)["state"] == "ok"


@pytest.mark.usefixtures("slow_night")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--accept", "ffff", "--reason", "x"), "0 series begin with 'ffff'"),
        (("--accept", "ffff"), "go together"),
        (("--where", "no_such_column = 1"), "no_such_column"),
        (("--where", "true); DROP TABLE trials; --"), "error"),
    ],
)
def test_bad_wishes_are_errors(bench: Bench, args: tuple[str, ...], told: str) -> None:
    ran = bench("gate", *args)
    assert ran.code == 2
    assert told in ran.err


@pytest.mark.usefixtures("slow_night")
def test_a_damaged_accepted_file_is_named_with_its_line(slow_night: Path, bench: Bench) -> None:
    (slow_night / "accepted.jsonl").write_text('{"series": "a", "metric": null, "night": "2026-12-01", "reason": "x"}\n{]\n')
    ran = bench("gate")
    assert ran.code == 1
    assert "accepted.jsonl:2" in ran.err


def test_where_limits_what_is_judged_and_missed(results: Path, bench: Bench) -> None:
    save_nights(results, 11)
    other = make_case(model="other")
    save_trial(results, trial(11, case=other, key=make_key(other, "night-011")))
    assert bench("gate").code == 1
    assert bench("gate", "--where", "model = 'tiny'").code == 0


def test_history_draws_every_night(slow_night: Path, bench: Bench) -> None:
    save_pairs(slow_night, 10, 0.06)
    series = of_throughput(bench("gate", "--json").out)["series_id"]
    ran = bench("history", series[:8], "--metric", "output_tok_per_s")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("output_tok_per_s [tok/s] of tiny q4_1, mock")
    assert [line[:10] for line in lines[2:]] == [f"2026-09-{day:02}" for day in range(1, 12)]
    assert "mock 1.0" in lines[2]
    assert all("mock 1.0" not in line for line in lines[3:])
    assert "!" in lines[-1]
    assert "confirmed" in lines[-1]
    assert lines[-1].index("!") < lines[-1].index(":")
    nights = json.loads(bench("history", series, "--json").out)["series"][0]["nights"]
    assert len(nights) == 11
    assert bench("history", "zzzz").code == 2


@pytest.mark.parametrize(("version", "told"), [("1.0", True), ("1.1", False)])
def test_a_reference_that_moved_too_speaks_for_the_build_unless_its_own_changed(
    results: Path, bench: Bench, version: str, told: bool
) -> None:
    save_nights(results)
    save_trial(results, trial(10, 0.94))
    pinned = make_case(model="pinned", labels={"reference": "b1"})
    for night in range(11):
        factor, build = (0.94, version) if night == 10 else (1 + WIGGLE[night], "1.0")
        save_trial(
            results, trial(night, factor, case=pinned, key=make_key(pinned, f"ref-{night}"), engine=make_engine(version=build))
        )
    ran = bench("gate")
    ours = next(line for line in ran.out.splitlines() if line.startswith("to be confirmed: output_tok_per_s of tiny"))
    assert ("so is the reference build" in ours) is told
    assert ("measure pairs" in ours) is not told
    assert ran.code == (0 if told else 1)


def test_a_shift_of_the_host_is_no_excuse_for_what_its_reference_does_not_show(results: Path, bench: Bench) -> None:
    pinned = make_case(model="pinned", labels={"reference": "b1"})
    for night in range(16):
        theirs = 0.94 if night >= 10 else 1 + WIGGLE[night]
        save_trial(results, trial(night, 0.88 if night == 15 else theirs))
        save_trial(results, trial(night, theirs, case=pinned, key=make_key(pinned, f"ref-{night}")))

    def ours(night: int) -> str:
        told = bench("gate", "--night", f"2026-09-{night + 1:02}").out.splitlines()
        return next(line for line in told if line.startswith("shift of the host: output_tok_per_s of tiny"))

    assert "measure pairs" not in ours(14)
    assert "the build may be to blame as well; measure pairs" in ours(15)
