"""Biren GPUs through `brsmi`, once a second: the last way.

No output of it has been published. Scripts that use it show how it is asked, that it lists a GPU a line, parted by commas, and
that memory is in MiB. Power is asked for by the name that it has in other vendors' tools, and taken only with its unit.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

from bench.clock import Clock
from bench.probes import csv_rows
from bench.probes.biren.library import UNVERIFIED
from bench.probes.card_probe import Way
from bench.probes.command import output
from bench.probes.csv_rows import Row
from bench.probes.tool import Told, first_form, opened, told
from bench.probes.values import Step, Unavailable

_WITH_POWER = ("gpu", "--query-gpu=index,name,memory.used,memory.free,temperature.gpu,power.draw", "--format=csv")
_KNOWN = ("gpu", "--query-gpu=index,name,memory.used,memory.free", "--format=csv,noheader,nounits")
_HEADER_OF_KNOWN = "index,name,memory.used,memory.free\n"
_REASONS = {
    "energy_j": "brsmi has no energy counter",
    "power_w": f"brsmi tells no power here ({UNVERIFIED})",
}


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """`brsmi` on the path; None where it is not installed."""
    path = shutil.which("brsmi", path=env.get("PATH"))
    if path is None:
        return None

    def read(form: Sequence[str]) -> list[Told]:
        return parse((_HEADER_OF_KNOWN if form == _KNOWN else "") + output([path, *form]))

    return lambda: opened("brsmi", first_form((_WITH_POWER, _KNOWN), read), clock)


def parse(text: str) -> list[Told]:
    """Raises: Unavailable where the text lists no GPU."""
    found = [_told(row) for row in csv_rows.rows(text, "index") if row["index"].text.isdecimal()]
    if not found:
        raise Unavailable(f"brsmi lists no GPU: {' '.join(text.split())[-80:]!r}", lasting=False)
    return found


def _told(row: Row) -> Told:
    found, reasons = told(_steps(row))
    return Told(index=int(row["index"].text), name=csv_rows.word(row, "name"), values=found, reasons={**_REASONS, **reasons})


def _steps(row: Row) -> dict[str, Step]:
    steps = csv_rows.steps(
        row,
        {
            "power_w": ("power.draw", "power", "no unit"),
            "temperature_c": ("temperature.gpu", "temperature", "C"),
            "memory_used_b": ("memory.used", "memory", "MiB"),
            "free_b": ("memory.free", "memory", "MiB"),
        },
    )
    free, used = steps.pop("free_b", None), steps.get("memory_used_b")
    if free is not None and used is not None:
        steps["memory_total_b"] = lambda: used() + free()
    return steps
