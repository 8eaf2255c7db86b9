"""Searches against simulated servers: they find what is there, within their budget, and never ask twice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.analysis.knee import LoadPoint, doubling_gain, find_knee, is_flat
from bench.analysis.search import RATE_TOLERANCE, Step, advance, conclude, holds, ladder
from bench.records import Search
from bench.stats import Estimate

Curve = Callable[[float], float]


def roofline(knee: float) -> Curve:
    """Throughput grows with load up to `knee` and no further."""
    return lambda load: 30.0 * min(load, knee)


def soft(knee: float) -> Curve:
    """Time of a step grows with the batch: 4.5 times the half-way load is where doubling brings 10%."""
    return lambda load: load / (1 + 4.5 * load / knee)


def thrashing(knee: float) -> Curve:
    """Beyond `knee` throughput falls."""
    return lambda load: 30.0 * min(load, knee) * min(1.0, (knee / load) ** 0.3)


def true_knee(curve: Curve, gain: float, low: float, high: float) -> float:
    """The smallest load that doubling would raise throughput by less than `gain`, on a fine grid."""
    grid = low * (high / low) ** np.linspace(0, 1, 4000)
    return float(next(load for load in grid if curve(2 * load) / curve(load) < 1 + gain))


def a_point(load: float, rate: float, spread: float = 0.001, **over: object) -> LoadPoint:
    throughput = Estimate(value=rate, low=rate * math.exp(-spread), high=rate * math.exp(spread), n=10)
    return LoadPoint(load=load, throughput=throughput, **over)  # type: ignore[arg-type]


class Server:
    """Answers each load once; asking twice fails the test."""

    def __init__(self, at: Callable[[float], LoadPoint]) -> None:
        self._at = at
        self.known: dict[float, LoadPoint] = {}

    def search(self, search: Search) -> Step:
        """Drive a search as a run does: ask, measure, ask again."""
        for _ in range(search.points + 1):
            step = advance(search, self.known.get)
            if step.ask is None:
                return step
            load = step.ask.load
            assert load not in self.known
            assert search.low <= load <= search.high
            self.known[load] = self._at(load)
        raise AssertionError(f"more than {search.points} points were asked for")


def throughput_server(curve: Curve, noise: float = 0.0, seed: int = 0) -> Server:
    rng = np.random.default_rng(seed)
    return Server(lambda load: a_point(load, curve(load) * math.exp(rng.normal(0.0, noise)), max(2 * noise, 0.001)))


def latency_server(limit: float, *, wall: float = math.inf, slope: float = 20.0) -> Server:
    """Attainment stays at 1 until near `limit`, where it crosses 0.99; above `wall` points don't count."""

    def at(load: float) -> LoadPoint:
        problem = "client_saturated: too late" if load > wall else None
        attained = 1.0 if load <= limit else max(0.0, 0.99 - (load / limit - 1) * slope)
        return a_point(load, load, attained=attained, requests=500, goodput_rps=load, problem=problem)

    return Server(at)


LOADS = st.floats(2.0, 110.0)


@given(LOADS, st.sampled_from([roofline, thrashing]), st.integers(0, 99))
def test_the_knee_of_a_roofline_is_found_through_noise(knee: float, shape: Callable[[float], Curve], seed: int) -> None:
    search = Search(find="knee")
    verdict = conclude(search, throughput_server(shape(knee), 0.01, seed).search(search))
    assert verdict.complete
    assert verdict.best is not None
    true = true_knee(shape(knee), 0.1, 1, 256)
    assert true / 1.2 - 1 <= verdict.best.load <= true * 1.25 + 1


@given(st.floats(4.0, 60.0))
def test_the_knee_of_a_soft_curve_is_where_doubling_brings_a_tenth(knee: float) -> None:
    search = Search(find="knee", points=16)
    verdict = conclude(search, throughput_server(soft(knee)).search(search))
    assert verdict.best is not None
    true = true_knee(soft(knee), 0.1, 1, 256)
    assert true / 1.2 - 1 <= verdict.best.load <= true * 1.25 + 1


@given(st.floats(0.05, 40.0), st.floats(0.5, 1.0), st.integers(6, 20))
def test_a_knee_over_rates_is_found_at_any_scale(knee: float, start: float, points: int) -> None:
    low = start * knee / 10
    search = Search(find="knee", over="request_rate", low=low, high=knee * 5, points=points)
    verdict = conclude(search, throughput_server(roofline(knee)).search(search))
    assert verdict.best is not None
    assert knee / 2 <= verdict.best.load <= knee * 2.1


