"""A stand-in for `xpu-smi` on the path: answers each of its commands with what a file holds, and refuses the others."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import os, sys
folder = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
name = "query" if words[0].startswith("--query-gpu") else words[0]
if name == "stats":
    name += words[words.index("-d") + 1]
path = os.path.join(folder, name)
if not os.path.exists(path):
    sys.exit("The following argument was not expected: " + words[0])
sys.stdout.write(open(path).read())
"""


def install(folder: Path, **answers: str) -> Path:
    """`xpu-smi` in `folder`, with answers to `query`, `dump`, `discovery`, `stats0` and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / "xpu-smi"
    tool.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    tool.chmod(0o755)
    for name, answer in answers.items():
        (folder / name).write_text(answer, encoding="utf-8")
    return tool
