"""Each rule fires where it should, stays silent where it should, and says which numbers it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from bench.records import (
    Case,
    ClientHealth,
    DataSpec,
    LoadSpec,
    Measured,
    Outcome,
    Profile,
    Stage,
    Status,
    StreamEnd,
    Telemetry,
    Window,
)
from bench.timing import measure
from bench.timing.validity import RULES
from tests.factories import make_engine
from tests.timing.builders import (
    ENERGY,
    HEALTHY,
    OPEN,
    POWER,
    Request,
    S,
    closed_loop,
    make_case,
    make_device,
    make_load,
    make_log,
    poll,
    steady,
    telemetry,
    window_ms,
)

WINDOW = window_ms(0, 10_000)


def judge(
    requests: list[Request] | None = None,
    *,
    case: Case | None = None,
    window: Window | None = WINDOW,
    health: ClientHealth = HEALTHY,
    seen: Telemetry | None = None,
    after: dict[str, float] | None = None,
    **extra: Any,
) -> Measured:
    log = make_log(closed_loop() if requests is None else requests)
    return measure(case or make_case(), make_load(log, window, health), seen or Telemetry(), {}, after or {}, **extra)


def found(measured: Measured, code: str) -> dict[str, str]:
    """Group to severity of one code."""
    return {r.group: r.severity for r in measured.reasons if r.code == code}


def test_a_healthy_trial_has_no_reason() -> None:
    measured = judge()
    assert measured.reasons == ()
    assert measured.status == Status.VALID


def test_the_table_has_every_code_once_and_all_profiles() -> None:
    assert len(RULES) == len({rule.code for rule in RULES.values()})
    for rule in RULES.values():
        assert rule.groups
        assert rule.meaning
        assert len(rule.severity) == 3


@pytest.mark.parametrize(("profile", "seconds", "bad"), [
    (Profile.SMOKE, 4.9, True), (Profile.SMOKE, 5.0, False), (Profile.NIGHTLY, 59.0, True), (Profile.NIGHTLY, 60.0, False),
    (Profile.OFFICIAL, 599.0, True), (Profile.OFFICIAL, 600.0, False),
])  # fmt: skip
def test_too_short(profile: Profile, seconds: float, bad: bool) -> None:
    requests = [steady(1000.0 * i * seconds / 70) for i in range(70)]
    measured = judge(requests, case=make_case(profile=profile), window=window_ms(0, seconds * 1e3))
    assert found(measured, "too_short") == ({"all": "invalid"} if bad else {})


@pytest.mark.parametrize(("count", "bad"), [(4, True), (5, False)])
def test_too_few_requests(count: int, bad: bool) -> None:
    measured = judge([steady(100.0 * i) for i in range(count)])
    assert bool(found(measured, "too_few_requests")) is bad


@pytest.mark.parametrize(
    ("earlier", "words"),
    [
        ([], "at least 5 needed: run longer"),
        ([steady(-900.0 + i, ttft_ms=100, gap_ms=1, n=4) for i in range(4)], "run longer"),
        ([steady(-900.0 + i, ttft_ms=15_000, gap_ms=50, n=8) for i in range(4)], "4 sent before it had not ended"),
        ([Request(sent_ms=-900.0, outcome=Outcome.CANCELLED, finish=None)] * 3, "3 sent before it had not ended"),
        (
            [Request(sent_ms=-900.0, outcome=Outcome.HTTP, finish=None, error="slow down", closed_ms=5000.0)] * 2,
            "2 of 2 sent before it ended badly in it: HTTP status other than 200: slow down",
        ),
        ([Request(sent_ms=-900.0, outcome=Outcome.TIMEOUT, finish=None)] * 2, "no end within the request timeout"),
    ],
)
def test_too_few_requests_tells_what_the_server_was_busy_with(earlier: list[Request], words: str) -> None:
    measured = judge([*earlier, steady(100.0)])
    (text,) = [reason.message for reason in measured.reasons if reason.code == "too_few_requests"]
    assert words in text


@pytest.mark.parametrize(("failed", "bad"), [(5, False), (6, True)])
def test_errors(failed: int, bad: bool) -> None:
    requests = [steady(90.0 * i) for i in range(100 - failed)]
    requests += [Request(sent_ms=9100.0 + i, outcome=Outcome.HTTP, finish=None, error="HTTP 500") for i in range(failed)]
    measured = judge(requests)
    assert found(measured, "errors") == ({"throughput": "invalid", "latency": "invalid"} if bad else {})
    assert measured.metrics["error_share"].value == pytest.approx(failed / 100)
    if bad:
        assert "6 of 100 requests failed (6.0%): HTTP 500" in measured.reasons[0].message


def test_requests_cut_off_by_the_grace_bias_latency_only() -> None:
    requests = [steady(90.0 * i) for i in range(90)]
    requests += [Request(sent_ms=9000.0 + i, outcome=Outcome.CANCELLED, finish=None) for i in range(10)]
    measured = judge(requests)
    assert found(measured, "unfinished") == {"latency": "invalid"}
    assert found(measured, "errors") == {}
    assert measured.metrics["unfinished_share"].value == pytest.approx(0.1)


# --- client -----------------------------------------------------------------------------------------------------------


def jittery(ttft_ms: float, gap_ms: float, jitter_ms: float, count: int = 40, n: int = 20) -> list[Request]:
    """Requests whose gaps and TTFT spread by up to `jitter_ms`."""
    requests = []
    for i in range(count):
        start, at = 200.0 * i, 200.0 * i + ttft_ms + jitter_ms * (i % 7) / 6
        chunks = []
        for j in range(n):
            chunks.append((at, 4))
            at += gap_ms + jitter_ms * ((i * 31 + j * 17) % 11) / 10
        requests.append(Request(sent_ms=start, chunks=chunks, usage=n, prompt=8, closed_ms=at))
    return requests


@pytest.mark.parametrize(("requests", "lag_ms", "bad"), [
    (jittery(200, 30, 15), 3.0, False),  # the engine holds all cores: 3 ms are little of what spreads by 15
    (jittery(200, 30, 0), 0.5, False),
    (jittery(50, 20, 0), 3.0, True),  # a metronome: 3 ms late is 6% of the TTFT
    (jittery(200, 20, 25), 25.0, True),  # all of the spread may be ours
    (jittery(50, 20, 60), 60.0, True),
])  # fmt: skip
def test_a_late_loop_is_held_against_what_it_may_have_moved(requests: list[Request], lag_ms: float, bad: bool) -> None:
    measured = judge(requests, health=structs.replace(HEALTHY, loop_lag_p99_ms=lag_ms))
    assert found(measured, "client_saturated") == ({"latency": "invalid"} if bad else {})


UNTOLD = ("send_lag_p50_ms", "send_lag_p99_ms", "loop_lag_p99_ms", "coalesced_read_share", "cpu_share", "in_flight_asked")


@pytest.mark.parametrize(("changes", "groups"), [
    ({"cpu_share": 0.95}, {"latency"}),
    ({"cpu_share": 0.85}, set()),
    ({"coalesced_read_share": 0.3, "loop_lag_p99_ms": 12.0}, {"latency"}),
    ({"coalesced_read_share": 0.3, "loop_lag_p99_ms": 0.1}, set()),  # the server sent them together
    ({"send_lag_p50_ms": 30.0}, {"latency", "throughput"}),
    ({"send_lag_p50_ms": 5.0}, set()),
    ({"in_flight_asked": 64, "in_flight_reached": 50}, {"latency", "throughput"}),
    ({"in_flight_asked": 64, "in_flight_reached": 62}, set()),
    ({"in_flight_asked": 4, "in_flight_reached": 3}, {"latency", "throughput"}),
    (dict.fromkeys(UNTOLD), set()),
])  # fmt: skip
def test_the_client_judges_itself(changes: dict[str, Any], groups: set[str]) -> None:
    measured = judge(health=structs.replace(HEALTHY, **changes))
    assert set(found(measured, "client_saturated")) == groups


def test_open_loop_sends_may_wait_only_for_a_cap_that_was_asked_for() -> None:
    late = structs.replace(HEALTHY, send_lag_p99_ms=80.0)
    requests = [steady(100.0 * i, scheduled_ms=100.0 * i) for i in range(100)]
    assert set(found(judge(requests, case=make_case(load=OPEN), health=late), "client_saturated")) == {"latency", "throughput"}
    capped = make_case(load=structs.replace(OPEN, max_concurrency=4))
    assert found(judge(requests, case=capped, health=late), "client_saturated") == {}


def test_a_count_bound_job_need_not_fill_its_slots() -> None:
    case = make_case(load=LoadSpec(kind="closed", batch_size=64, num_prompts=8))
    assert (
        found(judge(case=case, health=structs.replace(HEALTHY, in_flight_asked=64, in_flight_reached=8)), "client_saturated")
        == {}
    )


@pytest.mark.parametrize(
    ("profile", "lag_ms", "bad"),
    [
        (Profile.SMOKE, 24.0, False),
        (Profile.SMOKE, 26.0, True),
        (Profile.NIGHTLY, 1.9, False),
        (Profile.NIGHTLY, 2.1, True),
        (Profile.OFFICIAL, 2.1, True),
    ],
)
def test_server_saturated(profile: Profile, lag_ms: float, bad: bool) -> None:
    judged = judge(case=make_case(profile=profile), after={"mock_lag_p99_ms": lag_ms})
    assert bool(found(judged, "server_saturated")) is bad


# --- steadiness and lengths -------------------------------------------------------------------------------------------


def slowing() -> list[Request]:
    """One stream after another, each slower than the last."""
    requests, at = [], 0.0
    while at < 10_000:
        gap = 20.0 + at / 400
        requests.append(steady(at, gap_ms=gap, n=8))
        at += 50 + 7 * gap
    return requests


def test_a_slowing_engine_is_not_steady() -> None:
    assert found(judge(slowing()), "not_steady") == {"throughput": "invalid"}


def test_an_engine_that_warms_up_within_the_window_is_not_steady() -> None:
    """A curve, not a line: a test that allows for noise of several seconds would take it for such noise."""
    requests, at = [], 0.0
    while at < 60_000:
        gap = 20.0 / (1.0 - 0.3 * np.exp(-at / 12_000))
        requests.append(steady(at, gap_ms=gap, n=8))
        at += 50 + 7 * gap
    measured = judge(requests, case=make_case(profile=Profile.NIGHTLY), window=window_ms(0, 60_000))
    assert found(measured, "not_steady") == {"throughput": "invalid"}


@pytest.mark.parametrize(
    "load",
    [
        LoadSpec(kind="closed", batch_size=4, stages=(Stage(start=1, end=4, duration_s=10),)),
        LoadSpec(kind="open", request_rate=4.0, arrivals="constant", stages=(Stage(start=8, end=1, duration_s=10),)),
        LoadSpec(kind="open", arrivals="trace"),
        LoadSpec(kind="open", arrivals="burst", num_prompts=9),
    ],
)
def test_loads_that_move_are_not_asked_to_be_steady(load: LoadSpec) -> None:
    requests = [replace(request, scheduled_ms=request.sent_ms) for request in slowing()]
    assert found(judge(requests, case=make_case(load=load)), "not_steady") == {}


def test_whole_jobs_ramp_by_nature() -> None:
    assert found(judge(slowing(), window=window_ms(0, 10_000, kind="whole_job")), "not_steady") == {}


def arriving(times_ms: list[float], served_ms: list[float]) -> Measured:
    requests = [steady(at, scheduled_ms=due, n=2) for due, at in zip(times_ms, served_ms, strict=True)]
    return judge(requests, case=make_case(load=OPEN))


def test_random_arrivals_that_grow_by_themselves_are_steady_while_the_engine_keeps_up() -> None:
    due = [(i * 300.0) ** 0.5 * 10.0 * 1.8 for i in range(1000)]
    assert due[-1] > 9_800
    assert found(arriving(due, due), "not_steady") == {}


def test_an_engine_that_falls_behind_what_is_due_is_not_steady() -> None:
    due = [50.0 * i + (i * 37 % 11) for i in range(200)]
    assert found(arriving(due, due), "not_steady") == {}
    assert found(arriving(due, [1.6 * at for at in due]), "not_steady") == {"throughput": "invalid"}


@pytest.mark.parametrize(("exact", "severity"), [(True, "invalid"), (False, "warning")])
def test_length_mismatch(exact: bool, severity: str) -> None:
    requests = [steady(50.0 * i, n=8, output_requested=8 if i % 10 else 12) for i in range(100)]
    assert found(judge(requests, case=make_case(exact_lengths=exact)), "length_mismatch") == {"throughput": severity}


def test_a_stop_token_is_no_length_mismatch() -> None:
    requests = [steady(50.0 * i, n=8, usage=9, finish="stop", output_requested=8) for i in range(100)]
    assert found(judge(requests, case=make_case(exact_lengths=True)), "length_mismatch") == {}


@pytest.mark.parametrize(("prompt", "exact", "severity"), [
    (1000, True, None), (1001, True, None), (1020, True, "invalid"), (1060, False, None), (5128, False, "warning"),
])  # fmt: skip
def test_prompts_of_another_length(prompt: int, exact: bool, severity: str | None) -> None:
    requests = [steady(50.0 * i, prompt=prompt, input_requested=1000) for i in range(100)]
    measured = judge(requests, case=make_case(exact_lengths=exact, protocol="openai-completions"))
    assert set(found(measured, "input_length_mismatch").values()) == ({severity} if severity else set())


@pytest.mark.parametrize(("cached", "data", "severity"), [
    (0, DataSpec(), None), (4, DataSpec(), "warning"), (40, DataSpec(), "invalid"), (40, DataSpec(prefix_groups=2), None),
    (40, DataSpec(shares_prefixes=True), None), (40, DataSpec(salt=False), None),
])  # fmt: skip
def test_prefix_cache_hits(cached: int, data: DataSpec, severity: str | None) -> None:
    requests = [steady(50.0 * i, prompt=100, cached=cached) for i in range(100)]
    assert set(found(judge(requests, case=make_case(data=data)), "prefix_cache_hits").values()) == (
        {severity} if severity else set()
    )


def test_a_first_token_at_the_moment_of_sending_is_impossible() -> None:
    requests = [steady(100.0 * i, ttft_ms=0.0 if i == 7 else 50.0) for i in range(20)]
    assert found(judge(requests), "impossible") == {"latency": "invalid"}


# --- precision --------------------------------------------------------------------------------------------------------


def test_silent_precision_fallback_spoils_all() -> None:
    measured = judge(case=make_case(precision="fp8"), engine=make_engine(precision="bfloat16"))
    assert found(measured, "silent_precision_fallback") == {"all": "invalid"}
    assert measured.status == Status.INVALID


# --- devices ----------------------------------------------------------------------------------------------------------


def board_seen(**changes: Any) -> Telemetry:
    readings = poll(-2, 12, 0.1, power_w=lambda _: 300.0, **changes)
    return telemetry([make_device(power_limit_w=400.0)], readings)


def test_a_quiet_board_gives_no_reason() -> None:
    assert judge(seen=board_seen(throttle=("sw_power_cap",), temperature_c=60.0)).reasons == ()


@pytest.mark.parametrize(("profile", "severity"), [(Profile.SMOKE, "warning"), (Profile.NIGHTLY, "invalid")])
def test_heat_slows_a_board_down(profile: Profile, severity: str) -> None:
    measured = judge(seen=board_seen(throttle=("hw_thermal",)), case=make_case(profile=profile))
    assert found(measured, "throttled_thermal") == {"all": severity}


def test_a_board_that_still_warms_up_drifts() -> None:
    readings = [structs.replace(r, temperature_c=40.0 + r.before_ns / S * 2) for r in poll(-2, 12, 0.1, power_w=lambda _: 300.0)]
    assert found(judge(seen=telemetry([make_device()], readings)), "temperature_drift") == {"all": "warning"}


def test_an_energy_reason_nulls_the_joules_and_nothing_else() -> None:
    readings = [r for r in poll(-2, 12, 0.1, power_w=lambda _: 300.0) if not 2 * S < r.before_ns < 4 * S]
    measured = judge(seen=telemetry([make_device()], readings))
    assert found(measured, "power_coverage") == {"energy": "invalid"}
    assert measured.status == Status.VALID
    for name in ("energy_j", "energy_accelerator_j", "j_per_output_tok", "tok_per_j", "power_mean_w", "j_per_request"):
        assert measured.metrics[name].value is None
        assert (measured.metrics[name].reason or "").startswith(("power_coverage", "power was read", "gpu-0"))
    assert measured.metrics["output_tok_per_s"].value is not None


@pytest.mark.parametrize("kind", ["stages", "trace", "burst", "whole_job"])
def test_power_may_climb_where_the_load_moves_by_nature(kind: str) -> None:
    loads: dict[str, LoadSpec] = {
        "stages": LoadSpec(kind="closed", batch_size=4, stages=(Stage(start=1.0, end=4.0, duration_s=10.0),)),
        "trace": LoadSpec(kind="open", arrivals="trace", num_prompts=100, speed=1.0),
        "burst": LoadSpec(kind="open", arrivals="burst", num_prompts=100),
        "whole_job": LoadSpec(kind="closed", batch_size=4, num_prompts=100),
    }
    readings = poll(-2, 12, 0.1, power_w=lambda t: 300.0 + 20.0 * t)
    window = window_ms(0, 10_000, kind="whole_job" if kind == "whole_job" else "steady")
    measured = judge(seen=telemetry([make_device()], readings), case=make_case(load=loads[kind]), window=window)
    assert "energy" not in found(measured, "not_steady")


def test_power_that_climbs_is_not_steady() -> None:
    readings = poll(-2, 12, 0.1, power_w=lambda t: 300.0 + 10 * t)
    assert found(judge(seen=telemetry([make_device()], readings)), "not_steady") == {"energy": "invalid"}


@pytest.mark.parametrize(("idle_w", "load_w", "limit_w", "bad"), [
    (100.0, 300.0, 400.0, False), (100.0, 90.0, 400.0, True), (100.0, 98.0, 400.0, False), (100.0, 450.0, 400.0, True),
])  # fmt: skip
def test_mean_power_outside_idle_and_limit_is_impossible(idle_w: float, load_w: float, limit_w: float, bad: bool) -> None:
    seen = telemetry(
        [make_device(power_limit_w=limit_w)],
        poll(-2, 12, 0.1, power_w=lambda _: load_w),
        idle=Window(t0_ns=-30 * S, t1_ns=-20 * S),
        idle_readings=poll(-31, -19, 0.1, power_w=lambda _: idle_w),
    )
    assert found(judge(seen=seen), "impossible") == ({"energy": "invalid"} if bad else {})


def test_a_stuck_counter_is_a_warning_when_the_integral_stands_in() -> None:
    readings = poll(-2, 12, 0.1, power_w=lambda _: 400.0, energy_j=lambda _: 5000.0)
    measured = judge(seen=telemetry([make_device(energy=ENERGY)], readings))
    assert found(measured, "counter_stuck") == {"energy": "warning"}
    assert measured.metrics["energy_j"].value == pytest.approx(4000)
    assert measured.metrics["energy_j"].source == "integral"


def test_a_counter_that_was_reset_leaves_no_joule() -> None:
    readings = poll(-2, 12, 0.1, power_w=lambda _: 400.0, energy_j=lambda t: 5000 + 400 * (t if t < 5 else t - 8))
    measured = judge(seen=telemetry([make_device(energy=ENERGY)], readings))
    assert found(measured, "counter_reset") == {"energy": "invalid"}
    assert measured.metrics["energy_j"].value is None


def test_a_short_gap_widens_the_interval_of_the_joules_and_warns() -> None:
    whole = poll(-2, 62, 0.1, power_w=lambda _: 300.0)
    missed = [r for r in whole if not 20 * S < r.before_ns < 20.4 * S]
    load = make_load(make_log(closed_loop(seconds=60)), window_ms(0, 60_000))
    seen, complete = (
        measure(make_case(), load, telemetry([make_device(power_limit_w=700.0)], readings), {}, {})
        for readings in (missed, whole)
    )
    assert found(seen, "power_gap") == {"energy": "warning"}
    assert found(complete, "power_gap") == {}
    wide, narrow = (one.metrics["j_per_output_tok_same_board"] for one in (seen, complete))
    assert wide.value == pytest.approx(narrow.value)
    assert wide.terms["unseen"][1] == pytest.approx(0.4 * 400 / 18_000 * (wide.value or 0), rel=0.01)
    assert (wide.high or 0) > (narrow.high or 0)


@pytest.mark.parametrize(("probe", "at_s", "expected"), [
    ("fake", 5, {"energy": "invalid", "memory": "warning"}),
    ("other", 5, {"energy": "warning", "memory": "warning"}),
    ("fake", 11, {}),
])  # fmt: skip
def test_a_probe_that_stopped(probe: str, at_s: int, expected: dict[str, str]) -> None:
    seen = structs.replace(board_seen(), ends=(StreamEnd(probe=probe, at_ns=at_s * S, reason="hung"),))
    assert found(judge(seen=seen), "stream_ended") == expected


def test_a_part_time_sensor_warns() -> None:
    device = make_device(power=structs.replace(POWER, averaging_window_s=0.025))
    seen = telemetry([device], poll(-2, 12, 0.1, power_w=lambda _: 300.0))
    assert found(judge(seen=seen), "part_time_sensor") == {"energy": "warning"}


def test_prompts_sent_twice_are_a_warning() -> None:
    load = structs.replace(make_load(make_log(closed_loop()), WINDOW), prompts_recycled=True)
    measured = measure(make_case(), load, Telemetry(), {}, {})
    assert found(measured, "prompts_recycled") == {"throughput": "warning", "latency": "warning"}
    assert measured.status == Status.VALID
