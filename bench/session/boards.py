"""Which measured domains belong to a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.records import DeviceInfo, EngineHandle, Placement
from bench.session.telemetry import ACCELERATOR_SCOPES, Baselines

Place = Callable[[Sequence[DeviceInfo], Sequence[str]], Placement]
"""Resolves what a person wrote (index, uid, `nvidia:0`) among the devices found. Raises: DeviceMissing."""

_UNKNOWN_USE = "whether the engine uses this board could not be told from its memory: name the boards with --devices"
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
    baselines: Baselines,
) -> tuple[DeviceInfo, ...]:
    """The domains whose readings a case keeps.

    Named devices are taken at their word. Otherwise boards count when their memory grew as the engine loaded; where that can't
    be told they stay, without their power: joules of the wrong device would look like an answer. The host's own domains
    (packages, DRAM, the process tree) belong to engines that run here; an attached endpoint without named boards has none:
    its machine is not known to be this one.
    """
    if not engine.pids:
        return tuple(d for d in devices if d.uid in placement.device_uids)
    if placement.device_uids:
        boards = {device.uid: device for device in devices if device.uid in placement.device_uids}
    else:
        boards = {d.uid: kept for d in accelerators(devices) if (kept := _if_used(d, baselines)) is not None}
    return tuple(boards.get(d.uid, d) for d in devices if d.uid in boards or d.scope not in ACCELERATOR_SCOPES)


def _if_used(board: DeviceInfo, baselines: Baselines) -> DeviceInfo | None:
    """The board if the engine's start filled it, without its power if nobody can tell, None if it did not."""
    before = baselines.memory_b(board.uid, baselines.idle)
    after = baselines.memory_b(board.uid, baselines.resident)
    if before is None or after is None:
        return replace(board, power=None, energy=None, power_reason=_UNKNOWN_USE)
    return board if after - before > _USED_GROWTH_B else None
