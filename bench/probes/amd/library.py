"""AMD cards through `amdsmi`, the binding of libamd_smi.so. It is loaded late, and only in the probe's own process.

Source: `amdsmi.h` 26.x and the binding `amdsmi` 7.0.2. Socket power is in whole watts, caps in microwatts, the energy
accumulator counts 2^-16 J, memory is in bytes (older calls: MiB), activity in percent, temperatures in degrees C.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.probes import values
from bench.probes.amd import values as amd_values
from bench.probes.cards import Card, Quantity
from bench.probes.presence import rocm_root
from bench.probes.values import Unavailable, attempt, believable_w
from bench.units import BYTES_PER_MIB, NS_PER_S

_LOST = frozenset({32, 34})
"""NOT_INIT, DRIVER_NOT_LOADED: nothing can be read any more."""
_LASTING = frozenset({1, 2, 3, 5, 10})
"""INVAL, NOT_SUPPORTED, NOT_YET_IMPLEMENTED, FAIL_LOAD_SYMBOL, NO_PERM: asking again won't help."""
_DEAREST_S = 0.02
"""Limits in force are not polled where the call takes longer: some versions look twice, 100 ms apart."""
_ENERGY_KEYS = ("energy_accumulator", "power")
"""The accumulator was called `power` before ROCm 6.2.1."""
_APU = "MI300A"
"""The one APU that the library serves in full: its socket holds CPU cores too."""
_POWER_KEYS = ("current_socket_power", "average_socket_power", "socket_power")


class CannotLoad(Exception):
    """No binding that works here; the text says what was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amdsmi:
    """The binding's module, with its errors translated: `Unavailable` for one value, `ProbeError` for a lost device."""

    lib: Any
    origin: str
    """`amdsmi 7.0.2 of /opt/rocm` or `amdsmi 7.0.2 from PyPI`."""

    def call(self, name: str, *args: Any) -> Any:
        """`amdsmi_<name>(*args)`. Raises: Unavailable, ProbeError."""
        function = getattr(self.lib, f"amdsmi_{name}", None)
        if function is None:
            raise Unavailable(f"{self.origin} has no amdsmi_{name}", lasting=True)
        try:
            return function(*args)
        except self.lib.AmdSmiException as error:
            code = getattr(error, "err_code", None)
            text = f"amdsmi_{name}: {getattr(error, 'err_info', None) or ' '.join(str(error).split())}"
            if code in _LOST:
                raise ProbeError(text, hint="dmesg tells why the driver lost the card; it comes back with a reset") from error
            raise Unavailable(text, lasting=code in _LASTING) from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:  # the binding stumbles over what it was given
            raise Unavailable(f"amdsmi_{name}: {type(error).__name__}: {error}", lasting=False) from error

    def close(self) -> None:
        """Let go of the library."""
        try:
            self.lib.amdsmi_shut_down()
        except self.lib.AmdSmiException:
            return  # the driver went away first: nothing is left to let go of


def load(env: Mapping[str, str]) -> Amdsmi:
    """The binding that came with the ROCm installed here, else the one from PyPI of the same major version; initialised.

    Raises: CannotLoad.
    """
    root = rocm_root(env)
    tried: list[str] = []
    folder = root / "share/amd_smi"
    if (folder / "amdsmi/__init__.py").is_file():
        lib = _imported(folder, tried)
        if lib is not None:
            return _initialised(lib, f"amdsmi {_version(lib)} of {root}", tried)
    refusal = _other_major(root)
    if refusal is None:
        lib = _imported(None, tried)
        if lib is not None:
            return _initialised(lib, f"amdsmi {_version(lib)} from PyPI", tried)
    raise CannotLoad("; ".join([*tried, *([refusal] if refusal else [])]))


def _imported(folder: Path | None, tried: list[str]) -> Any:
    """The module, or None with the reason added. A half-imported one is forgotten, or the next try would get it."""
    before = set(sys.modules)
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        lib = importlib.import_module("amdsmi")
    except Exception as error:  # noqa: BLE001 - KeyError without its library, AttributeError for a missing symbol, ...
        tried.append(f"{folder or 'amdsmi of this environment'}: {_why(error)}")
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "amdsmi":
                del sys.modules[name]
        return None
    finally:
        if folder is not None:
            sys.path.remove(str(folder))
    return lib


