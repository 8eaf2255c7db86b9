"""Memory and utilisation of the case's devices over the window. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np

from bench.records import BOARD_SCOPES, DeviceInfo, FloatArray, Metric, Scope, Window
from bench.timing.readings import DeviceSeries
from bench.timing.spec import scalar, undefined
from bench.units import format_bytes


def occupancy_metrics(
    series: Iterable[DeviceSeries], window: Window, scope: Scope | None, *, idle: Window | None, resident: Window | None
) -> dict[str, Metric]:
    """`memory_before_b`, `memory_loaded_b`, `memory_used_peak_b` and `memory_reserved_util` of the boards (of the engine's
    processes where the headline scope isn't boards), `cpu_util_mean` of the processes and `accelerator_util_mean` of the boards.
    """
    listed = sorted(series, key=lambda one: one.device.uid)
    accelerators = {one.device.board or one.device.uid for one in listed if one.device.scope == "accelerator"}
    boards = [one for one in listed if one.device.scope in BOARD_SCOPES and not _around(one.device, accelerators)]
    processes = [one for one in listed if one.device.scope == "process"]
    holders = boards if scope in BOARD_SCOPES else processes
    found = (
        _memory_before_b(boards if scope in BOARD_SCOPES else None, idle),
        _memory_loaded_b(holders, resident),
        memory_used_peak_b(holders, window),
        memory_reserved_util(holders, window),
        _mean_util("cpu_util_mean", processes, window),
        _mean_util("accelerator_util_mean", boards, window),
    )
    return {metric.name: metric for metric in found}


def _around(device: DeviceInfo, accelerators: Container[str]) -> bool:
    """Whether this is the module around an accelerator that is listed too, which tells the memory and the use of both."""
    return device.scope == "module" and (device.board or device.uid) in accelerators


def memory_used_peak_b(holders: list[DeviceSeries], window: Window) -> Metric:
    """Memory in use [B]: each holder's highest in the window, summed. Holders peak at different moments, so the sum is the
    memory that must be there for each to reach its own peak. Of several holders, `source` tells each one's.
    """
    return _memory("memory_used_peak_b", holders, window)


def _memory_before_b(boards: list[DeviceSeries] | None, idle: Window | None) -> Metric:
    """As `memory_used_peak_b`, in the idle window. What else uses the boards is in there, and in what comes later."""
    if boards is None:
        return undefined("memory_before_b", "no board: the engine's processes were not there yet")
    return undefined("memory_before_b", "no idle window was taken") if idle is None else _memory("memory_before_b", boards, idle)


def _memory_loaded_b(holders: list[DeviceSeries], resident: Window | None) -> Metric:
    """As `memory_used_peak_b`, in the resident window."""
    name = "memory_loaded_b"
    return undefined(name, "no resident window was taken") if resident is None else _memory(name, holders, resident)


def _memory(name: str, holders: list[DeviceSeries], window: Window) -> Metric:
    peaks = [_peak(one.memory_b[one.inside(window)]) for one in holders]
    missing = [one.device for one, peak in zip(holders, peaks, strict=True) if peak is None]
    if missing or not peaks:
        return undefined(
            name, _why(missing[0].reasons.get("memory_used_b"), missing[0].uid) if missing else "no probe read memory"
        )
    each = ", ".join(f"{one.device.uid} {format_bytes(peak or 0.0)}" for one, peak in zip(holders, peaks, strict=True))
    return scalar(name, sum(peak or 0.0 for peak in peaks), n=len(peaks), source=each if len(peaks) > 1 else None)


def memory_reserved_util(holders: list[DeviceSeries], window: Window) -> Metric:
    """Memory in use over memory there [share]: engines that reserve the card show what they reserved."""
    name = "memory_reserved_util"
    used = memory_used_peak_b(holders, window)
    totals = [one.device.memory_total_b for one in holders]
    if used.value is None:
        return undefined(name, used.reason or "no probe read memory")
    if None in totals:
        return undefined(name, "the memory there is not known")
    return scalar(name, used.value / sum(total or 0 for total in totals), n=used.n)


def _mean_util(name: str, of: list[DeviceSeries], window: Window) -> Metric:
    values = [one.utilisation[one.inside(window)] for one in of]
    means = [float(np.nanmean(each)) for each in values if bool((~np.isnan(each)).any())]
    if not of or len(means) < len(of):
        return undefined(name, "no probe read utilisation in the window")
    return scalar(name, sum(means) / len(means), n=len(means))


def _peak(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None


def _why(reason: str | None, uid: str) -> str:
    return f"{uid}: {reason or 'no memory reading in the window'}"
