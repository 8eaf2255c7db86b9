"""A check of an engine's answers as metrics and as a verdict."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.records import OutputCheck, Parting, Profile, Status
from bench.timing.output_check import output_metrics, wrong_output
from bench.timing.trial import measure
from bench.timing.validity import WRONG_PPL_SHARE, threshold
from tests.timing.builders import closed_loop, make_case, make_load, make_log, telemetry, window_ms

PARTING = Parting(step=3, after="one, two,", expected=" three", found=" fox", gap_nats=4.0)
GOOD = OutputCheck(reference="torch 2.13, fp32", steps=100, agreed=100, text_tokens=20, ppl=80.0, reference_ppl=80.0)
LEAST = threshold("wrong_output", Profile.SMOKE)


def test_both_metrics_say_against_what() -> None:
    agreement, delta = output_metrics(replace(GOOD, agreed=95, ppl=84.0))
    assert (agreement.value, agreement.n, agreement.source) == (0.95, 100, "torch 2.13, fp32")
    assert delta.value == pytest.approx(0.05)
    assert (delta.n, delta.source) == (20, "torch 2.13, fp32")


@pytest.mark.parametrize(
    ("check", "of_tokens", "of_text"),
    [
        (None, "its answers were not compared", "its answers were not compared"),
        (OutputCheck(reason="no reference"), "no reference", "no reference"),
        (replace(GOOD, steps=0, agreed=0, reason="a tie"), "a tie", None),
        (replace(GOOD, ppl=None, ppl_reason="it refuses"), None, "it refuses"),
    ],
)
def test_what_is_missing_has_its_reason(check: OutputCheck | None, of_tokens: str | None, of_text: str | None) -> None:
    for metric, reason in zip(output_metrics(check), (of_tokens, of_text), strict=True):
        assert metric.reason == reason
        assert (metric.value is None) is (reason is not None)
    assert not wrong_output(check, Profile.OFFICIAL)


@pytest.mark.parametrize(
    ("agreed", "ppl", "is_wrong"),
    [
        (100, 80.0, False),
        (round(100 * LEAST), 80.0, False),
        (round(100 * LEAST) - 1, 80.0, True),
        (0, 80.0, True),
        (100, 80.0 * (1 + WRONG_PPL_SHARE) * 0.999, False),
        (100, 80.0 * (1 + WRONG_PPL_SHARE) * 1.001, True),
        (100, 80.0 * (1 - WRONG_PPL_SHARE) * 0.999, True),
    ],
)
def test_wrong_is_what_lies_beyond_the_thresholds(agreed: int, ppl: float, is_wrong: bool) -> None:
    found = wrong_output(replace(GOOD, agreed=agreed, partings=(PARTING,), ppl=ppl), Profile.SMOKE)
    assert [(reason.code, reason.group, reason.severity) for reason in found] == [("wrong_output", "all", "invalid")] * is_wrong


def test_the_reason_quotes_the_first_wrong_token() -> None:
    (reason,) = wrong_output(replace(GOOD, agreed=20, partings=(PARTING,)), Profile.SMOKE)
    assert reason.message == (
        "80 of 100 sure tokens are not those of torch 2.13, fp32: after 'one, two,' it says ' fox', and not ' three'"
    )


@pytest.mark.parametrize("has_window", [True, False])
def test_a_fast_engine_with_wrong_answers_is_invalid(has_window: bool) -> None:
    load = make_load(make_log(closed_loop()), window_ms(0, 10_000) if has_window else None)
    wrong = replace(GOOD, agreed=0, partings=(PARTING,))
    found = {check.agreed: measure(make_case(), load, telemetry([], []), {}, {}, output_check=check) for check in (GOOD, wrong)}
    assert "wrong_output" not in {reason.code for reason in found[100].reasons}
    assert "wrong_output" in {reason.code for reason in found[0].reasons}
    assert found[0].status is Status.INVALID
    assert found[0].metrics["top1_agreement"].value == 0.0
