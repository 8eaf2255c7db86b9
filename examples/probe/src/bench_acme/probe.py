"""Acme boards, read from the files of their driver: power in mW, energy in uJ, memory in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.cards import Card, Quantity
from bench.probes.values import Unavailable, believable_w, number

DRIVER = "acme"
"""Folder of the driver under /sys/class."""


class AcmeProbe(CardProbe):
    """One device a board."""

    name = "acme"
    label = "Acme board"
    fix = "load Acme's driver: sudo modprobe acme"
    seen_fix = fix

    def ways(self) -> Sequence[Way]:
        return (self._by_files,)

    def sign(self) -> str | None:
        folder = self.roots.sysfs / "class" / DRIVER
        return str(folder) if folder.exists() else None

    def _by_files(self) -> Opened:
        folders = sorted((self.roots.sysfs / "class" / DRIVER).glob("board*"))
        return Opened(cards=[_card(folder, index) for index, folder in enumerate(folders)])


def _card(folder: Path, index: int) -> Card:
    power, energy = partial(_number, folder / "power_mw"), partial(_number, folder / "energy_uj")
    return Card(
        index=index,
        unique_id=_text(folder / "serial"),
        name="Acme A1",
        quantities={
            "power_w": Quantity(get=lambda: believable_w(power() / 1e3, None), raw=power, api="power_mw", unit="mW"),
            "energy_j": Quantity(get=lambda: energy() / 1e6, raw=energy, api="energy_uj", unit="uJ"),
            "memory_used_b": Quantity(get=lambda: int(_number(folder / "memory", 0)), api="memory", unit="B"),
            "memory_total_b": Quantity(get=lambda: int(_number(folder / "memory", 1)), api="memory", unit="B"),
        },
        reasons={"temperature_c": "the driver does not tell it"},
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Unavailable(f"{path.name}: {error.strerror}", lasting=False) from error


def _number(path: Path, word: int = 0) -> float:
    words = _text(path).split()
    try:
        return number(int(words[word]))
    except (ValueError, IndexError):
        raise Unavailable(f"{path.name} holds no number", lasting=False) from None
