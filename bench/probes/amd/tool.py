"""AMD cards through `amd-smi` or `rocm-smi`, once a second in a thread.

The last way, where neither the library nor the kernel's files tell.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.clock import Clock
from bench.probes import values
from bench.probes.amd import tool_json
from bench.probes.amd import values as amd_values
from bench.probes.background import Poller
from bench.probes.cards import Card, Quantity
from bench.probes.command import output
from bench.probes.presence import rocm_root
from bench.probes.values import Unavailable, attempt

PERIOD_S = 1.0
FIRST_ANSWER_S = 4.0
_QUANTITIES = {"power_w": "W", "memory_used_b": "MB", "memory_total_b": "MB", "utilisation": "%", "temperature_c": "C"}
_AMD_SMI = ("metric", "-p", "-u", "-m", "-t", "--json")
_ROCM_SMI = (
    "--showpower",
    "--showuse",
    "--showmeminfo",
    "vram",
    "--showtemp",
    "--showuniqueid",
    "--showbus",
    "--showproductname",
    "--json",
)

Run = Callable[[list[str]], str]


class Tool:
    """One of the two tools, polled. `cards` are as of the first answer."""

    def __init__(self, command: list[str], name: str, clock: Clock, run: Run) -> None:
        self._name = name
        self._list = partial(run, [command[0], "list", "--json"]) if name == "amd-smi" else None
        self._poller: Poller[tool_json.Told] = Poller(name, lambda: tool_json.told(run(command)), PERIOD_S, clock)

    def cards(self) -> list[Card]:
        """Raises: Unavailable where the tool gives nothing that can be read."""
        try:
            gpus = self._poller.first(FIRST_ANSWER_S).value
        except Unavailable:
            self._poller.close()
            raise
        listed: tool_json.Told = {}
        if self._list is not None:
            text = attempt(self._list)[0]
            listed = (attempt(partial(tool_json.told, text))[0] if text else None) or {}
        return [self._card(number, {**gpu, **listed.get(number, {})}) for number, gpu in sorted(gpus.items())]

    def close(self) -> None:
        """Poll no more."""
        self._poller.close()

    def _card(self, number: int, gpu: Mapping[str, Any]) -> Card:
        return Card(
            index=number,
            pci=values.pci_address(tool_json.about(gpu, "bdf", "PCI Bus")),
            unique_id=amd_values.unique_id(tool_json.about(gpu, "Unique ID")),
            name=tool_json.about(gpu, "market_name", "Card Series", "Card series", "Device Name"),
            device_id=tool_json.about(gpu, "Device ID"),
            quantities={
                name: Quantity(
                    get=partial(self._value, number, name), api=f"{self._name} --json", unit=unit, span=self._poller.span
                )
                for name, unit in _QUANTITIES.items()
            },
        )

    def _value(self, number: int, name: str) -> float | int:
        gpu = self._poller.latest().value.get(number)
        if gpu is None:
            raise Unavailable(f"{self._name} no longer lists GPU {number}", lasting=False)
        value = tool_json.value_of(gpu, name)
        return int(value) if name.startswith("memory") else value


def find(env: Mapping[str, str], clock: Clock, run: Run = output) -> Tool | None:
    """`amd-smi`, else `rocm-smi`, from the path or the folder of ROCm; None where there is neither."""
    folder = rocm_root(env) / "bin"
    for name, arguments in (("amd-smi", _AMD_SMI), ("rocm-smi", _ROCM_SMI)):
        path = shutil.which(name, path=env.get("PATH")) or _executable(folder / name)
        if path:
            return Tool([path, *arguments], name, clock, run)
    return None


def _executable(path: Path) -> str | None:
    return str(path) if path.is_file() else None
