"""What `ioreg`, `macmon` and `powermetrics` print of an Apple chip. Pure.

Sources: an M4's `ioreg`, the README of macmon and its keys of version 0.8, and `powermetrics` as a plist and as text. macmon
tells watts, powermetrics milliwatts and the millijoules of a sample. Both come from a model of the chip.
"""

from __future__ import annotations

import json
import plistlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from xml.parsers.expat import ExpatError

from bench.probes import values
from bench.probes.apple.chip import GPU, MODULE, UNIFIED, Chip
from bench.probes.tool import Told, told, whole_lines
from bench.probes.values import Step, Unavailable, attempt

_STATISTICS = re.compile(r'"PerformanceStatistics"\s*=\s*\{([^}]*)\}')
_STATISTIC = re.compile(r'"([^"]+)"\s*=\s*(\d+)\s*(?:,|$)')
_NUMBER_LINE = re.compile(r"\s*([^:]+?):\s*(\d+(?:\.\d+)?)\s*(mW|MHz|%)")
_PRESSURE = re.compile(r"pressure level:\s*(\w+)")
_NOMINAL = "nominal"
_BUSY = 0.01
"""A GPU that works more than this share of the time and draws nothing at all is not told of."""
_HZ_FROM = 1e6
"""The plist's `freq_hz` is in Hz on some systems and in MHz on others."""


def ioreg(text: str, chip: Chip) -> list[Told]:
    """The GPU's use and memory. Raises: Unavailable where it can't be read."""
    found = _STATISTICS.search("\n".join(whole_lines(text)))
    if found is None:
        raise Unavailable(f"ioreg tells no PerformanceStatistics: {' '.join(text.split())[:80]!r}", lasting=False)
    statistics = {name: int(number) for name, number in _STATISTIC.findall(found[1])}

    def statistic(name: str) -> int:
        if name not in statistics:
            raise Unavailable(f"ioreg tells no {name!r}", lasting=False)
        return statistics[name]

    steps: dict[str, Step] = {
        "memory_used_b": lambda: statistic("In use system memory"),
        "utilisation": lambda: values.share(statistic("Device Utilization %")),
    }
    if chip.memory_b is not None:
        steps["memory_total_b"] = lambda: chip.memory_b
    numbers, reasons = told(steps)
    return [Told(**chip.identity(GPU), values=numbers, reasons={**UNIFIED, **reasons})]


def macmon(text: str, chip: Chip) -> list[Told]:
    """GPU and module of the last line of `macmon pipe`. Raises: Unavailable where it can't be read."""
    line = next((line for line in reversed(whole_lines(text)) if line.startswith("{")), "")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"macmon's output can't be read: {' '.join(text.split())[:80]!r}", lasting=False) from error
    old = found.get("gpu_usage")  # [MHz, share] before version 0.9
    clock, busy = old if isinstance(old, list) and len(old) == 2 else (found.get("gpu_freq_mhz"), found.get("gpu_active_ratio"))
    temperatures = found.get("temp")
    celsius = temperatures.get("gpu_temp_avg") if isinstance(temperatures, dict) else None
    return _chip(
        chip,
        gpu_w=lambda: values.number(found.get("gpu_power")),
        module_w=lambda: values.number(found.get("all_power")),
        busy=lambda: values.number(busy),
        clock_mhz=lambda: values.number(clock),
        celsius=lambda: values.number(celsius),
    )


def powermetrics(text: str, chip: Chip) -> list[Told]:
    """GPU and module of the last sample, a plist or text. Raises: Unavailable where it can't be read."""
    found = _from_plist(text) or _from_text(whole_lines(text))
    if not found:
        raise Unavailable(f"powermetrics' output can't be read: {' '.join(text.split())[:80]!r}", lasting=False)

    def of(key: str) -> Callable[[], float]:
        return lambda: values.number(found.get(key))

    return _chip(
        chip,
        gpu_w=of("gpu_w"),
        module_w=of("module_w"),
        busy=of("busy"),
        clock_mhz=of("clock_mhz"),
        throttle=_limits(found.get("pressure")),
    )


