"""What a vendor's own command line says of its boards, to hold our numbers against. Nothing here is measured with."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

_DEADLINE_S = 20.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSays:
    """One board in the words of its vendor's tool; None where the tool gives no number."""

    tool: str
    power_w: float | None
    memory_used_b: int | None


def tool_values(probe: str, env: Mapping[str, str] | None = None) -> dict[str, ToolSays]:
    """By uid, for the boards of `probe`; nothing where its tool is not on the path or does not answer."""
    return _nvidia_smi(env) if probe == "nvidia" else {}


def _nvidia_smi(env: Mapping[str, str] | None) -> dict[str, ToolSays]:
    """`power.draw.instant` where the driver knows the field (525 and later), else `power.draw`."""
    tool = shutil.which("nvidia-smi", path=None if env is None else env.get("PATH"))
    if tool is None:
        return {}
    for power in ("power.draw.instant", "power.draw"):
        command = [tool, f"--query-gpu=uuid,{power},memory.used", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False, env=env)
        except (OSError, subprocess.TimeoutExpired):
            return {}
        rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]
        found = {row[0]: _says(f"nvidia-smi {power}", row[1], row[2]) for row in rows if len(row) == 3}
        if done.returncode == 0 and any(says.power_w is not None for says in found.values()):
            return found
    return {}


def _says(tool: str, power: str, memory: str) -> ToolSays:
    mib = _number(memory)
    return ToolSays(tool=tool, power_w=_number(power), memory_used_b=None if mib is None else round(mib * _MIB))


def _number(text: str) -> float | None:
    """`[N/A]`, `[Not Supported]` and `[Unknown Error]` are no numbers."""
    try:
        return float(text)
    except ValueError:
        return None