@given(st.integers(4, 20), st.floats(1, 50).map(round), st.floats(60, 1000).map(round), st.integers(0, 99), st.floats(0, 0.2))
def test_every_search_ends_within_its_budget_whatever_it_is_told(points: int, low: int, high: int, seed: int, bad: float) -> None:
    """Points at random, some of which don't count: `Server` refuses a second question and one beyond the budget."""
    rng = np.random.default_rng(seed)

    def at(load: float) -> LoadPoint:
        problem = "errors: many" if rng.random() < bad else None
        starved = problem is not None and rng.random() < 0.5
        share = float(rng.random())
        return a_point(load, 1 + 100 * share, 0.05, attained=share, requests=99, problem=problem, starved=starved)

    for find in ("knee", "max-goodput"):
        search = Search(find=find, low=low, high=high, points=points)
        step = Server(at).search(search)
        verdict = conclude(search, step)
        assert verdict.complete
        assert verdict.ended
        assert verdict.best is None or verdict.best.problem is None
        assert len(step.points) == len({point.load for point in step.points}) <= points


@given(st.integers(1, 300), st.integers(4, 30))
def test_the_largest_batch_that_holds_is_found_to_the_unit_where_the_budget_allows(limit: int, points: int) -> None:
    search = Search(find="max-goodput", points=points)
    step = latency_server(limit).search(search)
    verdict = conclude(search, step)
    assert verdict.best is not None
    assert verdict.best.load <= min(limit, 256)
    assert holds(search, verdict.best)
    if points >= 20:
        assert verdict.best.load == min(limit, 256)
    if verdict.above is not None:
        assert verdict.above.load > verdict.best.load
        assert not holds(search, verdict.above)


@given(st.floats(0.3, 90.0))
def test_the_largest_rate_that_holds_is_found_to_its_tolerance(limit: float) -> None:
    search = Search(find="max-goodput", over="request_rate", low=0.1, high=100.0, points=24)
    verdict = conclude(search, latency_server(limit).search(search))
    assert verdict.best is not None
    assert limit * (1 - RATE_TOLERANCE - 0.001) <= verdict.best.load <= limit


def queueing(servers: int) -> Callable[[float], float]:
    """Share of requests of an M/M/c queue (each served in 1 s on average) that wait at most 0.1 s. Source: Erlang C."""

    def attained(rate: float) -> float:
        if rate >= servers:
            return 0.0
        inverse = 1.0
        for k in range(1, servers + 1):
            inverse = 1.0 + inverse * k / rate
        erlang_b = 1.0 / inverse
        wait = erlang_b / (1 - (rate / servers) * (1 - erlang_b))
        return 1.0 - wait * math.exp(-(servers - rate) * 0.1)

    return attained


@given(st.integers(4, 60))
def test_a_queue_is_driven_to_where_too_many_wait(servers: int) -> None:
    attained = queueing(servers)
    search = Search(find="max-goodput", over="request_rate", low=0.2, high=100.0, points=24, attainment=0.95)
    assume(attained(0.2) >= 0.95)
    server = Server(lambda rate: a_point(rate, min(rate, servers), attained=attained(rate), requests=1000))
    verdict = conclude(search, server.search(search))
    assert verdict.best is not None
    assert attained(verdict.best.load) >= 0.95 > attained(verdict.best.load * (1 + RATE_TOLERANCE + 0.002))


@given(st.integers(2, 200), st.integers(2, 200))
def test_nothing_is_tried_above_a_point_that_does_not_count_and_it_is_never_best(limit: int, wall: int) -> None:
    search = Search(find="max-goodput", points=24)
    server = latency_server(limit, wall=wall)
    step = server.search(search)
    verdict = conclude(search, step)
    assert verdict.best is not None
    assert verdict.best.load == min(limit, wall)
    seen_wall = math.inf
    for point in step.points:
        assert point.load < seen_wall
        if point.problem:
            seen_wall = point.load
    if wall < limit:
        assert verdict.above is not None
        assert verdict.above.problem == "client_saturated: too late"


@given(st.integers(3, 100))
def test_a_knee_search_that_hits_a_wall_says_so_and_claims_no_knee(wall: int) -> None:
    search = Search(find="knee", points=16)
    server = Server(lambda load: a_point(load, 30.0 * load, problem="client_saturated" if load > wall else None))
    verdict = conclude(search, server.search(search))
    assert verdict.best is None
    assert verdict.highest is not None
    assert wall / 1.15 - 1 <= verdict.highest.load <= wall
    assert verdict.above is not None
    assert verdict.above.problem == "client_saturated"


