"""What the machine is, without saying whose."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from bench.identity import digest
from bench.records import HostInfo


def host_info(board_uids: Iterable[str]) -> HostInfo:
    """This host. `host_id` hashes the machine id with the boards in it: the same box with other cards is another host."""
    return HostInfo(
        host_id=digest(["host", _machine_id(), sorted(board_uids)]),
        system=platform.system(),
        release=platform.release(),
        machine=platform.machine(),
        cpu_model=_cpu_model(),
        cpu_count=psutil.cpu_count() or 1,
        memory_b=psutil.virtual_memory().total,
        python=platform.python_version(),
    )


def _machine_id() -> str:
    for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text:
            return text
    if sys.platform == "darwin":
        found = re.search(r'"IOPlatformUUID" = "([^"]+)"', _output("ioreg", "-rd1", "-c", "IOPlatformExpertDevice"))
        if found:
            return found[1]
    return platform.node()


def _cpu_model() -> str | None:
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string").strip() or None
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else None


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
