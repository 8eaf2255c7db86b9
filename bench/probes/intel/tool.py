"""Intel GPUs through `xpu-smi`: the queries of 2.x, else what 1.x dumps, else its statistics of each card.

Source: `doc/smi_user_guide.md` and `ial/cmn/metrics` of intel/xpumanager. Power is of the card, but `energy.consumed` of 2.x is
of the GPU alone: it is left out. Kunlun's tool has the same name; it knows none of these commands.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from bench.clock import Clock
from bench.probes import boxes, csv_rows, values
from bench.probes.card_probe import Way
from bench.probes.command import output
from bench.probes.csv_rows import Cell, Row, word
from bench.probes.tool import Told, opened, told, whole_lines
from bench.probes.values import Unavailable, attempt

_QUERY = (
    "index,uuid,name,pci.bus_id,driver_version,power.draw,power.limit,"
    "memory.total,memory.used,utilization.gpu,temperature.gpu,clocks.current.graphics"
)
_QUERY_ARGUMENTS = (f"--query-gpu={_QUERY}", "--format=csv")
_DUMP_ARGUMENTS = ("dump", "-d", "-1", "-m", "0,1,2,3,18", "-n", "1")
_SOURCES_2 = {
    "power_w": ("power.draw", "power", "W"),
    "power_limit_w": ("power.limit", "power", "W"),
    "memory_total_b": ("memory.total", "memory", "MiB"),
    "memory_used_b": ("memory.used", "memory", "MiB"),
    "utilisation": ("utilization.gpu", "share", "%"),
    "temperature_c": ("temperature.gpu", "temperature", "C"),
    "clock_mhz": ("clocks.current.graphics", "clock", "MHz"),
}
_SOURCES_1 = {
    "power_w": ("gpu power", "power", "W"),
    "memory_used_b": ("gpu memory used", "memory", "MiB"),
    "utilisation": ("gpu utilization", "share", "%"),
    "temperature_c": ("gpu core temperature", "temperature", "C"),
    "clock_mhz": ("gpu frequency", "clock", "MHz"),
}
_DEVICE_1 = "deviceid"
_ONE_TILE = re.compile(r"Tile \d+: (\S+)")
_ENERGY_OF_GPU = "xpu-smi counts the energy of the GPU, not of the card"

_Form = Callable[[], list[Told]]


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """`xpu-smi` on the path; None where it is not installed."""
    path = shutil.which("xpu-smi", path=env.get("PATH"))
    return None if path is None else lambda: opened("xpu-smi", _XpuSmi(path, env).read, clock)


class _XpuSmi:
    """The tool, asked in the first of its languages in which it tells some card's power, else the first that it knows."""

    def __init__(self, path: str, env: Mapping[str, str]) -> None:
        self._path = path
        self._env = env
        self._forms: list[_Form] = [self._query, self._dump, self._statistics]
        self._listed: dict[int, Told] | None = None

    def read(self) -> list[Told]:
        best: tuple[_Form, list[Told]] | None = None
        why: str | None = None
        for form in self._forms:
            found, failed, _ = attempt(form)
            why = why or failed
            if failed is None and (best is None or _tells_power(found)):
                best = form, found
            if failed is None and _tells_power(found):
                break
        if best is None:
            raise Unavailable(why or "xpu-smi tells nothing", lasting=False)
        self._forms = [best[0]]
        return best[1]

    def _query(self) -> list[Told]:
        return parse_query(self._run(*_QUERY_ARGUMENTS))

    def _dump(self) -> list[Told]:
        return self._named(parse_dump(self._run(*_DUMP_ARGUMENTS)))

    def _statistics(self) -> list[Told]:
        return self._named([parse_statistics(self._run("stats", "-d", str(index))) for index in sorted(self._discovered())])

    def _named(self, found: list[Told]) -> list[Told]:
        about = self._discovered()
        return [
            replace(one, pci=about[one.index].pci, unique_id=about[one.index].unique_id, name=about[one.index].name)
            if one.index in about
            else one
            for one in found
        ]

    def _discovered(self) -> dict[int, Told]:
        if self._listed is None:
            self._listed = {one.index: one for one in parse_discovery(self._run("discovery", "-j"))}
        return self._listed

    def _run(self, *arguments: str) -> str:
        return output([self._path, *arguments], env=self._env)


