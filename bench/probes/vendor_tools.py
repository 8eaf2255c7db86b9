"""What a vendor's own command line says of its boards, to hold our numbers against. Nothing here is measured with."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import plugins
from bench.probes.card_probe import CardProbe
from bench.probes.cards import Card
from bench.probes.values import attempt
from bench.records import DeviceInfo

_DEADLINE_S = 20.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSays:
    """One board in the words of its vendor's tool; None where the tool gives no number."""

    tool: str
    power_w: float | None
    memory_used_b: int | None


def tool_values(probe: str, devices: Sequence[DeviceInfo], env: Mapping[str, str] | None = None) -> dict[str, ToolSays]:
    """By uid, for the `devices` of `probe`; nothing where its tool is not on the path or does not answer."""
    if probe == "nvidia":
        return _nvidia_smi(env)
    kind = plugins.load("bench.probes", probe)
    return _by_cards(kind(env=env), devices) if isinstance(kind, type) and issubclass(kind, CardProbe) else {}


def _by_cards(probe: CardProbe, devices: Sequence[DeviceInfo]) -> dict[str, ToolSays]:
    mine = [device for device in devices if device.probe == probe.name]
    with probe.by_tool() as cards:
        told = {device.uid: card for device in mine if (card := _same(device, cards)) is not None}
        return {uid: _card_says(probe.name, card) for uid, card in told.items()}


def _same(device: DeviceInfo, cards: Sequence[Card]) -> Card | None:
    """The tool's card of this device: by its id, else by its address, else by its number."""
    ways = (
        [card for card in cards if card.unique_id == device.uid],
        [card for card in cards if card.pci is not None and card.pci == device.pci],
        [card for card in cards if card.unique_id is None and card.pci is None and card.index == device.index],
    )
    return next((found[0] for found in ways if len(found) == 1), None)


def _card_says(probe: str, card: Card) -> ToolSays:
    values = {name: attempt(quantity.get)[0] for name, quantity in card.quantities.items()}
    power = card.quantities.get("power_w")
    return ToolSays(
        tool=power.api if power else f"the {probe} tool",
        power_w=values.get("power_w"),
        memory_used_b=values.get("memory_used_b"),
    )


def _nvidia_smi(env: Mapping[str, str] | None) -> dict[str, ToolSays]:
    """`power.draw.instant` where the driver knows the field (525 and later), else `power.draw`."""
    tool = shutil.which("nvidia-smi", path=None if env is None else env.get("PATH"))
    if tool is None:
        return {}
    for power in ("power.draw.instant", "power.draw"):
        command = [tool, f"--query-gpu=uuid,{power},memory.used", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False, env=env)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]
        found = {row[0]: _says(f"nvidia-smi {power}", row[1], row[2]) for row in rows if len(row) == 3}
        if done.returncode == 0 and any(says.power_w is not None for says in found.values()):
            return found
    return {}


def _says(tool: str, power: str, memory: str) -> ToolSays:
    mib = _number(memory)
    return ToolSays(tool=tool, power_w=_number(power), memory_used_b=None if mib is None else round(mib * _MIB))


def _number(text: str) -> float | None:
    """`[N/A]`, `[Not Supported]` and `[Unknown Error]` are no numbers."""
    try:
        return float(text)
    except ValueError:
        return None
