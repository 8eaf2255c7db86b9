"""Made-up machines with Iluvatar GPUs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

UIDS = ("GPU-75401a56-0000-5257-8e2c-000000000001", "GPU-75401a56-0000-5257-8e2c-000000000002")
IDLE, BUSY = UIDS

MR_V100: dict[str, Value] = {
    "driver": "4.4.0",
    "*.name": "Iluvatar MR-V100",
    "*.vbios": "2.0.17",
    "*.limit": 150,
    "*.board": 0x1400,
    "*.total": 32_768 << 20,
    "0.uuid": IDLE,
    "0.bus_id": "00000000:15:00.0",
    "0.power": 57,
    "0.used": 116 << 20,
    "0.gpu": 0,
    "0.temp": 36,
    "0.clock": 500,
    "1.uuid": BUSY,
    "1.bus_id": "00000000:98:00.0",
    "1.power": 131,
    "1.used": 27_996 << 20,
    "1.gpu": 97,
    "1.temp": 61,
    "1.clock": 1500,
}
"""Two cards of one chip each, one idle and one at work, in a release that counts power in W."""

BI_V150: dict[str, Value] = {
    "driver": "4.1.0",
    "*.name": "Iluvatar BI-V150",
    "*.total": 32_768 << 20,
    "*.used": 116 << 20,
    "*.gpu": 0,
    "*.temp": 32,
    "*.clock": 1500,
    "0.bus_id": "00000000:13:00.0",
    "1.bus_id": "00000000:16:00.0",
    "1.power": 93,
    "1.limit": 350,
    "2.bus_id": "00000000:1C:00.0",
    "3.bus_id": "00000000:1F:00.0",
    "3.power": 94,
    "3.limit": 350,
}
"""Two cards of two chips, as `ixsmi_bi_v150_dual_chip_na.txt` shows them: the even chips tell neither power nor limit."""

ON_BOARDS: dict[str, Value] = {
    "0.board": 0x1300,
    "0.position": 0,
    "0.board_power": 93,
    "1.board": 0x1300,
    "1.position": 1,
    "1.board_power": 93,
    "2.board": 0x1C00,
    "2.position": 0,
    "2.board_power": 94,
    "3.board": 0x1C00,
    "3.position": 1,
    "3.board_power": 94,
}
"""What a release with the vendor's own calls tells of them besides."""


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake, where CoreX under `folder` has it. It keeps a name of its own, so that only its path leads to it."""
    compiled = shared_library("ixml.c", folder / "lib64/libixml.so.1", defines)
    link = folder / "lib64/libixml.so"
    link.symlink_to(compiled.name)
    return link


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing two MR-V100."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "ixml-state",
        variable="FAKE_IXML_STATE",
        env_of={"COREX_HOME": str(compiled.parents[1]), "PATH": os.defpath},
    )
    found.show(2, MR_V100)
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows two MR-V100 to a process: `iluvatar:0` and `iluvatar:1`."""
    return {**fake(library(folder / "corex"), folder).env(), "BENCH_PROBES": "iluvatar"}
