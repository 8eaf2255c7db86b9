"""A stand-in for `efsmi` on the path, by its forms."""

from __future__ import annotations

import os
from pathlib import Path

from tests.probes import programs

CALLS = "efsmi.calls"
"""Lists the arguments of each run."""
_FORMS = {"query": "-q", "table": "", "monitor": "dmon -c 1"}


def install(folder: Path, **answers: str) -> Path:
    """The tool in `folder`: what it prints for its `query`, `table` and `monitor`. It fails with any other."""
    return programs.install(folder, "efsmi", {_FORMS[form]: text for form, text in answers.items()})


def path(folder: Path) -> str:
    """`PATH` with the tool of this folder first."""
    return os.pathsep.join((str(folder), os.defpath))
