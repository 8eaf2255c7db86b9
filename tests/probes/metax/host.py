"""A made-up machine with two MetaX C500: one idle, one at work."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value
from tests.probes.programs import install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text, roots_env

SAMPLES = Path(__file__).parent / "samples"

GPU_0 = "GPU-00000000-0000-4000-8000-0000000000a1"
GPU_1 = "GPU-00000000-0000-4000-8000-0000000000a2"
C500: dict[str, Value] = {
    "driver": "3.8.30",
    "bios": "1.33.5.0",
    "*.limit": 350_000,
    "*.total": 67_108_864,
    "0.power": "18075 15652 14190",
    "0.volts": "12050 12040 3300",
    "0.used": 878_592,
    "0.hotspot": 3900,
    "0.usage": 0,
    "0.clock": 500,
    "0.throttle": 0x1,
    "1.power": "120000 100250 92250",
    "1.used": 60_817_408,
    "1.hotspot": 6125,
    "1.usage": 97,
    "1.clock": 1500,
    "1.throttle": 0x4,
}


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake, where `MACA_PATH=folder` leads."""
    return shared_library("mxsml.c", folder / "lib/libmxsml.so", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "mxsml-state",
        variable="FAKE_MXSML_STATE",
        env_of={"MACA_PATH": str(compiled.parent.parent), "PATH": os.defpath},
    )
    found.show(2, C500)
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `metax:0` and `metax:1`."""
    roots = make_roots(folder)
    replace_text(roots.dev / "mxcd", "")
    return {**fake(library(folder / "maca"), folder).env(), **roots_env(roots)}


def sample(name: str) -> str:
    """A recorded output of `mx-smi`."""
    return recorded(SAMPLES / name)


def tool(folder: Path, table: str, listed: str | None = None, exact: str | None = None) -> Path:
    """A stand-in for `mx-smi`; None for what it refuses to tell."""
    answers = {"": table, "-L": listed, "--show-board-power --show-temperature": exact}
    return install(folder, "mx-smi", {arguments: text for arguments, text in answers.items() if text is not None})
