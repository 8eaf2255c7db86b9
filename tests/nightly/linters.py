"""Programs that check files of other tools; they come with the development extra."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def linter(name: str) -> str:
    """The program called `name`: beside this Python, else on PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed: pip install -e '.[dev]'"
    return found