def _why(error: Exception) -> str:
    if isinstance(error, KeyError) and "libamd_smi" in str(error):
        return "libamd_smi.so can't be loaded"
    return f"{type(error).__name__}: {error}"


def _initialised(lib: Any, origin: str, tried: list[str]) -> Amdsmi:
    try:
        lib.amdsmi_init()
    except lib.AmdSmiException as error:
        raise CannotLoad("; ".join([*tried, f"{origin}: amdsmi_init: {' '.join(str(error).split())}"])) from error
    return Amdsmi(lib=lib, origin=origin)


def _version(lib: Any) -> str:
    return str(getattr(lib, "__version__", "of unknown version"))


def _other_major(root: Path) -> str | None:
    """Why the PyPI binding does not fit the library installed here; None where it does, or nobody can tell."""
    from importlib import metadata

    try:
        installed = (root / ".info/version").read_text(encoding="ascii").strip().partition(".")[0]
        ours = metadata.version("amdsmi").partition(".")[0]
    except (OSError, UnicodeDecodeError, metadata.PackageNotFoundError):
        return None
    if installed == ours or not installed.isdigit():
        return None
    return f"amdsmi {ours}.x from PyPI does not fit ROCm {installed}.x: its structures are others"


def cards(api: Amdsmi, clock: Clock = SYSTEM) -> list[Card]:
    """Every GPU or partition, in the library's order. Raises: Unavailable, ProbeError."""
    handles = api.call("get_processor_handles")
    return [_card(api, handle, index, clock) for index, handle in enumerate(handles)]


def _card(api: Amdsmi, handle: Any, index: int, clock: Clock) -> Card:
    lib = api.lib
    asic = attempt(lambda: api.call("get_gpu_asic_info", handle))[0] or {}
    board = attempt(lambda: api.call("get_gpu_board_info", handle))[0] or {}
    driver = attempt(lambda: api.call("get_gpu_driver_info", handle))[0] or {}
    name = values.named(asic.get("market_name")) or values.named(board.get("product_name"))
    driver_words = [word for key in ("driver_name", "driver_version") if (word := values.named(driver.get(key)))]
    return Card(
        index=index,
        pci=values.pci_address(attempt(lambda: api.call("get_gpu_device_bdf", handle))[0]),
        unique_id=amd_values.unique_id(asic.get("asic_serial")),
        name=name,
        device_id=values.named(asic.get("device_id")),
        driver=" ".join(driver_words) or None,
        scope="module" if _APU in (name or "") else "accelerator",
        quantities={
            **_power(api, handle),
            **_memory(api, handle),
            "utilisation": Quantity(get=partial(_activity, api, handle), api="amdsmi_get_gpu_activity[gfx_activity]", unit="%"),
            "temperature_c": _temperature(api, handle),
            "clock_mhz": Quantity(
                get=lambda: values.number(api.call("get_clock_info", handle, lib.AmdSmiClkType.GFX).get("clk")),
                api="amdsmi_get_clock_info(GFX)[clk]",
                unit="MHz",
            ),
            "throttle": _throttle(api, handle, clock),
        },
    )


def _power(api: Amdsmi, handle: Any) -> dict[str, Quantity]:
    """Which of the power keys speaks depends on the part: MI300 has `current`, MI200 and Radeon have `average`."""
    limit = partial(_limit_w, api, handle)
    limit_w = attempt(limit)[0]

    def watts(key: str) -> float:
        return believable_w(values.number(api.call("get_power_info", handle).get(key)), limit_w)

    key = next((key for key in _POWER_KEYS if attempt(partial(watts, key))[1] is None), _POWER_KEYS[0])
    return {
        "power_w": Quantity(get=partial(watts, key), api=f"amdsmi_get_power_info[{key}] ({api.origin})", unit="W"),
        "energy_j": Quantity(
            get=partial(_energy_j, api, handle), api=f"amdsmi_get_energy_count ({api.origin})", unit="2^-16 J or as told"
        ),
        "power_limit_w": Quantity(get=limit, api="amdsmi_get_power_cap_info[power_cap]", unit="uW"),
    }


