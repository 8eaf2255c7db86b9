"""A made-up machine with two Moore Threads S5000: one idle, one at work."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value
from tests.probes.programs import install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text, roots_env

SAMPLES = Path(__file__).parent / "samples"

GPU_0 = "00000000-0000-4000-8000-0000000000b1"
GPU_1 = "00000000-0000-4000-8000-0000000000b2"
S5000: dict[str, Value] = {
    "driver": "5.1.0-server",
    "*.total": 80 << 30,
    "0.power": 92_420,
    "0.used": 0,
    "0.utilisation": 0,
    "0.temperature": 48,
    "0.clock": 800,
    "1.power": 561_250,
    "1.used": 74_120 << 20,
    "1.utilisation": 97,
    "1.temperature": 66,
    "1.clock": 1750,
}


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake, where the loader looks for it given `LD_LIBRARY_PATH=folder`."""
    return shared_library("mtml.c", folder / "libmtml.so.2", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "mtml-state",
        variable="FAKE_MTML_STATE",
        env_of={"LD_LIBRARY_PATH": str(compiled.parent), "PATH": os.defpath},
    )
    found.show(2, S5000)
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `mthreads:0` and `mthreads:1`."""
    roots = make_roots(folder)
    replace_text(roots.dev / "mtgpu.0", "")
    return {**fake(library(folder / "mtml"), folder).env(), **roots_env(roots)}


def sample(name: str) -> str:
    """A recorded output of `mthreads-gmi`."""
    return recorded(SAMPLES / name)


def tool(folder: Path, *, as_json: str | None = None, outline: str | None = None, table: str | None = None) -> Path:
    """A stand-in for `mthreads-gmi`; None for what it refuses to tell."""
    answers = {"-q --json": as_json, "-q": outline, "": table}
    return install(folder, "mthreads-gmi", {arguments: text for arguments, text in answers.items() if text is not None})
