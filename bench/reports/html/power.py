"""The power of one trial along time, with its phases and its window. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.records import DeviceInfo, FloatArray, Telemetry, TrialRecord
from bench.reports.html.markup import Html, tag
from bench.reports.html.plot import COLOURS, Axes, Style, figure, key, percent, plane, plot
from bench.reports.html.scale import scale_for, span
from bench.reports.html.words import Words
from bench.reports.text import number_text
from bench.timing.power_trace import power_trace
from bench.timing.readings import device_series
from bench.timing.scopes import accountable
from bench.units import NS_PER_S

_BINS = 400
"""Stretches of the picture, each of which keeps its lowest and its highest reading."""
_GAP_PERIODS = 3.0
"""No line is drawn across a gap of more polls than this."""
_LABELLED = 0.07
"""Phases that are narrower than this share of the picture are named only under it."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trial and its readings. It has no slots so that its watts are worked out once."""

    record: TrialRecord
    telemetry: Telemetry

    @cached_property
    def watts(self) -> list[tuple[DeviceInfo, FloatArray, FloatArray]]:
        """Each board (or package) whose joules count, with its power along time [s from the window's start]; none without a
        window or without two readings.
        """
        window = self.record.window
        devices = accountable(d for d in self.telemetry.devices if d.scope == self.record.energy_scope)
        if window is None:
            return []
        series = device_series(self.telemetry)
        found = [(device, *power_trace(series[device.uid])) for device in devices]
        return [(device, t_s - window.t0_ns / NS_PER_S, w) for device, t_s, w in found if len(t_s) > 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    name: str
    begin_s: float
    end_s: float
    class_: str = "p"


def power_chart(trace: Trace, name: str, words: Words) -> Html:
    """Watts of each device over one trial."""
    watts = trace.watts
    phases = _phases(trace.record, words)
    ends = [end for phase in phases for end in (phase.begin_s, phase.end_s)]
    axes = Axes(x=span(min(ends), max(ends), ticks=8), y=scale_for((float(w.max()) for _, _, w in watts), log=False))
    gap_s = _GAP_PERIODS * trace.telemetry.period_s
    marks = [_band(axes, phase) for phase in phases]
    marks.append(plane(*(_line(axes, t_s, w, at % COLOURS, gap_s) for at, (_, t_s, w) in enumerate(watts))))
    marks += _levels(axes, trace.record, len(watts), words)
    entries = [(Style(colour=at % COLOURS, shape=1), _named(device, words)) for at, (device, _, _) in enumerate(watts)]
    says = words("power of {} devices over {} s", len(watts), number_text(max(ends) - min(ends)))
    shown = plot(axes, marks, x_title=words("seconds from the start of the window"), y_title=words("Power [W]"), says=says)
    told = "; ".join(f"{phase.name} {number_text(phase.end_s - phase.begin_s)} s" for phase in phases)
    id_ = trace.record.key.trial_id
    return figure(name, shown, key(entries), note=words("Trial {}. Phases: {}.", id_, told), class_="chart wide")


def _named(device: DeviceInfo, words: Words) -> str:
    """A device; what was not measured is never shown as if it were."""
    return f"{device.name} {device.index}" + ("" if device.quality == "measured" else f" ({words.said(device.quality)})")


def _phases(record: TrialRecord, words: Words) -> list[_Phase]:
    """The stretches of a trial in order of time; some overlap nothing, and some were not taken."""
    window = record.window
    assert window is not None
    zero = window.t0_ns

    def phase(name: str, begin_ns: int, end_ns: int, class_: str = "p") -> _Phase:
        return _Phase(name=name, begin_s=(begin_ns - zero) / NS_PER_S, end_s=(end_ns - zero) / NS_PER_S, class_=class_)

    found = []
    if record.idle:
        found.append(phase(words("idle"), record.idle.t0_ns, record.idle.t1_ns))
    if record.resident:
        found.append(phase(words("model loaded"), record.resident.t0_ns, record.resident.t1_ns))
    warm_ns = max([record.started.monotonic_ns, *(one.t1_ns for one in (record.idle, record.resident) if one)])
    if warm_ns < zero:
        found.append(phase(words("warm-up"), warm_ns, zero))
    found.append(phase(words("window"), zero, window.t1_ns, "win"))
    if record.ended.monotonic_ns > window.t1_ns:
        found.append(phase(words("drain"), window.t1_ns, record.ended.monotonic_ns))
    return found


def _band(axes: Axes, phase: _Phase) -> Html:
    left, right = axes.x.share(phase.begin_s), axes.x.share(phase.end_s)
    named = right - left > _LABELLED
    label = tag("text", phase.name, x=percent((left + right) / 2), y="-6", text_anchor="middle") if named else None
    rect = tag("rect", x=percent(left), width=percent(right - left), y="0", height="100%", class_=phase.class_)
    return tag("g", tag("title", phase.name), rect, label)


def _levels(axes: Axes, record: TrialRecord, devices: int, words: Words) -> list[Html]:
    """The mean over the window, where one device alone draws it: a sum has no place among its parts."""
    metric = record.metrics.get("power_mean_w")
    if record.window is None or metric is None or metric.value is None or devices != 1:
        return []
    end_s = record.window.seconds
    told = words("mean {} W", number_text(metric.value))
    mean = axes.segment(0.0, metric.value, end_s, metric.value, "mean")
    return [mean, axes.label(end_s, metric.value, told, class_="d", dx=-6, dy=17, end=True)]


def _line(axes: Axes, t_s: FloatArray, power_w: FloatArray, colour: int, gap_s: float) -> Html | None:
    """A line that breaks where nothing was read."""
    kept, steps = _thinned(t_s, axes.x.low, axes.x.high, power_w), np.diff(t_s)
    gaps = np.concatenate(([0], np.cumsum(steps > max(gap_s, _GAP_PERIODS * float(np.median(steps))))))
    path, before = [], -1
    for at in kept:
        path.append(axes.to("M" if before < 0 or gaps[at] != gaps[before] else "L", float(t_s[at]), float(power_w[at])))
        before = at
    return axes.path(path, f"f s{colour}")


def _thinned(t_s: FloatArray, low_s: float, high_s: float, power_w: FloatArray) -> Sequence[int]:
    """Places of the readings to draw: of each stretch the lowest and the highest, so that no peak is lost."""
    inside = np.flatnonzero((t_s >= low_s) & (t_s <= high_s))
    if len(inside) <= 2 * _BINS:
        return list(map(int, inside))
    bins = ((t_s[inside] - low_s) / (high_s - low_s) * _BINS).astype(np.int64)
    kept: set[int] = set()
    for part in np.split(inside, np.flatnonzero(np.diff(bins)) + 1):
        kept |= {int(part[np.argmin(power_w[part])]), int(part[np.argmax(power_w[part])])}
    return sorted(kept)