def _limit_w(api: Amdsmi, handle: Any) -> float:
    cap_uw = values.number(api.call("get_power_cap_info", handle).get("power_cap"))
    if cap_uw == 0:
        raise Unavailable("the driver gives a power cap of 0", lasting=True)
    return cap_uw * 1e-6


def _energy_j(api: Amdsmi, handle: Any) -> float:
    told = api.call("get_energy_count", handle)
    key = next((key for key in _ENERGY_KEYS if key in told), _ENERGY_KEYS[0])
    counts = values.number(told.get(key), marks=(values.MARK_64,))
    if counts == 0:
        raise Unavailable("the energy counter is 0", lasting=False)
    return counts * amd_values.joules_per_count(float(told.get("counter_resolution") or 0.0))


def _memory(api: Amdsmi, handle: Any) -> dict[str, Quantity]:
    """Bytes where the call exists, else the older one in MiB; nothing where there is no total: 0 used of 0 is no reading."""
    ways = (("get_gpu_memory_total", "get_gpu_memory_usage"), ("vram_total", "vram_used"))
    for read, (total, used), unit in ((_memory_b, ways[0], "B"), (_vram_b, ways[1], "MiB")):
        sizes = {
            "memory_total_b": partial(_above_0, partial(read, api, handle, total)),
            "memory_used_b": partial(read, api, handle, used),
        }
        if attempt(sizes["memory_total_b"])[1] is None:
            names = {"memory_total_b": total, "memory_used_b": used}
            return {name: Quantity(get=get, api=f"amdsmi {names[name]}", unit=unit) for name, get in sizes.items()}
    return {}


def _memory_b(api: Amdsmi, handle: Any, call: str) -> int:
    return int(values.number(api.call(call, handle, api.lib.AmdSmiMemoryType.VRAM), marks=(values.MARK_64,)))


def _vram_b(api: Amdsmi, handle: Any, key: str) -> int:
    told = api.call("get_gpu_vram_usage", handle).get(key)
    return int(values.number(told, marks=(values.MARK_32,))) * BYTES_PER_MIB


def _above_0(read: Callable[[], int]) -> int:
    size_b = read()
    if size_b == 0:
        raise Unavailable("the driver gives a memory size of 0", lasting=True)
    return size_b


def _activity(api: Amdsmi, handle: Any) -> float:
    return values.share(values.number(api.call("get_gpu_activity", handle).get("gfx_activity")))


def _temperature(api: Amdsmi, handle: Any) -> Quantity:
    """The hotspot, else the edge."""
    lib = api.lib

    def celsius(sensor: str) -> float:
        kind = getattr(lib.AmdSmiTemperatureType, sensor)
        told = values.number(api.call("get_temp_metric", handle, kind, lib.AmdSmiTemperatureMetric.CURRENT))
        if told == 0:
            raise Unavailable("a temperature of 0 is no reading", lasting=False)
        return told

    sensor = next((name for name in ("HOTSPOT", "EDGE") if attempt(partial(celsius, name))[1] is None), "HOTSPOT")
    return Quantity(get=partial(celsius, sensor), api=f"amdsmi_get_temp_metric({sensor})", unit="C")


def _throttle(api: Amdsmi, handle: Any, clock: Clock) -> Quantity:
    name = "amdsmi_get_violation_status"

    def limits() -> tuple[str, ...]:
        return amd_values.throttle_names(api.call("get_violation_status", handle))

    before_ns = clock.monotonic_ns()
    failed = attempt(limits)[1]
    took_s = (clock.monotonic_ns() - before_ns) / NS_PER_S
    if failed is None and took_s > _DEAREST_S:
        return Quantity(get=partial(_refuse, f"the call takes {took_s * 1000:.0f} ms: too dear to poll"), api=name, unit="flags")
    return Quantity(get=limits, api=name, unit="flags")


def _refuse(reason: str) -> Any:
    raise Unavailable(reason, lasting=True)