def parse_query(text: str) -> list[Told]:
    """Cards of `--query-gpu`. Raises: Unavailable."""
    found = [_card(row, "index", _SOURCES_2) for row in csv_rows.rows(text, "index")]
    return _some([card for card in found if card is not None], text)


def parse_dump(text: str) -> list[Told]:
    """Cards of `dump`: the newest row of each. Raises: Unavailable."""
    found = [_card(row, _DEVICE_1, _SOURCES_1) for row in csv_rows.rows(text, _DEVICE_1)]
    return _some(list({card.index: card for card in found if card is not None}.values()), text)


def parse_statistics(text: str) -> Told:
    """The card of `stats -d N`, whose table has one quantity a row. Raises: Unavailable."""
    row = dict(_statistics(whole_lines(text)))
    index = row.get("device id")
    if index is None or not index.text.isdecimal():
        raise Unavailable(f"xpu-smi's statistics can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    card = _card({**row, _DEVICE_1: index}, _DEVICE_1, _SOURCES_1)
    assert card is not None
    return card


def parse_discovery(text: str) -> list[Told]:
    """Ids, addresses and names of `discovery -j`, which holds a word where there is no card. Raises: Unavailable."""
    try:
        listed = json.loads(text)["device_list"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Unavailable(f"xpu-smi's list of devices can't be read: {' '.join(text.split())[:80]!r}", lasting=False) from None
    if not isinstance(listed, list):
        raise Unavailable(f"xpu-smi lists no device ({listed})", lasting=False)
    return [
        Told(
            index=one["device_id"],
            pci=values.pci_address(one.get("pci_bdf_address")),
            unique_id=values.named(one.get("uuid")),
            name=values.named(one.get("device_name")),
        )
        for one in listed
        if isinstance(one, dict) and type(one.get("device_id")) is int
    ]


def _card(row: Row, index: str, sources: Mapping[str, tuple[str, str, str]]) -> Told | None:
    if not row[index].text.isdecimal():
        return None
    found, reasons = told(csv_rows.steps(row, sources))
    driver = word(row, "driver_version")
    return Told(
        index=int(row[index].text),
        pci=values.pci_address(word(row, "pci.bus_id")),
        unique_id=word(row, "uuid"),
        name=word(row, "name"),
        driver=None if driver is None else f"Level Zero {driver}",
        values=found,
        reasons={"energy_j": _ENERGY_OF_GPU, **reasons},
    )


def _some(cards: list[Told], text: str) -> list[Told]:
    if not cards:
        raise Unavailable(f"xpu-smi lists no card: {' '.join(text.split())[:80]!r}", lasting=False)
    return cards


def _tells_power(cards: list[Told]) -> bool:
    return any("power_w" in card.values for card in cards)


def _statistics(lines: list[str]) -> Iterator[tuple[str, Cell]]:
    """Quantities by name. What is told of one tile is the card's where the card has one, and nobody's where it has several."""
    texts: dict[str, list[str]] = {}
    name = ""
    for cells in (row for block in boxes.blocks("\n".join(lines)) for row in block if len(row) == 2):
        name = cells[0] or name
        texts.setdefault(name, []).extend(filter(None, cells[1:]))
    for name, told_ in texts.items():
        column, unit = csv_rows.column(name)
        tile = _ONE_TILE.fullmatch(told_[0]) if len(told_) == 1 else None
        yield column, Cell(text=tile[1] if tile else " ".join(told_), unit=unit)
