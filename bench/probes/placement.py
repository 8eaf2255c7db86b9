"""From what a person writes (`0`, `nvidia:1`, `GPU-3f2a`) to boards, and to the variables that show an engine only them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.errors import DeviceMissing, UsageError
from bench.records import BOARD_SCOPES, DeviceInfo, PlacedBoard, Placement

_VISIBILITY = {
    "amd": ("ROCR_VISIBLE_DEVICES",),
    "ascend": ("ASCEND_RT_VISIBLE_DEVICES",),
    "biren": ("SUPA_VISIBLE_DEVICES",),
    "cambricon": ("MLU_VISIBLE_DEVICES",),
    "enflame": ("TOPS_VISIBLE_DEVICES",),
    "gaudi": ("HABANA_VISIBLE_MODULES",),
    "hygon": ("HIP_VISIBLE_DEVICES",),
    "iluvatar": ("CUDA_VISIBLE_DEVICES",),
    "intel": ("ZE_AFFINITY_MASK",),
    "metax": ("MACA_VISIBLE_DEVICES",),
    "mthreads": ("MUSA_VISIBLE_DEVICES",),
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "tpu": ("TPU_VISIBLE_CHIPS",),
}
"""Variables that show an engine only some devices. Sources: the vendors' programming guides (`docs/hardware.md`)."""
_NO_DEVICE = "-1"
"""Hides all devices. An empty value does not everywhere: HIP and Level Zero take it for none at all. CUDA, HIP and ROCr stop at a
number that can't be, Level Zero passes over it, and CANN refuses to start, which is better than a device that nobody measures.

Sources: CUDA Programming Guide, CUDA_VISIBLE_DEVICES; rocclr `rocdevice.cpp`; ROCr `amd_filter_device.cpp`; compute-runtime
`execution_environment.cpp`. The others follow CUDA's words; what they make of it has not been seen on hardware.
"""
_ROCR_ID = re.compile(r"GPU-[0-9a-f]{16}")
_SHORTEST_PREFIX = 4


def resolve(devices: Sequence[DeviceInfo], wanted: Sequence[str]) -> Placement:
    """Boards and visibility variables for `wanted`: an index, `PROBE:INDEX`, a uid or the start of one, a slice's uid that a
    board covers, the name of a probe (all of its boards), or `cpu` (no accelerator at all). Nothing wanted: nothing restricted.

    Framework numbering differs from the driver's, so boards are passed on by uid, in the order given.

    Raises: DeviceMissing, UsageError (ambiguous, or named twice).
    """
    if not wanted:
        return Placement()
    if list(wanted) == ["cpu"]:
        packages = tuple(d.uid for d in devices if d.scope in ("cpu_package", "dram"))
        hidden = dict.fromkeys(_variables(devices), _NO_DEVICE)
        return Placement(device_uids=packages, visibility_env=hidden, numbered_env=hidden or None)
    chosen: list[tuple[DeviceInfo, str]] = []
    for word in wanted:
        chosen.extend(_find(devices, word))
    names = [name for _, name in chosen]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"device {twice} is named twice in {', '.join(wanted)}")
    boards = {device.board or device.uid for device, _ in chosen}
    uids = tuple(dict.fromkeys([device.uid for device, _ in chosen] + [d.uid for d in devices if d.board in boards]))
    env = _environment(chosen)
    boards_seen = tuple(PlacedBoard(probe=d.probe, uid=name, number=d.visible_as or str(d.index)) for d, name in chosen)
    return Placement(
        device_uids=uids,
        visibility_env=env,
        numbered_env=_by_number(chosen, env),
        boards=boards_seen,
        devices=len(chosen),
    )


