"""Which measured domains belong to a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from bench.errors import DeviceInUse
from bench.records import BOARD_SCOPES, DeviceInfo, EngineHandle, Placement
from bench.session.telemetry import Baselines

Place = Callable[[Sequence[DeviceInfo], Sequence[str]], Placement]
"""Resolves what a person wrote (index, uid, `nvidia:0`) among the devices found. Raises: DeviceMissing."""

_UNKNOWN_USE = "whether the engine uses this board could not be told from its memory: name the boards with --devices"
_USED_GROWTH_B = 64 << 20
"""Memory that a board must gain between idle and resident to count as used by the engine: above a bare driver context's
few MiB of noise, far below any weights."""


def accelerators(devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The boards among `devices`."""
    return tuple(device for device in devices if device.scope in BOARD_SCOPES)


def refuse_in_use(devices: Sequence[DeviceInfo], foreign: Mapping[str, float]) -> None:
    """`devices` are those of a case, `foreign` counts by uid the processes on a device that are not the engine's. A device that
    tells none is not refused, nor one that the engine may not use at all.

    Raises: DeviceInUse.
    """
    known = [d for d in accelerators(devices) if d.power_reason != _UNKNOWN_USE]
    counts = [(f"{d.name} ({d.uid})", round(foreign.get(d.uid, 0.0))) for d in known]
    used = [f"{name} by {count} process{'es' * (count > 1)}" for name, count in counts if count]
    if used:
        free = "`bench devices` tells which boards are free, the vendor's tool (nvidia-smi) whose processes these are"
        hint = f"{free}; `bench run --share-devices` measures all the same"
        raise DeviceInUse(f"in use by others: {', '.join(used)}", hint=hint)


def measured_domains(
    devices: Sequence[DeviceInfo],
    placement: Placement,
    engine: EngineHandle,
    baselines: Baselines,
) -> tuple[DeviceInfo, ...]:
    """The domains whose readings a case keeps.

    Named devices are taken at their word. Otherwise a board counts when its memory grew as the engine loaded; where that can't
    be told they stay, without their power: joules of the wrong device would look like an answer. The host's own domains
    (packages, DRAM, the process tree) belong to engines that run here; an attached endpoint without named boards has none:
    its machine is not known to be this one.
    """
    if not engine.pids:
        return tuple(d for d in devices if d.uid in placement.device_uids)
    if placement.device_uids:
        boards = {device.uid: device for device in devices if device.uid in placement.device_uids}
    else:
        boards = _used(accelerators(devices), baselines)
    return tuple(boards.get(d.uid, d) for d in devices if d.uid in boards or d.scope not in BOARD_SCOPES)


def _used(devices: Sequence[DeviceInfo], baselines: Baselines) -> dict[str, DeviceInfo]:
    """The domains, by uid, of each physical board that the engine's start filled; without their power where nobody can tell.

    A board is judged as a whole: a module around it tells no memory, and one die may have the sensor of both.
    """
    parts: dict[str, list[DeviceInfo]] = {}
    for device in devices:
        parts.setdefault(device.board or device.uid, []).append(device)
    kept: dict[str, DeviceInfo] = {}
    for board in parts.values():
        grown = _grown(board, baselines)
        if grown is None:
            kept |= {d.uid: replace(d, power=None, energy=None, power_reason=_UNKNOWN_USE) for d in board}
        elif grown:
            kept |= {d.uid: d for d in board}
    return kept


def _grown(board: Sequence[DeviceInfo], baselines: Baselines) -> bool | None:
    """Whether memory in use grew on a board as the engine loaded; None where that can't be told."""
    holders = [device for device in board if device.scope == "accelerator"] or board
    told = [(baselines.memory_b(d.uid, baselines.idle), baselines.memory_b(d.uid, baselines.resident)) for d in holders]
    if any(before is not None and after is not None and after - before > _USED_GROWTH_B for before, after in told):
        return True
    return None if any(None in pair for pair in told) else False
