"""The NVML binding, loaded late, and the rules for what it hands out: errors, sentinels, units, names of limits.

Source: `nvml.h` (CUDA 12.2) and `nvidia-ml-py`. Power is in milliwatts, the energy counter in millijoules since the driver
was loaded, memory in bytes, utilisation in percent over a window of 1/6 s to 1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.errors import ProbeError

INSTANT = 186
"""NVML_FI_DEV_POWER_INSTANT: every architecture."""
AVERAGE = 185
"""NVML_FI_DEV_POWER_AVERAGE: over 1 s, Ampere (but GA100) and later."""
SCOPE_GPU = 0
SCOPE_MODULE = 1
"""Grace and GPU together; only with an NVIDIA CPU."""

_LOST = frozenset({1, 9, 15, 16, 18})
"""UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED, LIB_RM_VERSION_MISMATCH: nothing can be read any more."""
_LASTING = frozenset({2, 3, 4, 13, 25, 26})
"""INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, VERSION_MISMATCH, DEPRECATED: asking again won't help."""
_U32_MISSING = 0xFFFFFFFF
_U64_MISSING = (1 << 64) - 1
LOWEST_W = 0.5
HIGHEST_W = 5000.0
_OVER_LIMIT = 2.0

_THROTTLE = {
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
_IDLE = 0x1

_VOLTA, _TURING, _AMPERE, _HOPPER = 5, 6, 7, 9
_GA100 = ("A100", "A800", "A30")
GAIN_ERROR = 0.05
"""Relative, fixed for a board. Source: Yang et al., "Part-time Power Measurements", 2023 (GPU_Power_Benchmark)."""


class Unavailable(Exception):
    """A value that this device does not give. `lasting`: it never will, so that the call can be left out."""

    def __init__(self, reason: str, *, lasting: bool) -> None:
        super().__init__(reason)
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class Nvml:
    """The binding's module, with its errors translated: `Unavailable` for one value, `ProbeError` for a lost device."""

    lib: Any

    def call(self, name: str, *args: Any) -> Any:
        """`nvml<name>(*args)`. Raises: Unavailable, ProbeError."""
        function = getattr(self.lib, f"nvml{name}", None)
        if function is None:
            raise Unavailable(f"nvidia-ml-py has no nvml{name}", lasting=True)
        try:
            return function(*args)
        except self.lib.NVMLError as error:
            raise self._translated(f"nvml{name}", error.value, str(error)) from error

    def field(self, handle: Any, field: int, scope: int) -> int:
        """An unsigned field value, raw. Raises: Unavailable, ProbeError."""
        value = self.call("DeviceGetFieldValues", handle, [(field, scope)])[0]
        if value.nvmlReturn != 0:
            error = self.lib.NVMLError(value.nvmlReturn)
            raise self._translated(f"nvmlDeviceGetFieldValues({field}, scope {scope})", value.nvmlReturn, str(error))
        return int(value.value.uiVal)

    @staticmethod
    def _translated(what: str, code: int, text: str) -> Exception:
        if code in _LOST:
            return ProbeError(f"{what}: {text}", hint="nvidia-smi -q tells more; a lost GPU comes back with a reset or a reboot")
        return Unavailable(f"{what}: {text}", lasting=code in _LASTING)


def load_binding() -> Any:
    """The module `pynvml` of the package `nvidia-ml-py`.

    Raises: ImportError where there is none, or where the name belongs to the old wrapper package `pynvml`.
    """
    import pynvml

    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise ImportError("the installed 'pynvml' is the deprecated wrapper, not nvidia-ml-py")
    return pynvml


def text(value: str | bytes) -> str:
    """Old bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def present(value: int, *, bits: int) -> int:
    """The value unless it is the all-ones pattern that means "not available". Raises: Unavailable."""
    if value == (_U64_MISSING if bits == 64 else _U32_MISSING):
        raise Unavailable(f"the driver gave its mark for a missing value ({value:#x})", lasting=False)
    return value


def plausible_w(milliwatts: int, limit_w: float | None) -> float:
    """Watts. Raises: Unavailable outside 0.5 W to 5 kW or at twice the limit: a wrong unit, or not a reading."""
    watts = present(milliwatts, bits=32) / 1000
    highest = min(HIGHEST_W, _OVER_LIMIT * limit_w) if limit_w else HIGHEST_W
    if not LOWEST_W <= watts <= highest:
        raise Unavailable(f"implausible power: {watts:g} W (believable: {LOWEST_W:g} to {highest:g} W)", lasting=False)
    return watts


def throttle_names(bits: int) -> tuple[str, ...]:
    """Standard names of the limits in the mask; being idle is not a limit."""
    names = [name for bit, name in _THROTTLE.items() if bits & bit]
    unknown = present(bits, bits=64) & ~(_IDLE | sum(_THROTTLE))
    return (*names, f"unknown_{unknown:#x}") if unknown else tuple(names)


def averaging_window_s(field: str, architecture: int | None, name: str) -> float | None:
    """Seconds that one power reading averages over; None where no source says.

    Source: Yang et al. 2023, table of sensors (Volta 10 ms, Turing 100 ms, A100 and H100 instant 25 ms); `nvml.h` for the 1 s
    of `AVERAGE` and, from Ampere on but for GA100, of `nvmlDeviceGetPowerUsage`.
    """
    ga100 = any(part in name for part in _GA100)
    if field == "average":
        return 1.0
    if field == "usage" and architecture is not None and architecture >= _AMPERE and not ga100:
        return 1.0
    if architecture == _VOLTA:
        return 0.010
    if architecture == _TURING:
        return 0.100
    if ga100 or architecture == _HOPPER:
        return 0.025
    return None


Step = Callable[[], Any]


def attempt(step: Step) -> tuple[Any, str | None, bool]:
    """(value, None, False), or (None, reason, lasting). A lost device still raises ProbeError."""
    try:
        return step(), None, False
    except Unavailable as error:
        return None, str(error), error.lasting
