"""An environment with the real GPUStack, made once: `python -m tests.exchange.gpustack_venv`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parents[2] / ".venv-gpustack"
VERSION = "2.3.0"


def gpustack_python() -> Path:
    """The Python of it, installed from PyPI where that has not been done yet."""
    python = VENV / "bin/python"
    marker = VENV / f".gpustack-{VERSION}"
    if not marker.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"gpustack=={VERSION}"], check=True)
        marker.touch()
    return python


if __name__ == "__main__":
    gpustack_python()