def _accelerators(devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Boards (each die of a board of two), and modules where nothing finer is listed."""
    fine = {device.board or device.uid for device in devices if device.scope == "accelerator"}
    return [d for d in devices if d.scope in BOARD_SCOPES and (d.scope == "accelerator" or (d.board or d.uid) not in fine)]


def _find(devices: Sequence[DeviceInfo], word: str) -> list[tuple[DeviceInfo, str]]:
    boards = _accelerators(devices)
    probe, colon, number = word.rpartition(":")
    if number.isdigit() and (not colon or any(d.probe == probe for d in devices)):
        found = [d for d in boards if d.index == int(number) and probe in ("", d.probe)]
    elif any(d.probe == word for d in boards):
        return [(d, d.uid) for d in boards if d.probe == word]
    else:
        return [_by_uid(boards, word)]
    if not found:
        raise _missing(boards, word)
    if len(found) > 1:
        hint = f"write one of: {', '.join(f'{d.probe}:{d.index}' for d in found)}"
        raise UsageError(f"device {word!r} could be several", hint=hint)
    return [(found[0], found[0].uid)]


def _by_uid(boards: list[DeviceInfo], word: str) -> tuple[DeviceInfo, str]:
    listed = {board.uid for board in boards}
    names = [(board, name) for board in boards for name in (board.uid, *(u for u in board.covers if u not in listed))]
    exact = [(board, name) for board, name in names if word in (name, board.pci)]
    if exact:
        return exact[0]
    starting = [(board, name) for board, name in names if name.lower().startswith(word.lower())]
    if len(word) < _SHORTEST_PREFIX or not starting:
        raise _missing(boards, word)
    if len(starting) > 1:
        raise UsageError(f"device {word!r} could be several", hint=f"write more of: {', '.join(name for _, name in starting)}")
    return starting[0]


def _missing(boards: list[DeviceInfo], word: str) -> DeviceMissing:
    here = "; ".join(f"{d.probe}:{d.index} {d.name} ({d.uid})" for d in boards) or "no accelerator"
    return DeviceMissing(f"device {word!r} is not here", hint=f"here: {here}. `bench devices` tells more")


def _variables(devices: Sequence[DeviceInfo]) -> list[str]:
    return sorted({name for d in devices for name in _VISIBILITY.get(d.probe, ())})


def _environment(chosen: list[tuple[DeviceInfo, str]]) -> dict[str, str]:
    env: dict[str, str] = {}
    for probe, names in _VISIBILITY.items():
        mine = [(device, name) for device, name in chosen if device.probe == probe]
        if not mine:
            continue
        numbers = dict.fromkeys(names, _numbers(mine))
        clash = next((name for name in numbers if name in env), None)
        if clash is not None:
            hint = "measure one vendor's boards at a time"
            raise UsageError(f"devices of two vendors need {clash}, each with numbers of its own", hint=hint)
        env |= _BY_UID[probe](mine) if probe in _BY_UID else numbers
    return env


def _cuda(chosen: list[tuple[DeviceInfo, str]]) -> dict[str, str]:
    if all(name.startswith(("GPU-", "MIG-")) for _, name in chosen):
        return {"CUDA_VISIBLE_DEVICES": ",".join(name for _, name in chosen)}
    # a driver without UUIDs: its own order, which CUDA follows only when told to
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": _numbers(chosen)}


def _by_number(chosen: list[tuple[DeviceInfo, str]], env: dict[str, str]) -> dict[str, str] | None:
    """The variables with numbers for ids; None where a slice of a board has none."""
    if any(name != device.uid for device, name in chosen):
        return None
    nvidia = [(device, name) for device, name in chosen if device.probe == "nvidia"]
    return env | ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": _numbers(nvidia)} if nvidia else {})


def _rocm(chosen: list[tuple[DeviceInfo, str]]) -> dict[str, str]:
    """ROCr filters first, HIP numbers what is left: a HIP filter of the caller's would then hide boards that were asked for."""
    exact = all(_ROCR_ID.fullmatch(name) for _, name in chosen)
    boards = ",".join(name for _, name in chosen) if exact else _numbers(chosen)
    return {"ROCR_VISIBLE_DEVICES": boards, "HIP_VISIBLE_DEVICES": ",".join(str(i) for i in range(len(chosen)))}


def _ascend(chosen: list[tuple[DeviceInfo, str]]) -> dict[str, str]:
    """CANN takes ids in ascending order only."""
    return {"ASCEND_RT_VISIBLE_DEVICES": ",".join(sorted(_numbers(chosen).split(","), key=int))}


def _numbers(chosen: list[tuple[DeviceInfo, str]]) -> str:
    return ",".join(device.visible_as or str(device.index) for device, _ in chosen)


def _level_zero(chosen: list[tuple[DeviceInfo, str]]) -> dict[str, str]:
    """The driver numbers its devices in PCI order only when told to."""
    return {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1", "ZE_AFFINITY_MASK": _numbers(chosen)}


_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}
"""How so many chips of a host lie together."""


def _tpu(chosen: list[tuple[DeviceInfo, str]]) -> dict[str, str]:
    """The runtime also wants to be told that these chips are a slice of their own, and its shape."""
    env = {"TPU_VISIBLE_CHIPS": _numbers(chosen)}
    bounds = _TPU_BOUNDS.get(len(chosen))
    return env | ({"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": bounds} if bounds else {})


_BY_UID = {"amd": _rocm, "ascend": _ascend, "intel": _level_zero, "nvidia": _cuda, "tpu": _tpu}
