"""A stand-in for `hy-smi` on the path, and what it prints of the machine of `host.BW1000`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench.probes.hygon.tool import FORMS
from tests.probes import programs

FULL, KNOWN, TABLE = (" ".join(form) for form in FORMS)

CARDS: Mapping[str, Mapping[str, str]] = {
    "card0": {
        "Card Series": "BW1000",
        "Card Vendor": "Chengdu Haiguang IC Design Co., Ltd.",
        "Unique ID": "a000000000000001",
        "PCI Bus": "0000:09:00.0 --> SN: 01-0 --> OAM ID: 1",
        "Average Graphics Package Power (W)": "80.0",
        "Max Graphics Package Power (W)": "1000.0",
        "Temperature (Sensor edge) (C)": "47.0",
        "Temperature (Sensor junction) (C)": "50.0",
        "HCU use (%)": "0.0",
        "vram Total Memory (MiB)": "65520",
        "vram Total Used Memory (MiB)": "2",
        "": "",
    },
    "card1": {
        "Card Series": "BW1000",
        "Card Vendor": "Chengdu Haiguang IC Design Co., Ltd.",
        "Unique ID": "a000000000000002",
        "PCI Bus": "0000:c9:00.0 --> SN: 01-1 --> OAM ID: 2",
        "Average Graphics Package Power (W)": "512.0",
        "Max Graphics Package Power (W)": "1000.0",
        "Temperature (Sensor edge) (C)": "50.0",
        "Temperature (Sensor junction) (C)": "52.0",
        "HCU use (%)": "99.0",
        "vram Total Memory (MiB)": "65520",
        "vram Total Used Memory (MiB)": "59622",
        "": "",
    },
}
JSON = json.dumps(CARDS, indent=4) + "\n"


def install(folder: Path, answers: Mapping[str, str] | None = None) -> Path:
    """`hy-smi` in `folder`, which answers JSON where nothing else is said."""
    return programs.install(folder, "hy-smi", {FULL: JSON} if answers is None else answers)
