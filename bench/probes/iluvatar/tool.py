"""Iluvatar GPUs through `ixsmi`: its CSV, else its table.

Sources: outputs of 3.1 to 4.4. Power in watts, or as `power` says where no unit stands there; memory in MiB, temperature in C.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.clock import Clock
from bench.probes import boxes, csv_rows, values
from bench.probes.card_probe import Way
from bench.probes.command import output
from bench.probes.csv_rows import Row, word
from bench.probes.iluvatar import power
from bench.probes.iluvatar.ixml import LIBRARY, corex_folders
from bench.probes.tool import Told, first_form, opened, told, whole_lines
from bench.probes.values import Step, Unavailable

_ALIKE = "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used,utilization.gpu,temperature.gpu"
COLUMNS = (f"{_ALIKE},gpu.power.draw,gpu.current.power.limit,clocks.current.sm", f"{_ALIKE},power.draw,power.limit")
"""What 4.x and 3.x can be asked for."""
FORMS = (*((f"--query-gpu={columns}", "--format=csv") for columns in COLUMNS), ())
_SOURCES = {
    "memory_total_b": ("memory.total", "memory", "MiB"),
    "memory_used_b": ("memory.used", "memory", "MiB"),
    "utilisation": ("utilization.gpu", "share", "%"),
    "temperature_c": ("temperature.gpu", "temperature", "C"),
    "clock_mhz": ("clocks.current.sm", "clock", "MHz"),
}
_POWERS = ("gpu.power.draw", "power.draw")
_LIMITS = ("gpu.current.power.limit", "power.limit")
_DRIVER = re.compile(r"Driver Version:\s*([^\s|]+)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")

Record = Mapping[str, str]
"""Words of the table under the words of its header, which are in lower case."""


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """The tool on the path or in CoreX; None where it is not installed."""
    folders = ":".join(str(folder / "bin") for folder in corex_folders(env))
    path = shutil.which("ixsmi", path=env.get("PATH")) or shutil.which("ixsmi", path=folders)
    if path is None:
        return None
    run = partial(output, env=_with_library(env, Path(path)))
    read = first_form(FORMS, lambda form: parse(run([path, *form]), form[0].partition("=")[2] if form else ""))
    return lambda: opened("ixsmi", read, clock)


def _with_library(env: Mapping[str, str], path: Path) -> dict[str, str]:
    """The tool does not find its own library where nobody has set the loader's path."""
    folders = [path.resolve().parents[1] / below for below in ("lib64", "lib")]
    own = [str(folder) for folder in folders if (folder / LIBRARY).exists()]
    return {**env, "LD_LIBRARY_PATH": ":".join([*own, *filter(None, [env.get("LD_LIBRARY_PATH")])])}


def parse(text: str, asked: str = "") -> list[Told]:
    """Chips of the table, or of a CSV, which has a header or the columns that were `asked` for. Raises: Unavailable."""
    if any(line.startswith("|") for line in whole_lines(text)):
        found = _from_table(text)
    else:
        headed = any("index" in line.lower().replace(" ", "").split(",") for line in whole_lines(text))
        found = [_from_row(row) for row in csv_rows.rows(text if headed else f"{asked}\n{text}", "index") if _is_chip(row)]
    if not found:
        raise Unavailable(f"ixsmi lists no chip: {' '.join(text.split())[:80]!r}", lasting=False)
    return found


def _powers(draw: str | None, limit: str | None) -> dict[str, Step]:
    """Power and limit, where they stand there."""
    steps: dict[str, Step] = {}
    if limit is not None:
        steps["power_limit_w"] = partial(_limit_w, limit)
    if draw is not None:
        steps["power_w"] = partial(_watts, draw, limit)
    return steps


def _limit_w(limit: str) -> float:
    return power.limit_w(float(limit) if _NUMBER.fullmatch(limit) else values.quantity(limit, "power"))


def _watts(draw: str, limit: str | None) -> float:
    if not _NUMBER.fullmatch(draw):
        return values.quantity(draw, "power")
    number = float(limit) if limit and _NUMBER.fullmatch(limit) else None
    milliwatts = power.is_milliwatts([number] if number else [])
    return power.watts(float(draw), milliwatts, power.limit_w(number) if number else None)


# --- CSV ----------------------------------------------------------------------------------------------------------------


def _is_chip(row: Row) -> bool:
    return row["index"].text.isdecimal()


def _from_row(row: Row) -> Told:
    draw, limit = (next((_with_unit(row, name) for name in names if name in row), None) for names in (_POWERS, _LIMITS))
    found, reasons = told({**csv_rows.steps(row, _SOURCES), **_powers(draw, limit)})
    return Told(
        index=int(row["index"].text),
        pci=values.pci_address(word(row, "pci.bus_id")),
        unique_id=word(row, "uuid"),
        name=word(row, "name"),
        driver=word(row, "driver_version"),
        values=found,
        reasons=reasons,
    )


def _with_unit(row: Row, name: str) -> str:
    cell = row[name]
    return f"{cell.text} {cell.unit}" if cell.unit and _NUMBER.fullmatch(cell.text) else cell.text


# --- the table ----------------------------------------------------------------------------------------------------------


def _from_table(text: str) -> list[Told]:
    lines = whole_lines(text)
    driver = next((found[1] for line in lines if (found := _DRIVER.search(line))), None)
    return [_from_record(record, driver) for record in _records(lines)]


def _records(lines: Sequence[str]) -> Iterator[Record]:
    """One for each chip that is there whole: its rows under those of the header."""
    header: list[list[str]] = []
    for block in boxes.blocks("\n".join(lines)):
        if boxes.has(block[0], "process"):
            return
        if boxes.has(block[0], "gpu", "name"):
            header = block
        elif header:
            for start in range(0, len(block) - len(header) + 1, len(header)):
                record = _record(header, block[start : start + len(header)])
                if record.get("gpu", "").isdecimal():
                    yield record


def _record(header: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> Record:
    """The last word of a header's cell takes what is left (a name has several words); a row of other cells is left out."""
    record: dict[str, str] = {}
    for names, row in zip(header, rows, strict=True):
        if len(names) != len(row):
            continue
        for above, cell in zip(names, row, strict=True):
            columns = above.lower().replace("compute m.", "compute-m.").split()
            words = re.sub(r"\s*/\s*", "/", cell.replace("N/A", "NA")).split(maxsplit=len(columns) - 1)
            if len(words) == len(columns):
                record |= dict(zip(columns, words, strict=True))
    return record


def _from_record(record: Record, driver: str | None) -> Told:
    draw, limit = _pair(record, "pwr:usage/cap")
    used, total = _pair(record, "memory-usage")
    texts = {
        "memory_total_b": (total, "memory", "MiB"),
        "memory_used_b": (used, "memory", "MiB"),
        "utilisation": (record.get("gpu-util"), "share", "%"),
        "temperature_c": (record.get("temp"), "temperature", "C"),
        "clock_mhz": (record.get("clock-sm"), "clock", "MHz"),
    }
    steps: dict[str, Step] = {
        name: partial(values.quantity, text, kind, unit) for name, (text, kind, unit) in texts.items() if text is not None
    }
    found, reasons = told({**steps, **_powers(draw, limit)})
    return Told(
        index=int(record["gpu"]),
        pci=values.pci_address(record.get("bus-id")),
        name=values.named(record.get("name")),
        driver=driver,
        values=found,
        reasons=reasons,
    )


def _pair(record: Record, column: str) -> tuple[str | None, str | None]:
    """Both sides of `40W/250W`."""
    words = record.get(column, "").split("/")
    return (words[0], words[1]) if len(words) == 2 else (None, None)
