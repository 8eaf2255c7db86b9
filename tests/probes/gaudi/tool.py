"""A stand-in for `hl-smi` on the path: a list of columns as CSV, else a table that a file holds, or misbehaviour."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PROGRAM = """#!{python}
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
logs = os.environ.get("HABANA_LOGS", "/nowhere")
with open(os.path.join(folder, "calls"), "a") as calls:
    calls.write(logs + " " + " ".join(sys.argv[1:]) + "\\n")
if not os.path.isdir(logs):
    sys.exit("hl-smi: cannot write logs to " + logs)
with open(os.path.join(folder, "hl-smi.json")) as file:
    told = json.load(file)
if told.get("fail"):
    sys.exit(told["fail"])
if "-Q" not in sys.argv:
    sys.stdout.write(told.get("table", ""))
    sys.exit(0 if "table" in told else 1)
wanted = sys.argv[sys.argv.index("-Q") + 1].split(",")
units = told["units"]
unknown = [name for name in wanted if name not in told["cards"][0]]
if unknown:
    sys.exit("hl-smi: unknown query " + unknown[0])
print(", ".join(name + (" [" + units[name] + "]" if name in units else "") for name in wanted))
for card in told["cards"]:
    print(", ".join(str(card[name]) for name in wanted))
"""
UNITS = {
    "memory.total": "MiB",
    "memory.used": "MiB",
    "power.draw": "W",
    "power.max": "W",
    "temperature.aip": "C",
    "utilization.aip": "%",
}
CARDS: tuple[Mapping[str, object], ...] = (
    {
        "index": 0,
        "module_id": 5,
        "uuid": "01P0-HL0000A0-18-U0V001-22-07-00",
        "bus_id": "0000:21:00.0",
        "name": "HL-325L",
        "driver_version": "1.22.1-97ec1a4",
        "memory.total": "131072 MiB",
        "memory.used": "672 MiB",
        "power.draw": "226 W",
        "power.max": "850 W",
        "temperature.aip": "36 C",
        "utilization.aip": "0 %",
    },
    {
        "index": 1,
        "module_id": 2,
        "uuid": "01P0-HL0000A0-18-U0V002-03-04-04",
        "bus_id": "0000:6a:00.0",
        "name": "HL-325L",
        "driver_version": "1.22.1-97ec1a4",
        "memory.total": "131072 MiB",
        "memory.used": "98304 MiB",
        "power.draw": "640 W",
        "power.max": "850 W",
        "temperature.aip": "61 C",
        "utilization.aip": "87 %",
    },
)
"""The machine of `host.GAUDI_3`."""


def install(folder: Path, cards: Sequence[Mapping[str, object]] = CARDS, **more: str) -> Path:
    """`hl-smi` in `folder`; `table` is what it prints without -Q, `fail` the error that it ends with."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "hl-smi"
    tool.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    tool.chmod(0o755)
    (folder / "hl-smi.json").write_text(json.dumps({"cards": cards, "units": UNITS, **more}), encoding="utf-8")
    return tool
