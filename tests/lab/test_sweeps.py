"""Sweeps: loads of a search as cases, trials as its points, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bench.identity import case_id
from bench.lab.sweeps import SweepPlanner, case_at, point_of, search_id
from bench.records import Case, LoadSpec, Metric, Reason, Search, Slo, Status, Sweep, TrialRecord
from bench.reports.searches import search_json, search_label, search_line
from bench.runners.sizing import size_for
from tests.factories import make_case, make_metric, make_metrics, make_record

Measure = Callable[[Case, int], TrialRecord]


def a_sweep(find: str = "knee", *, repeats: int = 1, over: str = "batch_size", **search: Any) -> Sweep:
    spec = Search(find=find, over=over, **search)  # type: ignore[arg-type]
    load = LoadSpec(kind="closed", batch_size=1)
    if over == "request_rate":
        load = LoadSpec(kind="open", request_rate=spec.low, arrivals="poisson")
    slos = (Slo(metric="ttft", limit_ms=200.0),)
    return Sweep(case=make_case(name="chat", load=load, repeats=repeats, slos=slos), search=spec)


def load_of(case: Case) -> float:
    value = case.load.batch_size if case.load.kind == "closed" else case.load.request_rate
    assert value is not None
    return float(value)


def roofline(knee: float) -> Measure:
    """Throughput of a server that holds `knee` requests; 0.1% more with each repeat."""

    def measure(case: Case, repeat: int) -> TrialRecord:
        rate = 30.0 * min(load_of(case), knee) * (1 + 0.001 * repeat)
        metric = Metric(name="output_tok_per_s", unit="tok/s", value=rate, low=rate * 0.995, high=rate * 1.005, n=10)
        return make_record(case=case, repeat=repeat, metrics=make_metrics(output_tok_per_s=metric))

    return measure


def goodput(limit: float, of: int = 200) -> Measure:
    """All of `of` requests within the limits up to a load of `limit`, 5% misses above. Windows are ten seconds."""

    def measure(case: Case, repeat: int) -> TrialRecord:
        good = of if load_of(case) <= limit else round(0.95 * of)
        metric = make_metric("goodput_rps", good / 10.0, n=of)
        return make_record(case=case, repeat=repeat, metrics=make_metrics(goodput_rps=metric))

    return measure


def drive(planner: SweepPlanner, measure: Measure, done: list[TrialRecord]) -> list[tuple[float, int]]:
    """Measure what a planner asks for until it is through; the loads and repeats in order."""
    asked = []
    while left := planner.remaining(done):
        trial = left[0]
        asked.append((load_of(trial.case), trial.repeat))
        assert len(asked) < 500
        done.append(replace(measure(trial.case, trial.repeat), extra=trial.extra))
    return asked


def invalid(code: str, message: str, group: str = "latency") -> dict[str, Any]:
    reason = Reason(code=code, group=group, severity="invalid", message=message)  # type: ignore[arg-type]
    return {"status": Status.INVALID, "reasons": (reason,)}


def test_a_load_becomes_a_case_of_its_own_that_is_the_same_as_a_plain_one() -> None:
    at = case_at(a_sweep(), 32.0)
    plain = replace(a_sweep().case, name="other", load=LoadSpec(kind="closed", batch_size=32))
    assert at.name == "chat/batch_size=32"
    assert case_id(at) == case_id(plain)
    assert isinstance(at.load.batch_size, int)
    open_loop = case_at(a_sweep(over="request_rate", low=0.5, high=9), 2.5)
    assert (open_loop.load.request_rate, open_loop.load.arrivals, open_loop.name) == (2.5, "poisson", "chat/request_rate=2.5")


def test_the_engine_is_sized_for_both_ends() -> None:
    assert [load_of(case) for case in SweepPlanner(a_sweep(low=2, high=100)).cases] == [2, 100]


def test_every_repeat_of_a_point_comes_before_the_next_point() -> None:
    asked = drive(SweepPlanner(a_sweep(repeats=2, high=16, points=8)), roofline(4), [])
    assert asked[:6] == [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2)]
    assert all(asked[i][0] == asked[i + 1][0] for i in range(0, len(asked), 2))
    assert len(asked) <= 16


def test_trials_say_which_search_they_belong_to_and_why() -> None:
    sweep, done = a_sweep(high=64), list[TrialRecord]()
    drive(SweepPlanner(sweep), roofline(24), done)
    about = [record.extra["search"] for record in done]
    assert {entry["id"] for entry in about} == {search_id(sweep)}
    assert [entry["role"] for entry in about][:3] == ["ladder"] * 3
    assert about[-1]["role"] == "refine"
    assert [entry["load"] for entry in about] == [load_of(record.case) for record in done]
    json.dumps(about)


def test_the_knee_is_told_in_a_sentence_and_in_json() -> None:
    sweep, done = a_sweep(high=128), list[TrialRecord]()
    planner = SweepPlanner(sweep)
    drive(planner, roofline(32), done)
    result = planner.result(done)
    line, data = search_line(result), search_json(result)
    best = result.verdict.best
    assert best is not None
    assert 29 <= best.load <= 33
    assert line.startswith(f"chat: knee at batch {best.load:g}: ")
    assert "for double the load" in line
    assert data["best"] == best.load
    assert data["complete"] is True
    assert data["find"] == "knee"
    assert [point["load"] for point in data["points"]] == [load_of(record.case) for record in done]
    assert [point["trials"] for point in data["points"]] == [[record.key.trial_id] for record in done]
    json.dumps(data, allow_nan=False)


def test_the_most_goodput_is_told_with_what_stands_above_it() -> None:
    planner, done = SweepPlanner(a_sweep("max-goodput", high=64)), list[TrialRecord]()
    drive(planner, goodput(21), done)
    line = search_line(planner.result(done))
    assert line.startswith(
        "chat: most goodput at batch 21: 20.00 good requests/s, 100% of 200 requests within ttft:200; batch 22: 95%"
    )


@pytest.mark.parametrize(
    ("find", "measure", "told"),
    [
        ("knee", roofline(1e9), "no knee up to batch 64: 1922 tok/s, last +100% for double the load; search higher"),
        ("knee", roofline(1), "knee at batch 1 or below: 30.03 tok/s, beyond it +0%"),
        (
            "max-goodput",
            goodput(1e9),
            "most goodput at batch 64: 20.00 good requests/s, 100% of 200 requests within ttft:200; it may",
        ),
        ("max-goodput", goodput(0), "no load keeps 0.99 of requests within ttft:200; batch 1: 95% of 200 requests"),
    ],
)
def test_searches_without_an_inner_end_say_so(find: str, measure: Measure, told: str) -> None:
    planner, done = SweepPlanner(a_sweep(find, high=64)), list[TrialRecord]()
    drive(planner, measure, done)
    assert f"chat: {told}" in search_line(planner.result(done))


def test_a_wall_is_told_with_its_reason() -> None:
    def measure(case: Case, repeat: int) -> TrialRecord:
        record = roofline(1e9)(case, repeat)
        return replace(record, **invalid("client_saturated", "a worker used 99%")) if load_of(case) > 20 else record

    planner, done = SweepPlanner(a_sweep(high=64)), list[TrialRecord]()
    asked = drive(planner, measure, done)
    line = search_line(planner.result(done))
    assert max(load for load, _ in asked) == 32
    assert "no knee up to batch 20" in line or "no knee up to batch 19" in line
    assert "does not count: client_saturated (a worker used 99%)" in line


def test_a_search_whose_lowest_load_does_not_count_says_what_to_do() -> None:
    planner, done = SweepPlanner(a_sweep(low=2, high=64)), list[TrialRecord]()
    drive(planner, lambda case, repeat: replace(roofline(1e9)(case, repeat), **invalid("errors", "it failed")), done)
    line = search_line(planner.result(done))
    assert line.startswith("chat: no knee: batch 2 does not count: errors (it failed); measure that load alone until it is valid")
    assert "--low" in line


def test_a_search_that_was_cut_off_says_how_to_go_on() -> None:
    planner, done = SweepPlanner(a_sweep(high=64)), list[TrialRecord]()
    drive(planner, roofline(8), done)
    half = done[:3]
    result = planner.result(half)
    assert not result.verdict.complete
    assert "unfinished, cut off after 3 points: go on with --resume" in search_line(result)
    assert search_line(planner.result([])).startswith("chat: no knee: no point (0 points; unfinished")


def test_two_searches_share_the_points_they_have_in_common() -> None:
    def both(case: Case, repeat: int) -> TrialRecord:
        record = roofline(16)(case, repeat)
        return replace(record, metrics=record.metrics | {"goodput_rps": goodput(40)(case, repeat).metrics["goodput_rps"]})

    done: list[TrialRecord] = []
    first = drive(SweepPlanner(a_sweep("knee", high=64)), both, done)
    second = drive(SweepPlanner(a_sweep("max-goodput", high=64)), both, done)
    assert not {load for load, _ in first} & {load for load, _ in second}


CASE = case_at(a_sweep(repeats=3), 8)


def trials(*statuses: str) -> list[TrialRecord]:
    """Three repeats of one case by their first letters: v(alid), i(nvalid), f(ailed), s(tarved)."""
    kinds: dict[str, dict[str, Any]] = {
        "v": {},
        "i": invalid("not_steady", "moved", "throughput"),
        "s": invalid("too_few_requests", "4 requests", "all"),
        "f": {"status": Status.FAILED, "error": "out of memory\nmore"},
    }
    measure = roofline(100)
    return [replace(measure(CASE, repeat), **kinds[kind]) for repeat, kind in enumerate(statuses, start=1)]


@pytest.mark.parametrize(
    ("statuses", "problem", "starved"),
    [
        ("vvv", None, False),
        ("vvi", None, False),
        ("vif", "not_steady (moved)", False),
        ("fff", "failed: out of memory", False),
        ("sss", "too_few_requests (4 requests)", True),
        ("ssf", "too_few_requests (4 requests)", False),
    ],
)
def test_a_point_counts_when_most_of_its_trials_are_valid(statuses: str, problem: str | None, starved: bool) -> None:
    point = point_of(Search(find="knee"), 8, CASE, trials(*statuses))
    assert point is not None
    assert (point.problem, point.starved) == (problem, starved)
    if problem is None:
        assert point.throughput is not None
        assert point.throughput.n == statuses.count("v")


def test_a_point_waits_for_all_its_repeats() -> None:
    assert point_of(Search(find="knee"), 8, CASE, trials("v", "v")) is None


def test_an_energy_reason_does_not_make_a_point_of_little_load_a_wall() -> None:
    energy = Reason(code="power_coverage", group="energy", severity="invalid", message="gap")
    bad = [replace(trial, reasons=(*trial.reasons, energy)) for trial in trials("s", "s", "s")]
    point = point_of(Search(find="knee"), 8, CASE, bad)
    assert point is not None
    assert point.starved


def test_a_point_without_the_number_searched_by_does_not_count() -> None:
    bare = [make_record(case=CASE, repeat=r, metrics=make_metrics(output_tok_per_s=None, goodput_rps=None)) for r in (1, 2, 3)]
    for find, name in (("knee", "output_tok_per_s"), ("max-goodput", "goodput_rps")):
        point = point_of(Search(find=find), 8, CASE, bare)  # type: ignore[arg-type]
        assert point is not None
        assert point.problem == f"{name} is missing: not measured"


def test_attainment_pools_requests_over_repeats() -> None:
    counts = {1: (90, 100), 2: (200, 200), 3: (300, 300)}
    done = [
        make_record(case=CASE, repeat=r, metrics=make_metrics(goodput_rps=make_metric("goodput_rps", good / 10, n=of)))
        for r, (good, of) in counts.items()
    ]
    point = point_of(Search(find="max-goodput"), 8, CASE, done)
    assert point is not None
    assert point.attained == pytest.approx(590 / 600)
    assert point.requests == 600


def test_labels() -> None:
    assert (
        search_label(Search(find="max-goodput", over="request_rate", low=0.5, high=20)) == "max-goodput over request_rate 0.5..20"
    )


def test_llama_cpp_gets_a_slot_for_each_request_of_the_largest_load() -> None:
    assert size_for(SweepPlanner(a_sweep(low=2, high=96)).cases, {}).slots == 96