def _chip(
    chip: Chip,
    *,
    gpu_w: Step,
    module_w: Step,
    busy: Step,
    clock_mhz: Step,
    celsius: Step | None = None,
    throttle: tuple[str, ...] | None = None,
) -> list[Told]:
    """The module is left out where it is not told, or it would seem to have no sensor but the GPU's."""
    steps: dict[str, Step] = {
        "power_w": lambda: _drawn(gpu_w(), attempt(busy)[0]),
        "utilisation": busy,
        "clock_mhz": clock_mhz,
    }
    if celsius is not None:
        steps["temperature_c"] = celsius
    numbers, reasons = told(steps, lowest_w=0.0)
    module, _ = told({"power_w": lambda: values.above_0(module_w(), "module's power")}, lowest_w=0.0)
    devices = [Told(**chip.identity(GPU), values=numbers, reasons=reasons, throttle=throttle)]
    return [*devices, *([Told(**chip.identity(MODULE), values=module, throttle=throttle)] if module else [])]


def _drawn(watts: float, busy: float | None) -> float:
    """An idle GPU may draw nothing that the model sees."""
    if watts == 0 and (busy is None or busy > _BUSY):
        raise Unavailable("0 W of a GPU that is not idle is no reading", lasting=False)
    return watts


def _limits(pressure: object) -> tuple[str, ...] | None:
    if not isinstance(pressure, str):
        return None
    return () if pressure.lower() == _NOMINAL else ("thermal_pressure",)


# --- powermetrics ---------------------------------------------------------------------------------------------------------


def _from_plist(text: str) -> dict[str, Any]:
    """Samples are joined by NUL."""
    for part in reversed(text.split("\0")):
        try:
            sample = plistlib.loads(part.strip().encode())
        except (ValueError, ExpatError, AttributeError, IndexError, TypeError):
            continue
        if isinstance(sample, dict):
            return _sampled(sample)
    return {}


def _sampled(sample: Mapping[str, Any]) -> dict[str, Any]:
    processor, gpu = (group if isinstance(group := sample.get(name), dict) else {} for name in ("processor", "gpu"))
    elapsed_ns, idle, clock_hz = _number(sample.get("elapsed_ns")), _number(gpu.get("idle_ratio")), _number(gpu.get("freq_hz"))

    def watts(energies: Sequence[str], power: str) -> float | None:
        """Energy over time where both are told: the power is rounded."""
        parts_mj = [_number(processor.get(name)) for name in energies]
        told_mj = [part for part in parts_mj if part is not None]
        if len(told_mj) == len(parts_mj) and elapsed_ns:
            return sum(told_mj) / elapsed_ns * 1e6
        milliwatts = _number(processor.get(power))
        return None if milliwatts is None else milliwatts / 1000

    return {
        "gpu_w": watts(("gpu_energy",), "gpu_power"),
        "module_w": watts(("cpu_energy", "gpu_energy", "ane_energy"), "combined_power"),
        "busy": None if idle is None else 1 - idle,
        "clock_mhz": clock_hz / 1e6 if clock_hz is not None and clock_hz >= _HZ_FROM else clock_hz,
        "pressure": sample.get("thermal_pressure"),
    }


def _number(value: object) -> float | None:
    """A finite number of at least 0, else None."""
    found: float | None = attempt(partial(values.number, value, marks=()))[0]
    return found


def _from_text(lines: Sequence[str]) -> dict[str, Any]:
    numbers = {line[1]: float(line[2]) for line in map(_NUMBER_LINE.match, lines) if line is not None}
    pressure = _PRESSURE.search("\n".join(lines))
    sample: dict[str, Any] = {
        key: numbers[name] * scale
        for key, name, scale in (
            ("gpu_w", "GPU Power", 1e-3),
            ("module_w", "Combined Power (CPU + GPU + ANE)", 1e-3),
            ("busy", "GPU HW active residency", 1e-2),
            ("clock_mhz", "GPU HW active frequency", 1.0),
        )
        if name in numbers
    }
    return {**sample, "pressure": pressure[1] if pressure else None} if sample else {}
