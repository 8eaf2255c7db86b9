"""Which measured setting is recommended, and what is said of the others."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bench.analysis.candidates import Candidate, Price, Quantile, candidates, pooled
from bench.analysis.pool import pool_key
from bench.analysis.recommend import Recommendation, Wanted, recommend
from bench.analysis.routing import Pick, routes
from bench.records import DeviceInfo, LoadSpec, Metric, Slo, Status, TrialRecord
from tests.factories import make_case, make_device, make_engine, make_metric, make_metrics, make_record

TTFT, TPOT = Slo(metric="ttft", limit_ms=500.0), Slo(metric="tpot", limit_ms=50.0)
H200, MI300X = "NVIDIA H200", "AMD Instinct MI300X"


def boards(name: str, count: int = 1) -> tuple[DeviceInfo, ...]:
    return tuple(make_device(uid=f"{name}-{i}", index=i, name=name) for i in range(count))


def trials(
    name: str,
    tok_per_s: tuple[float, ...] = (400.0, 402.0, 404.0),
    *,
    device: str = H200,
    count: int = 1,
    case: dict[str, Any] | None = None,
    status: Status = Status.VALID,
    **metrics: float | Metric | None,
) -> list[TrialRecord]:
    """Repeats of one point; `ttft_adjusted_ms` and `tpot_ms` are given as p99."""
    numbers: dict[str, float | Metric | None] = {
        "top1_agreement": 1.0,
        "ttft_adjusted_ms": 100.0,
        "tpot_ms": 20.0,
        "tok_per_j": 2.0,
    }
    numbers |= metrics
    for latency in ("ttft_adjusted_ms", "ttft_scheduled_adjusted_ms", "tpot_ms"):
        if isinstance(value := numbers.get(latency), float):
            numbers[latency] = make_metric(latency, value / 1.5)
    return [
        make_record(
            case=make_case(name=name, engine_args={"of": name}, **(case or {})), run_id=f"run-{name}", repeat=repeat,
            status=status, devices=boards(device, count), engine=make_engine(),
            metrics=make_metrics(output_tok_per_s=rate, **numbers),
        )
        for repeat, rate in enumerate(tok_per_s)
    ]  # fmt: skip


def asked(*points: list[TrialRecord], objective: Any = "tok_per_s", usd: float | None = None, **over: Any) -> Recommendation:
    records = [record for point in points for record in point]
    prices = {pool_key(one): Price(usd_per_device_hour=usd, source="a list") for one in records} if usd is not None else {}
    wanted: dict[str, Any] = {"slos": (TTFT, TPOT), "min_top1": 0.99} | over
    return recommend(candidates(records, prices), Wanted(objective=objective, **wanted))


def name_of(one: Candidate | None) -> str | None:
    return None if one is None else one.first.case.name


# --- who is the best ----------------------------------------------------------------------------------------------------


def test_the_best_of_those_that_meet_everything() -> None:
    slow = trials("slow", (100.0, 101.0, 102.0))
    good = trials("good")
    late = trials("late", (900.0, 901.0, 902.0), ttft_adjusted_ms=501.0)
    wrong = trials("wrong", (999.0, 999.5, 1000.0), top1_agreement=0.98)
    found = asked(slow, late, good, wrong)
    assert name_of(found.best) == "good"
    assert [name_of(one.candidate) for one in found.runners_up] == ["slow"]
    assert [name_of(one.candidate) for one in found.near] == ["late"]
    assert [(name_of(one.candidate), one.lack) for one in found.left_out] == [("wrong", "not correct enough")]
    assert found.left_out[0].reason == "top1_agreement 0.98, wanted 0.99"


@pytest.mark.parametrize(
    ("objective", "best"),
    [("tok_per_s", "two boards"), ("tok_per_j", "frugal"), ("usd_per_mtok", "one board")],
)
def test_each_objective_has_its_own_best(objective: str, best: str) -> None:
    found = asked(
        trials("one board", (500.0, 501.0), tok_per_j=1.0),
        trials("two boards", (900.0, 901.0), count=2, tok_per_j=1.5),
        trials("frugal", (100.0, 101.0), tok_per_j=3.0),
        objective=objective,
        usd=3.6,
    )
    assert name_of(found.best) == best


def test_dollars_are_those_of_all_boards_for_a_million_tokens() -> None:
    """2 boards at 3.60 USD/h are 0.002 USD/s; 500 tok/s take 2000 s for a million."""
    found = asked(trials("point", (500.0, 500.0), count=2), objective="usd_per_mtok", usd=3.6)
    assert found.best is not None
    value = pooled(found.best, "usd_per_mtok")
    assert value is not None
    assert value.value == pytest.approx(4.0)


# --- what keeps a point out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [(499.0, 400.0, 501.0), (501.0, 100.0, 100.0)])
def test_the_worst_repeat_decides_about_a_limit(spread: tuple[float, ...]) -> None:
    records = [trials("point", ttft_adjusted_ms=value)[place] for place, value in enumerate(spread)]
    found = asked(records)
    assert found.best is None
    (miss,) = found.near[0].misses
    assert miss.slo == TTFT
    assert miss.value_ms == pytest.approx(501.0)


def test_a_limit_may_just_be_reached() -> None:
    at = make_metric("tpot_ms", 10.0, p99=50.0)
    assert name_of(asked(trials("point", tpot_ms=at)).best) == "point"


@pytest.mark.parametrize(("quantile", "best"), [("p50", "point"), ("p90", None), ("p99", None)])
def test_a_limit_holds_at_the_quantile_that_was_asked_for(quantile: Quantile, best: str | None) -> None:
    tail = make_metric("ttft_adjusted_ms", 100.0, p90=600.0, p99=900.0)
    assert name_of(asked(trials("point", ttft_adjusted_ms=tail), quantile=quantile).best) == best


def test_the_nearest_is_the_one_whose_worst_miss_is_the_smallest() -> None:
    found = asked(
        trials("by much", ttft_adjusted_ms=5000.0),
        trials("by both", ttft_adjusted_ms=550.0, tpot_ms=60.0),
        trials("by one", ttft_adjusted_ms=590.0),
    )
    assert found.best is None
    assert [name_of(one.candidate) for one in found.near] == ["by one", "by both", "by much"]
    assert [miss.slo.metric for miss in found.near[1].misses] == ["ttft", "tpot"]


@pytest.mark.parametrize(
    ("metrics", "lack", "reason"),
    [
        ({"top1_agreement": None}, "no correctness figure", "top1_agreement: not measured"),
        ({"tpot_ms": None}, "no latency figure", "tpot_ms p99: not measured"),
        (
            {"ttft_adjusted_ms": make_metric("ttft_adjusted_ms", 9.0, p99=None, n=40)},
            "no latency figure",
            "ttft_adjusted_ms p99: too few requests for a p99",
        ),
        (
            {"ttft_adjusted_ms": make_metric("ttft_adjusted_ms", 9.0, p99=None, reason="p99: 9 of 400 requests never succeeded")},
            "no latency figure",
            "ttft_adjusted_ms p99: p99: 9 of 400 requests never succeeded",
        ),
        ({"tok_per_j": None}, "nothing to rank it by", "tok_per_j: not measured"),
        ({"tok_per_j": 0.0}, "nothing to rank it by", "tok_per_j is 0 in a trial"),
    ],
)
def test_what_is_not_known_is_left_out_with_its_reason(metrics: dict[str, Any], lack: str, reason: str) -> None:
    found = asked(trials("lacking", **metrics), trials("good"), objective="tok_per_j")
    assert name_of(found.best) == "good"
    assert [(one.lack, one.reason) for one in found.left_out] == [(lack, reason)]


def test_one_repeat_without_a_latency_leaves_the_point_out() -> None:
    records = trials("point")
    records[1:2] = [trials("point", tpot_ms=None)[1]]
    assert [one.lack for one in asked(records).left_out] == ["no latency figure"]


@pytest.mark.parametrize(
    ("floor", "metrics", "meets"),
    [
        ({"min_top1": 0.99}, {"top1_agreement": 0.99}, True),
        ({"min_top1": 0.99}, {"top1_agreement": 0.9899}, False),
        ({"max_ppl_delta": 0.01, "min_top1": None}, {"ppl_delta": 0.01, "top1_agreement": 0.5}, True),
        ({"max_ppl_delta": 0.01, "min_top1": None}, {"ppl_delta": 0.011}, False),
        ({"max_ppl_delta": 0.01, "min_top1": None}, {"ppl_delta": -0.02}, True),
        ({"max_ppl_delta": 0.01, "min_top1": 0.99}, {"ppl_delta": 0.0, "top1_agreement": 0.9}, False),
        ({"max_ppl_delta": 0.01, "min_top1": 0.99}, {"ppl_delta": None, "top1_agreement": 1.0}, False),
    ],
)
def test_every_floor_that_is_given_must_be_met(floor: dict[str, Any], metrics: dict[str, Any], meets: bool) -> None:
    assert (asked(trials("point", **metrics), **floor).best is not None) == meets


@pytest.mark.parametrize(("name", "figures"), [("top1_agreement", (1.0, 0.98)), ("ppl_delta", (0.0, 0.02))])
def test_the_worst_repeat_decides_about_a_floor(name: str, figures: tuple[float, float]) -> None:
    given: list[dict[str, Any]] = [{name: figure} for figure in figures]
    records = [trials("point", **metrics)[place] for place, metrics in enumerate(given)]
    assert [one.lack for one in asked(records, max_ppl_delta=0.01 if name == "ppl_delta" else None).left_out] == [
        "not correct enough"
    ]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.VALID])
def test_only_valid_trials_count(status: Status) -> None:
    found = asked(trials("bad", (9e3, 9e3), status=status), trials("good"))
    assert [name_of(one) for one in found.meeting] == ["good"]
    assert not found.left_out


def test_without_a_limit_the_fastest_wins_however_late_it_answers() -> None:
    found = asked(trials("late", (900.0, 901.0), ttft_adjusted_ms=1e6), trials("good"), slos=())
    assert name_of(found.best) == "late"


def test_in_open_loop_waiting_to_be_sent_is_part_of_the_time_to_the_first_token() -> None:
    late = trials(
        "late", case={"load": LoadSpec(kind="open", request_rate=5.0, arrivals="poisson")}, ttft_adjusted_ms=100.0,
        ttft_scheduled_adjusted_ms=5000.0,
    )  # fmt: skip
    assert [one.misses[0].value_ms for one in asked(late).near] == [pytest.approx(5000.0)]


# --- whether it matters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ((399.0, 402.0, 404.0), "no difference shown"),
        ((200.0, 201.0, 202.0), "differs"),
        ((200.0,), "can't know"),
    ],
)
def test_a_runner_up_is_told_apart_only_by_its_repeats(other: tuple[float, ...], verdict: str) -> None:
    found = asked(trials("best", (400.0, 402.0, 406.0)), trials("other", other))
    assert name_of(found.best) == "best"
    assert [one.comparison.verdict for one in found.runners_up] == [verdict]


def test_joules_of_other_boards_carry_the_gain_of_their_sensors() -> None:
    """2.5% apart, with repeats that agree to 0.1%: shown on one board, not between two whose sensors may be 5% off."""

    def point(name: str, device: str, tok_per_j: float, gain: float | None) -> list[TrialRecord]:
        made = []
        for place, wobble in enumerate((0.999, 1.0, 1.001)):
            each = 1.0 / (tok_per_j * wobble)
            known = {} if gain is None else {"high": each * 1.1, "terms": {"gain": (gain * each, gain * each)}}
            joules = make_metric("j_per_output_tok", each, **known)
            made.append(trials(name, device=device, tok_per_j=tok_per_j * wobble, j_per_output_tok=joules)[place])
        return made

    def verdict(device: str, gain: float | None) -> str:
        found = asked(point("best", H200, 2.05, gain), point("other", device, 2.0, gain), objective="tok_per_j")
        assert name_of(found.best) == "best"
        return found.runners_up[0].comparison.verdict

    assert verdict(H200, 0.05) == "differs"
    assert verdict(MI300X, 0.05) == "no difference shown"
    assert verdict(MI300X, 0.0) == "differs"
    assert verdict(MI300X, None) == "not comparable"


def test_the_order_of_the_points_changes_nothing() -> None:
    points = [trials(f"p{i}", (100.0 * i, 101.0 * i)) for i in (1, 2, 3)]
    names = [[name_of(one) for one in asked(*order).meeting] for order in (points, points[::-1])]
    assert names == [["p3", "p2", "p1"]] * 2


def test_of_nothing_nothing_is_recommended() -> None:
    found = asked()
    assert (found.best, found.runners_up, found.near, found.left_out) == (None, (), (), ())


# --- which precision to send where --------------------------------------------------------------------------------------


def picked(pick: Pick | str) -> str | None:
    assert isinstance(pick, Pick), pick
    return pick.best.precision


def test_a_route_for_each_chip() -> None:
    found = asked(
        trials("a", (400.0, 401.0), tok_per_j=3.0, case={"precision": "bf16"}),
        trials("b", (600.0, 601.0), tok_per_j=2.0, case={"precision": "fp8"}),
        trials("c", (900.0, 901.0), top1_agreement=0.9, case={"precision": "awq"}),
        trials("d", (300.0, 301.0), case={"precision": "fp16"}, device=MI300X),
    )
    amd, nvidia = routes(found)
    assert (nvidia.devices, picked(nvidia.fastest), picked(nvidia.efficient)) == ((H200,), "fp8", "bf16")
    assert (nvidia.measured, nvidia.failing, nvidia.unmeasured) == (("bf16", "fp8"), ("awq",), ("int8",))
    assert picked(amd.fastest) == "fp16"
    assert set(amd.unmeasured) == {"fp8", "int8"}


def test_a_precision_is_fastest_only_where_another_was_shown_to_be_slower() -> None:
    close = (
        trials("a", (400.0, 404.0, 408.0), case={"precision": "bf16"}),
        trials("b", (401.0, 405.0, 409.0), case={"precision": "fp8"}),
    )
    (route,) = routes(asked(*close))
    assert isinstance(route.fastest, Pick)
    assert route.fastest.rival is not None
    assert (picked(route.fastest), route.fastest.rival.comparison.verdict) == ("fp8", "no difference shown")


def test_a_route_without_energy_still_has_a_fastest() -> None:
    (route,) = routes(asked(trials("a", tok_per_j=None), objective="tok_per_j"))
    assert picked(route.fastest) == "q4_1"
    assert route.efficient == "no energy"


def test_a_chip_on_which_nothing_is_good_enough_has_no_route() -> None:
    (route,) = routes(asked(trials("late", ttft_adjusted_ms=math.inf)))
    assert route.fastest == "nothing meets what was asked for"
    assert (route.measured, route.failing) == ((), ("q4_1",))
