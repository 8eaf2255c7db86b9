"""A stand-in for `ixsmi` on the path, and what it prints of the machine of `host.MR_V100`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.probes.iluvatar.tool import COLUMNS, FORMS
from tests.probes import programs

NEW, OLD, TABLE = (" ".join(form) for form in FORMS)

CARDS: tuple[Mapping[str, str], ...] = (
    {
        "index": "0",
        "name": "Iluvatar MR-V100",
        "uuid": "GPU-75401a56-0000-5257-8e2c-000000000001",
        "pci.bus_id": "00000000:15:00.0",
        "driver_version": "4.4.0",
        "memory.total": "32768 MiB",
        "memory.used": "116 MiB",
        "utilization.gpu": "0 %",
        "temperature.gpu": "36 C",
        "gpu.power.draw": "57 W",
        "gpu.current.power.limit": "150 W",
        "clocks.current.sm": "500 MHz",
    },
    {
        "index": "1",
        "name": "Iluvatar MR-V100",
        "uuid": "GPU-75401a56-0000-5257-8e2c-000000000002",
        "pci.bus_id": "00000000:98:00.0",
        "driver_version": "4.4.0",
        "memory.total": "32768 MiB",
        "memory.used": "27996 MiB",
        "utilization.gpu": "97 %",
        "temperature.gpu": "61 C",
        "gpu.power.draw": "131 W",
        "gpu.current.power.limit": "150 W",
        "clocks.current.sm": "1500 MHz",
    },
)


def csv(columns: str = COLUMNS[0], *, header: bool = True) -> str:
    """The cards as the tool prints these columns; 3.x names power otherwise."""
    names = columns.split(",")
    longer = {"power.draw": "gpu.power.draw", "power.limit": "gpu.current.power.limit"}
    rows = [", ".join(card[longer.get(name, name)] for name in names) for card in CARDS]
    return "\n".join([*([", ".join(names)] if header else []), *rows]) + "\n"


def install(folder: Path, answers: Mapping[str, str] | None = None) -> Path:
    """`ixsmi` in `folder`, which answers with CSV where nothing else is said."""
    return programs.install(folder, "ixsmi", {NEW: csv()} if answers is None else answers)