def test_a_load_too_small_to_be_judged_does_not_end_the_way_up() -> None:
    def at(load: float) -> LoadPoint:
        problem = "too_few_requests" if load < 4 else None
        return a_point(load, 30 * min(load, 32), problem=problem, starved=problem is not None)

    search = Search(find="knee")
    verdict = conclude(search, Server(at).search(search))
    assert verdict.best is not None
    assert 26 <= verdict.best.load <= 35


def test_a_first_point_that_fails_ends_the_search_with_its_reason() -> None:
    for find in ("knee", "max-goodput"):
        search = Search(find=find)
        server = Server(lambda load: LoadPoint(load=load, problem="failed: no engine"))
        verdict = conclude(search, server.search(search))
        assert len(server.known) == 1
        assert verdict.best is None
        assert verdict.above is not None
        assert verdict.above.problem == "failed: no engine"


def test_a_knee_below_the_lowest_load_is_told_as_that_load() -> None:
    search = Search(find="knee", low=8, high=64)
    verdict = conclude(search, throughput_server(lambda load: 100.0).search(search))
    assert verdict.best is not None
    assert verdict.best.load == 8


def test_a_curve_that_grows_to_the_end_has_no_knee() -> None:
    search = Search(find="knee")
    verdict = conclude(search, throughput_server(lambda load: load).search(search))
    assert verdict.best is None
    assert verdict.highest is not None
    assert verdict.highest.load == 256
    assert verdict.gain is not None
    assert verdict.gain.value == pytest.approx(1.0)


def test_a_dip_on_the_way_up_is_no_knee_when_growth_goes_on() -> None:
    rates = {1: 10.0, 2: 20.0, 4: 40.0, 8: 41.0, 16: 80.0, 32: 160.0}
    points = [a_point(load, rate) for load, rate in rates.items()]
    assert find_knee(points, 0.1) is None


def test_one_noisy_flat_step_is_not_enough_but_a_clear_one_is() -> None:
    clear = [a_point(1, 10.0, 0.01), a_point(2, 10.2, 0.01)]
    noisy = [a_point(1, 10.0, 0.1), a_point(2, 10.2, 0.1)]
    assert is_flat(clear, 0.1)
    assert not is_flat(noisy, 0.1)
    assert is_flat([*noisy, a_point(4, 10.3, 0.1)], 0.1)
    assert not is_flat(clear[:1], 0.1)


def test_gain_of_a_doubling_is_read_between_points_and_has_an_interval() -> None:
    points = [a_point(10, 100.0, 0.02), a_point(16, 130.0, 0.02), a_point(40, 150.0, 0.02)]
    gain = doubling_gain(points, 10)
    assert gain is not None
    expected = 130.0 * (150 / 130) ** (math.log(20 / 16) / math.log(40 / 16)) / 100 - 1
    assert gain.value == pytest.approx(expected)
    assert gain.low is not None
    assert gain.high is not None
    assert gain.low < gain.value < gain.high
    assert doubling_gain(points, 40) is None


@pytest.mark.parametrize(
    ("search", "loads"),
    [
        (Search(find="knee", high=16), (1, 2, 4, 8, 16)),
        (Search(find="knee", high=20), (1, 2, 4, 8, 20)),
        (Search(find="knee", low=3, high=4), (3, 4)),
        (Search(find="knee", over="request_rate", low=0.5, high=4), (0.5, 1, 2, 4)),
        (Search(find="knee", high=1000, points=4), (1, 32, 1000)),
    ],
)
def test_ladders(search: Search, loads: tuple[float, ...]) -> None:
    assert ladder(search) == loads


@given(LOADS, st.integers(0, 40))
def test_a_search_goes_on_from_any_part_of_what_it_knew(knee: float, forgotten: int) -> None:
    """Where points are lost (killed trials), only those are asked for again."""
    search = Search(find="knee")
    server = throughput_server(roofline(knee))
    whole = server.search(search)
    lost = whole.points[forgotten % len(whole.points)].load
    kept = {load: point for load, point in server.known.items() if load != lost}
    step = advance(search, kept.get)
    assert step.ask is not None
    assert step.ask.load == lost
    assert not conclude(search, step).complete
    assert advance(search, server.known.get) == whole
