"""Token counts that can't be are refused and called so; what just can be is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.records import ChunkKind, Measured, Outcome, Sampling, Slo, Status, Telemetry
from bench.timing import measure
from tests.timing.builders import Request, make_case, make_device, make_load, make_log, poll, steady, telemetry, window_ms

COUNTED = ("output_tok_per_s", "total_tok_per_s", "j_per_output_tok", "tok_per_j", "j_per_total_tok", "output_tokens")
BOARD = telemetry([make_device()], poll(-2, 12, 0.1, power_w=lambda _: 300.0))
ENDS_ITSELF = Sampling(ignore_eos=False)


def judged(requests: list[Request], seen: Telemetry = BOARD, **case: Any) -> Measured:
    return measure(make_case(**case), make_load(make_log(requests), window_ms(0, 10_000)), seen, {}, {})


def impossible(measured: Measured) -> list[tuple[str, str]]:
    return [(r.group, r.severity) for r in measured.reasons if r.code == "impossible"]


def many(count: int = 100, **changes: Any) -> list[Request]:
    """Requests alike but for their time; `chunks` in ms from each one's sending."""
    chunks = changes.pop("chunks", None)
    requests = [steady(90.0 * i, **changes) for i in range(count)]
    if chunks is None:
        return requests
    return [replace(r, chunks=[((r.sent_ms or 0.0) + c[0], *c[1:]) for c in chunks]) for r in requests]


@pytest.mark.parametrize("usage", [8 * 4 + 17, 1_000_000, 2**62, 2**63 - 1])
@pytest.mark.parametrize("sampling", [Sampling(), ENDS_ITSELF])
def test_more_tokens_than_bytes_are_impossible_and_make_no_number(usage: int, sampling: Sampling) -> None:
    slos = (Slo(metric="tpot", limit_ms=50),)
    measured = judged(many(usage=usage, output_requested=8), sampling=sampling, slos=slos)
    assert impossible(measured) == [("throughput", "invalid")]
    assert measured.status == Status.INVALID
    for name in (*COUNTED, "tpot_ms", "itl_ms", "tok_per_s_per_user", "goodput_rps"):
        metric = measured.metrics[name]
        assert (metric.value, metric.p50) == (None, None), name
        assert metric.reason, name
    for name in (*COUNTED, "tpot_ms"):
        assert (measured.metrics[name].reason or "").startswith("impossible: 100 of 100 replies"), name
    assert measured.metrics["energy_j"].value == pytest.approx(3000)
    assert measured.metrics["j_per_request"].value is not None
    assert measured.metrics["requests_per_s"].value is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"usage": 8 * 4 + 16},  # a byte each, and stop tokens
        {"usage": 500, "reasoning": 480},  # kept out of sight, and said so
        {"chunks": [(50.0, 3, ChunkKind.TOOL), (70.0, 0, ChunkKind.TOOL)], "usage": 120},
        {"chunks": [], "usage": 4000},  # not streamed: its text isn't known
        {"usage": None},
    ],
)
def test_what_can_be_is_not_called_impossible(changes: dict[str, Any]) -> None:
    assert impossible(judged(many(**changes))) == []


def test_special_tokens_after_an_end_that_was_to_be_ignored_are_doubtful_up_to_the_length_asked_for() -> None:
    doubtful = judged(many(usage=128, output_requested=128))
    assert impossible(doubtful) == [("throughput", "warning")]
    assert doubtful.metrics["output_tok_per_s"].value is not None
    assert impossible(judged(many(usage=129, output_requested=128))) == [("throughput", "invalid")]
    assert impossible(judged(many(usage=128, output_requested=128), sampling=ENDS_ITSELF)) == [("throughput", "invalid")]


def test_a_few_impossible_counts_are_left_out_with_a_warning() -> None:
    requests = many(200)
    honest = judged(requests)
    requests[7] = replace(requests[7], usage=2**62)
    measured = judged(requests)
    assert impossible(measured) == [("throughput", "warning")]
    assert measured.status == Status.VALID
    assert measured.metrics["output_tok_per_s"].value == pytest.approx(honest.metrics["output_tok_per_s"].value)
    assert measured.metrics["output_tokens"].n == honest.metrics["output_tokens"].n - 1


