"""What the charts say: places on axes, fronts, a power whose peaks and gaps stay, nights, memory."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from bench.records import Reading, SensorInfo, Telemetry, TrialRecord
from bench.reports.html import Report, Trace, report_html
from bench.reports.html.scale import scale_for, span
from bench.timing.power_trace import power_trace
from bench.timing.readings import device_series
from tests.factories import NS, make_case, make_device, make_metrics, make_record
from tests.reports.html.parsed import Element, parsed
from tests.reports.html.samples import sample_compared, sample_histories, sample_records, sample_report, sample_trace

POSITIVE = st.floats(min_value=1e-6, max_value=1e12)


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.sampled_from([None, True, False]), st.booleans())
def test_an_axis_holds_its_values_in_order(values: list[float], log: bool | None, from_zero: bool) -> None:
    axis = scale_for(values, log=log, from_zero=from_zero)
    shares = [axis.share(value) for value in sorted(values)]
    assert shares == sorted(shares)
    assert all(axis.low <= value <= axis.high for value in values)
    assert len(axis.ticks) <= 24
    slack = 1e-9 * axis.high
    assert all(axis.low - slack <= tick <= axis.high + slack for tick in axis.ticks)
    assert axis.low >= 0.0


@pytest.mark.parametrize(("values", "log"), [((1.0, 7.0), False), ((1.0, 90.0), True), ((0.0, 90.0), False)])
def test_far_apart_values_get_a_logarithmic_axis(values: tuple[float, ...], log: bool) -> None:
    axis = scale_for(values)
    assert axis.log is log
    assert (axis.low == 0.0) is not log


def test_a_span_ends_where_it_is_told_to() -> None:
    axis = span(-58.0, 70.0, ticks=8)
    assert (axis.low, axis.high) == (-58.0, 70.0)
    assert 0.0 in axis.ticks


def section(report: Report, name: str) -> Element:
    (found,) = parsed(report_html(report)).all("section", id=name)
    return found


def sweep(points: dict[int, tuple[float, float]], **over: Any) -> list[TrialRecord]:
    """Rows by batch: (time per token, tokens a second)."""
    return [
        make_record(
            case=make_case(name=f"b{batch}", load=changed(make_case().load, batch_size=batch), **over),
            metrics=make_metrics(tpot_ms=tpot, output_tok_per_s=tok_s),
        )
        for batch, (tpot, tok_s) in points.items()
    ]


def test_a_front_is_drawn_in_steps_and_what_lies_behind_it_is_hollow() -> None:
    records = sweep({1: (10.0, 100.0), 2: (20.0, 90.0), 4: (30.0, 300.0)})
    drawn = section(Report(chosen="latest", made_ns=0, records=records), "throughput")
    (path,) = [one.attributes["d"] for one in drawn.all("path") if one.attributes["class"].startswith("f ")]
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+", path)
    hollow = [group.all("title")[0].text for group in drawn.all("g") if " w" in group.attributes.get("class", "")]
    assert len(hollow) == 1
    assert "batch 2" in hollow[0]


def test_workloads_and_scopes_are_not_mixed_in_a_chart() -> None:
    records = [*sweep({1: (10.0, 100.0)}), *sweep({2: (10.0, 100.0)}, model="other")]
    records += [changed(record, energy_scope="cpu_package") for record in sweep({4: (11.0, 120.0)}, engine="vllm")]
    report = Report(chosen="latest", made_ns=0, records=records)
    titles = [one.text for one in section(report, "throughput").all("figcaption")]
    assert titles == ["other, 64/32", "tiny, 64/32"]
    titles = [one.text for one in section(report, "energy").all("figcaption")]
    assert sorted(titles) == ["other, 64/32, accelerator", "tiny, 64/32, accelerator", "tiny, 64/32, cpu_package"]


def trace_of(watts: list[tuple[float, float | None]], *, counter: bool = False) -> Trace:
    """Readings (second, watts) of a board around a window from second 0 to 10; with `counter` only its joules."""
    sensor = SensorInfo(api="fake", unit="x")
    device = changed(make_device(), power=None if counter else sensor, energy=sensor if counter else None)
    record = make_record(devices=(device,))
    assert record.window is not None
    zero, joules, readings = record.window.t0_ns, 0.0, []
    for at, watt in watts:
        joules += (watt or 0.0) * 0.1
        told: dict[str, Any] = {"energy_j": joules} if counter else {"power_w": watt}
        stamp = zero + round(at * NS)
        readings.append(Reading(uid=device.uid, before_ns=stamp, after_ns=stamp, **told))
    return Trace(record=record, telemetry=Telemetry(devices=(device,), readings=tuple(readings)))


def test_a_peak_of_one_reading_in_ten_thousand_is_drawn() -> None:
    trace = trace_of([(at / 1000.0, 400.0 if at == 5000 else 100.0) for at in range(10_000)])
    drawn = section(sample_report(trace=trace), "power")
    (path,) = [one.attributes["d"] for one in drawn.all("path")]
    heights = [float(height) for height in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
    assert len(heights) <= 1000
    assert min(heights) < 0.4 * max(heights)


def test_no_line_is_drawn_where_nothing_was_read() -> None:
    trace = trace_of([(at / 10.0, 100.0) for at in range(100) if not 40 <= at < 60])
    (path,) = [one.attributes["d"] for one in section(sample_report(trace=trace), "power").all("path")]
    assert path.count("M") == 2


def test_a_counter_of_joules_is_drawn_as_watts() -> None:
    trace = trace_of([(at / 10.0, 250.0) for at in range(100)], counter=True)
    ((_, t_s, watts),) = trace.watts
    assert watts == pytest.approx(np.full(len(watts), 250.0))
    assert 0.0 < t_s[0] < t_s[-1] < 10.0


def test_a_simulated_device_is_called_so() -> None:
    trace = trace_of([(1.0, 100.0), (2.0, 110.0)])
    devices = tuple(changed(device, quality="simulated") for device in trace.telemetry.devices)
    trace = replace(trace, telemetry=changed(trace.telemetry, devices=devices))
    assert "Example Accelerator 0 (simulated)" in section(sample_report(trace=trace), "power").text


def test_what_was_not_read_is_no_power() -> None:
    series = device_series(trace_of([(1.0, None), (2.0, None)]).telemetry)
    assert [len(part) for part in power_trace(series["GPU-0001"])] == [0, 0]
    assert trace_of([(1.0, None), (2.0, 100.0)]).watts == []


def test_the_phases_of_a_trial_are_named_with_their_lengths() -> None:
    trace = sample_trace(sample_records(1)[0])
    told = section(sample_report(trace=trace), "power").text
    assert "idle 10.00 s; model loaded 10.00 s; warm-up 14.00 s; window 60.00 s; drain 10.00 s" in told


def test_a_history_shows_findings_builds_and_accepted_changes() -> None:
    drawn = section(sample_report(), "history")
    points = drawn.all("table", class_="changes")[0].all("tbody")[0].all("tr")
    assert [row.children[1].text for row in points] == ["regression", "accepted change"]
    assert "5 pairs" in points[0].text
    assert [line.attributes["class"] for line in drawn.all("line") if "class" in line.attributes].count("accepted") == 1
    assert "vllm 0.32.0" in drawn.text


def test_one_night_is_no_history() -> None:
    one_night = [replace(one, nights=one.nights[:1], builds=one.builds[:1], judged=one.judged[:1]) for one in sample_histories()]
    drawn = section(sample_report(histories=one_night), "history")
    assert drawn.all("svg") == []
    assert "a history begins with the second" in drawn.text


def test_a_comparison_shows_each_ratio_with_its_verdict() -> None:
    drawn = section(sample_report(), "compared")
    rows = {row.children[0].text: row for row in drawn.all("tbody")[0].all("tr")}
    metrics = {one.metric: one for compared in sample_compared() for one in compared.metrics}
    ratio = metrics["output_tok_per_s"].ratio
    assert ratio is not None
    cells = [cell.text for cell in rows["output_tok_per_stok/s"].children]
    assert cells[4].startswith(f"{ratio.value:.4f}")
    assert "worse" in cells[-1]
    assert "no difference shown" in rows["ttft_p50_msms"].text
    assert "only in the base: no candidate is left for it" in drawn.text


def test_memory_is_drawn_up_to_what_the_boards_have() -> None:
    drawn = section(sample_report(), "memory")
    row = drawn.all("tbody")[0].all("tr")[0]
    assert [cell.text for cell in row.children[2:]] == ["0.6000", "10.10", "10.24", "141.0"]
    widths = [float(rect.attributes["width"][:-1]) for rect in row.all("rect")]
    assert widths == sorted(widths, reverse=True)
    assert math.isclose(widths[0] / widths[1], 10.24 / 10.10, rel_tol=0.01)
