"""The NVML binding, loaded late, and the rules for what it hands out: errors, sentinels, units, names of limits.

Source: `nvml.h` (CUDA 12.2) and `nvidia-ml-py`. Power is in milliwatts, the energy counter in millijoules since the driver
was loaded, memory in bytes, utilisation in percent over a window of 1/6 s to 1 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.errors import ProbeError
from bench.probes.values import Unavailable, believable_w

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
    return believable_w(present(milliwatts, bits=32) / 1000, limit_w)


def throttle_names(bits: int) -> tuple[str, ...]:
    """Standard names of the limits in the mask; being idle is not a limit."""
    names = [name for bit, name in _THROTTLE.items() if bits & bit]
    unknown = present(bits, bits=64) & ~(_IDLE | sum(_THROTTLE))
    return (*names, f"unknown_{unknown:#x}") if unknown else tuple(names)
