"""`bench compare` as a person runs it: how sides are named, what is said, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench import identity
from bench.records import Case, LoadSpec, Metric, Reason, Status
from tests.factories import make_case, make_device, make_engine, make_key, make_metric, make_metrics, make_record, save_trial
from tests.in_process import Bench

SPREAD = (0.995, 1.0, 1.004, 0.998, 1.003)


def joules(value: float, *, gain: float = 0.05) -> dict[str, Metric]:
    absolute = make_metric("j_per_output_tok", value, low=value * (1 - gain), high=value * (1 + gain))
    return {
        "j_per_output_tok": absolute,
        "j_per_output_tok_same_board": make_metric("j_per_output_tok_same_board", value, low=value, high=value),
    }


def save_run(
    results: Path,
    run_id: str,
    factor: float = 1.0,
    *,
    case: Case | None = None,
    repeats: int = 5,
    first: int = 0,
    version: str = "1.0",
    **over: Any,
) -> None:
    """A run whose throughput is 400 tok/s times `factor`, with repeats that scatter by half a percent."""
    case = case or make_case()
    engine = over.pop("engine", make_engine(name=case.engine, version=version, build=f"abcdef{version}"))
    series = identity.series_id(case, identity.workload_id(case), None, engine, ())
    for repeat in range(first, first + repeats):
        metrics = make_metrics(output_tok_per_s=400.0 * factor * SPREAD[repeat], **joules(0.25 / factor * SPREAD[-1 - repeat]))
        record = make_record(
            case=case,
            run_id=run_id,
            repeat=repeat,
            engine=engine,
            config_id=identity.config_id(series, engine, ()),
            **({"metrics": metrics} | over),
        )
        save_trial(results, record)


def metric_of(found: dict[str, Any], name: str, pair: int = 0) -> dict[str, Any]:
    return next(m for m in found["pairs"][pair]["metrics"] if m["metric"] == name)


@pytest.fixture
def two_versions(results: Path) -> Path:
    save_run(results, "run-1", version="1.0", case=make_case(labels={"build": "main"}))
    save_run(results, "run-2", 0.95, version="2.0", case=make_case(labels={"build": "next"}))
    return results


@pytest.mark.usefixtures("two_versions")
@pytest.mark.parametrize(
    ("base", "cand"),
    [
        ("run-1", "run-2"),
        ("run:run-1", "run-2"),
        ("1.0", "2.0"),
        ("version:1.0", "version:2.0"),
        ("commit:abcdef1.0", "abcdef2"),
        ("build=main", "label:build=next"),
        ("engine_version = '1.0'", "sql:engine_version LIKE '2%'"),
        ("output_tok_per_s > 395 AND engine_version = '1.0'", "sql:output_tok_per_s < 392 AND run_id = 'run-2'"),
    ],
)
def test_sides_have_many_names(bench: Bench, base: str, cand: str) -> None:
    ran = bench("compare", base, cand, "--json")
    assert (ran.code, ran.err) == (3, "")
    found = metric_of(json.loads(ran.out), "output_tok_per_s")
    assert found["ratio"] == pytest.approx(0.95)
    assert found["low"] < 0.95 < found["high"]
    assert (found["verdict"], found["worse"], found["n_base"]) == ("differs", True, 5)


@pytest.mark.usefixtures("two_versions")
def test_it_says_what_got_worse_and_by_how_much(bench: Bench) -> None:
    ran = bench("compare", "1.0", "2.0")
    assert ran.code == 3
    line = next(line for line in ran.out.splitlines() if "output_tok_per_s" in line)
    assert "differs: 5.0% (4.5 to 5.5) lower, worse" in line
    assert "also differs: engine version: 1.0 and 2.0" in ran.out
    assert bench("compare", "2.0", "1.0").code == 0
    assert "| output_tok_per_s |" in bench("compare", "1.0", "2.0", "--markdown").out


@pytest.mark.usefixtures("two_versions")
@pytest.mark.parametrize(
    ("base", "told"),
    [
        ("nothing-like-it", "nothing is called"),
        ("version:7", "no trial has the version '7'"),
        ("run-", "is the beginning of 2 runs or more"),
        ("batch_size = 77", "no trial is valid"),
        ("sql:no_such_column = 1", "no_such_column"),
        ("sql:1=1); DELETE FROM trials; --", "error"),
        ("x' OR 1=1 --", "error"),
    ],
)
def test_a_name_that_fits_nothing_is_an_error(bench: Bench, base: str, told: str) -> None:
    ran = bench("compare", base, "latest")
    assert ran.code == 2
    assert told in ran.err


def test_one_repeat_cant_know_and_fails_nothing(results: Path, bench: Bench) -> None:
    save_run(results, "run-1", repeats=1)
    save_run(results, "run-2", 0.5, repeats=1)
    ran = bench("compare", "run-1", "run-2")
    assert ran.code == 0
    assert "can't know" in ran.out
    assert "differs:" not in ran.out


def test_another_workload_is_refused_with_the_difference(results: Path, bench: Bench) -> None:
    save_run(results, "run-1")
    save_run(results, "run-2", case=make_case(load=LoadSpec(kind="closed", batch_size=16)))
    ran = bench("compare", "run-1", "run-2")
    assert ran.code == 1
    assert "batch_size 8 and 16" in ran.out


def test_joules_of_other_boards_carry_the_gain_and_other_scopes_are_refused(results: Path, bench: Bench) -> None:
    save_run(results, "same")
    save_run(results, "board", devices=(make_device(uid="GPU-0002"),))
    save_run(results, "scope", energy_scope="node")
    widths = {}
    for cand in ("same", "board"):
        found = metric_of(json.loads(bench("compare", "same", cand, "--json").out), "j_per_output_tok")
        widths[cand] = found["high"] / found["low"] - 1
    assert widths["same"] < 0.02
    assert widths["board"] == pytest.approx(0.14, abs=0.02)
    found = metric_of(json.loads(bench("compare", "same", "scope", "--json").out), "j_per_output_tok")
    assert found["ratio"] is None
    assert "accelerator and node" in found["reason"]


def test_invalid_trials_and_earlier_attempts_don_t_count(results: Path, bench: Bench) -> None:
    save_run(results, "run-1")
    save_run(results, "run-2", repeats=3)
    bad = Reason(code="errors", group="throughput", severity="invalid", message="errors")
    key = make_record(run_id="run-2", repeat=4).key
    save_run(results, "run-2", 0.5, first=4, repeats=1, status=Status.INVALID, reasons=(bad,))
    save_run(results, "run-2", first=4, repeats=1, key=replace(key, attempt=2, trial_id="again"))
    found = metric_of(json.loads(bench("compare", "run-1", "run-2", "--json").out), "output_tok_per_s")
    assert found["n_candidate"] == 4


def test_devices_are_a_choice_and_no_regression(results: Path, bench: Bench) -> None:
    for name, factor in (("Fast", 1.0), ("Slow", 0.5)):
        device = make_device(name=name, uid=f"GPU-{name}")
        case = make_case()
        series = identity.series_id(case, identity.workload_id(case), None, make_engine(), (device,))
        save_run(results, f"run-{name}", factor, devices=(device,), series_id=series)
    ran = bench("compare", "fast", "device:slow")
    assert ran.code == 0
    assert "50.0%" in ran.out
    assert "also differs: devices: Fast and Slow" in ran.out


@pytest.mark.parametrize("name", ["pairs-1", "pairs", "run:pairs-1", "latest"])
def test_a_run_of_pairs_is_shown_elsewhere(results: Path, bench: Bench, name: str) -> None:
    case = make_case()
    for role in ("ab_base", "ab_cand"):
        key = replace(make_key(case, "pairs-1", 1), role=role, trial_id=role)
        save_trial(results, make_record(case=case, run_id="pairs-1", key=key))
    ran = bench("compare", name, name)
    assert ran.code == 2
    assert "run pairs-1 holds only pairs" in ran.err
    assert "next: bench report --run pairs-1" in ran.err
    assert "nothing is called 'pairs-2'" in bench("compare", "pairs-2", name).err
