"""Tells where a program of an engine is: run by the engine's own Python, with the question as JSON.

    python which.py '{"name": "vllm"}'

Standard library only, Python 3.9 and newer. The answer is one line of JSON with `path`: beside that Python, else on PATH, else
null.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path


def main() -> None:
    """Answer the question in the first argument."""
    name = json.loads(sys.argv[1])["name"]
    beside = str(Path(sys.executable).parent / name)
    found = beside if os.access(beside, os.X_OK) else shutil.which(name)
    print("BENCH_ANSWER " + json.dumps({"path": found}))  # noqa: T201 - this is how it answers


main()
