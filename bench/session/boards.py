"""Which measured domains belong to a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.records import DeviceInfo, EngineHandle, Placement
from bench.session.telemetry import ACCELERATOR_SCOPES, Baselines, TelemetrySupervisor

Place = Callable[[Sequence[DeviceInfo], Sequence[str]], Placement]
"""Resolves what a person wrote (index, uid, `nvidia:0`) among the devices found. Raises: DeviceMissing."""

_USED_GROWTH_B = 64 << 20
"""Memory that a board must gain between idle and resident to count as used by the engine: above a bare driver context's
few MiB of noise, far below any weights."""


def accelerators(devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The boards among `devices`."""
    return tuple(device for device in devices if device.scope in ACCELERATOR_SCOPES)


def measured_domains(
    devices: Sequence[DeviceInfo],
    placement: Placement,
    engine: EngineHandle,
    telemetry: TelemetrySupervisor,
    baselines: Baselines,
) -> tuple[DeviceInfo, ...]:
    """The domains whose readings a case keeps.

    Named devices are taken at their word. Otherwise boards count when their memory grew as the engine loaded. The host's own
    domains (packages, DRAM, the process tree) belong to engines that run here; an attached endpoint without named boards
    has none: its machine is not known to be this one.
    """
    if not engine.pids:
        return tuple(d for d in devices if d.uid in placement.device_uids)
    if placement.device_uids:
        boards = {device.uid for device in devices if device.uid in placement.device_uids}
    else:
        boards = {d.uid for d in accelerators(devices) if _grew(d.uid, telemetry, baselines)}
    host = [d for d in devices if d.scope not in ACCELERATOR_SCOPES]
    return tuple(d for d in devices if d.uid in boards or d in host)


def _grew(uid: str, telemetry: TelemetrySupervisor, baselines: Baselines) -> bool:
    before = telemetry.memory_b(uid, baselines.idle)
    after = telemetry.memory_b(uid, baselines.resident)
    return before is not None and after is not None and after - before > _USED_GROWTH_B
