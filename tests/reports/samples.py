"""Records for the tables of these tests: each thing that a row can be."""

from __future__ import annotations

from typing import Any

from bench.records import LoadSpec, Reason, Status, TrialRecord
from tests.factories import make_case, make_device, make_metric, make_metrics, make_record

ERRORS = Reason(code="errors", group="throughput", severity="invalid", message="12 of 100 requests failed")
THERMAL = Reason(code="throttled_thermal", group="all", severity="warning", message="hw_thermal was active")
SATURATED = (
    Reason(code="client_saturated", group="throughput", severity="invalid", message="the client was late"),
    Reason(code="client_saturated", group="latency", severity="invalid", message="the client was late"),
)


def three_repeats() -> list[TrialRecord]:
    return [make_record(repeat=i, metrics=make_metrics(output_tok_per_s=400.0 + 3 * i, ttft_ms=50.0 + i)) for i in range(3)]


def dead_repeats(count: int = 1) -> list[TrialRecord]:
    """A model whose engine never came up; the reasons that follow from that are on it too."""
    over: dict[str, Any] = {"metrics": {}, "config_id": None, "engine": None, "devices": (), "reasons": SATURATED}
    case, error = make_case(name="dead", model="gone"), "the engine died: signal 9\nlog"
    return [make_record(case=case, repeat=i, status=Status.FAILED, error=error, **over) for i in range(count)]


def a_bit_of_everything() -> list[TrialRecord]:
    """Repeats, open loop with a warning, an invalid trial, a dead engine."""
    open_loop = make_case(model="big", engine="llamacpp", load=LoadSpec(kind="open", request_rate=5.0, arrivals="poisson"))
    failing = make_case(name="failing", load=LoadSpec(kind="closed", batch_size=64))
    boards = tuple(make_device(uid=f"GPU-{i}", name="Example 80GB", index=i) for i in range(2))
    return [
        *three_repeats(),
        make_record(case=open_loop, devices=boards, metrics=make_metrics(ttft_scheduled_ms=80.0), reasons=(THERMAL,)),
        make_record(case=failing, status=Status.INVALID, reasons=(ERRORS,)),
        *dead_repeats(),
    ]


def a_first_evening() -> list[TrialRecord]:
    """What someone has who tries things: a matrix over an engine argument with too few and too unlike repeats and no power
    sensor, a repeat that was disturbed, an engine that isn't there.
    """
    few = make_metric("ttft_ms", 50.0, p99=None, n=26)
    records = dead_repeats(3)
    for threads in (2, 4):
        case = make_case(model="matrix/with-a-long-name", engine="llamacpp", engine_args={"threads": threads, "flash": True})
        for repeat, speed in enumerate((1.0, 4000.0)):
            metrics = make_metrics(output_tok_per_s=speed, ttft_ms=few, j_per_output_tok=None)
            records.append(make_record(case=case, repeat=repeat, metrics=metrics))
    for repeat in range(3):
        disturbed = repeat == 1
        status, reasons = (Status.INVALID, SATURATED) if disturbed else (Status.VALID, ())
        records.append(make_record(case=make_case(model="busy"), repeat=repeat, status=status, reasons=reasons))
    return records
