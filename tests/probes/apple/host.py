"""A made-up Mac with an M4: its tools on a path of its own, and a stand-in for the binding."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.probes.recorded import recorded
from tests.probes.trees import replace_text

SAMPLES = Path(__file__).parent / "samples"
BINDING = Path(__file__).parents[2] / "fakes/apple"
MEMORY_B = 17_179_869_184
SYSCTL = f"machdep.cpu.brand_string: Apple M4\nhw.memsize: {MEMORY_B}\nkern.osproductversion: 26.1\n"
COUNTERS = {
    "cpu_total_mj": 900_000,
    "gpu_mj": 5_807_000,
    "gpu_sram_mj": 1_000,
    "ane_mj": 3_000,
    "dram_mj": 7_000,
    "cpu_w": 4,
    "gpu_w": 12.5,
    "ane_w": 0.5,
}
_PROGRAM = """#!{python}
import os, pathlib, sys
folder, name = pathlib.Path(__file__).parent, pathlib.Path(__file__).name
if name == "sudo":
    if not (folder / "sudo.open").exists():
        sys.exit("sudo: a password is required")
    os.execv(str(folder / sys.argv[2]), sys.argv[2:])
with (folder / "calls").open("a") as calls:
    calls.write(" ".join([name, *sys.argv[1:]]) + "\\n")
path = folder / (name + ".out")
if not path.exists():
    sys.exit(name + ": no such service")
sys.stdout.write(path.read_text(encoding="utf-8"))
"""


@dataclass(slots=True)
class Mac:
    """A folder of tools and the binding's state; `env` leads a probe to it."""

    folder: Path
    counters: dict[str, Any] = field(default_factory=lambda: dict(COUNTERS))

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def install(self, name: str, prints: str | None = None) -> None:
        """A tool that prints this; None: one that fails."""
        self.bin.mkdir(parents=True, exist_ok=True)
        tool = self.bin / name
        tool.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
        tool.chmod(0o755)
        if prints is not None:
            replace_text(self.bin / f"{name}.out", prints)

    def count(self, **changes: Any) -> None:
        """Change the binding's counters; None removes one."""
        self.counters = {key: value for key, value in {**self.counters, **changes}.items() if value is not None}
        replace_text(self.state, json.dumps(self.counters))

    @property
    def state(self) -> Path:
        return self.folder / "apple-state"

    def env(self) -> dict[str, str]:
        """For the probe's process, without the binding's place."""
        return {"BENCH_PLATFORM": "darwin-arm64", "PATH": f"{self.bin}:{os.defpath}", "FAKE_APPLE_STATE": str(self.state)}


def mac(folder: Path) -> Mac:
    """What every Mac has: `sysctl` and `ioreg`."""
    found = Mac(folder=folder)
    found.install("sysctl", SYSCTL)
    found.install("ioreg", recorded(SAMPLES / "ioreg_ioaccelerator.txt"))
    found.count()
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `apple:0`, its GPU."""
    return {**mac(folder).env(), "PYTHONPATH": str(BINDING), "BENCH_PROBES": "apple"}