def test_impossible_counts_told_chunk_by_chunk_are_refused_too() -> None:
    chunks = [(50.0 + 20 * i, 4, ChunkKind.CONTENT, 2**61) for i in range(6)]
    measured = judged(many(chunks=chunks, usage=None))
    assert impossible(measured) == [("throughput", "invalid")]
    assert measured.metrics["output_tok_per_s"].value is None


@pytest.mark.parametrize("prompt", [-2, -5, -(2**62)])
def test_prompt_counts_below_zero_are_missing_and_said_so(prompt: int) -> None:
    found = judged(many(prompt=prompt)).metrics
    for name in ("input_tok_per_s", "input_tokens", "j_per_total_tok"):
        assert found[name].value is None, name
        assert "prompt tokens below zero for 100 of 100 requests" in (found[name].reason or ""), name
    assert found["output_tok_per_s"].value is not None
    assert found["total_tok_per_s"].value is None


@pytest.mark.parametrize("field", ["usage", "cached", "reasoning"])
def test_any_other_count_below_zero_is_missing(field: str) -> None:
    found = judged(many(**{field: -5})).metrics
    values = [v for m in found.values() for v in (m.value, m.low, m.p50, m.mean) if v is not None]
    assert all(v >= 0 for v in values)
    if field == "usage":
        assert "output tokens below zero" in (found["output_tok_per_s"].reason or "")


@pytest.mark.parametrize(("prompt", "bad"), [(8, False), (64 * 8 + 65_536, False), (64 * 8 + 65_537, True), (2**62, True)])
def test_more_prompt_tokens_than_can_have_been_sent_are_impossible(prompt: int, bad: bool) -> None:
    measured = judged(many(prompt=prompt, input_requested=8))
    assert impossible(measured) == ([("throughput", "invalid")] if bad else [])
    assert (measured.metrics["input_tok_per_s"].value is None) is bad
    assert measured.metrics["output_tok_per_s"].value is not None


def test_where_no_request_finished_no_counts_are_not_the_servers_fault() -> None:
    cut = [Request(sent_ms=90.0 * i, chunks=[(90.0 * i + 50, 4)], outcome=Outcome.TIMEOUT, finish=None) for i in range(20)]
    found = judged(cut).metrics
    for name in ("output_tok_per_s", "input_tok_per_s", "j_per_output_tok"):
        assert found[name].reason == "no request of the window finished", name


# --- replies that came in one read ------------------------------------------------------------------------------------


def at_once(sent_ms: float) -> Request:
    return Request(sent_ms=sent_ms, chunks=[(sent_ms + 50, 4)] * 6, usage=6, prompt=8, closed_ms=sent_ms + 51)


def test_a_reply_that_came_in_one_read_has_no_tpot() -> None:
    measured = judged([at_once(90.0 * i) for i in range(50)], slos=(Slo(metric="tpot", limit_ms=50),))
    for name in ("tpot_ms", "tok_per_s_per_user"):
        assert (measured.metrics[name].p50, measured.metrics[name].n) == (None, 0)
        assert "came in one read" in (measured.metrics[name].reason or "")
    assert "50 undefined criteria skipped" in (measured.metrics["goodput_rps"].source or "")
    assert measured.metrics["output_tok_per_s"].value == pytest.approx(30)


def test_replies_in_one_read_beside_streamed_ones_are_left_out_and_counted() -> None:
    found = judged([*(at_once(90.0 * i) for i in range(10)), *(steady(1000 + 90.0 * i, gap_ms=20) for i in range(10))]).metrics
    assert found["tpot_ms"].p50 == pytest.approx(20)
    assert found["tpot_ms"].n == 10
    assert found["tpot_ms"].source == "usage; 10 of 20 requests left out: each came in one read"
