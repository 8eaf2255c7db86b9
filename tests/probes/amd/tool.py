"""A stand-in for `amd-smi` or `rocm-smi` on the path: prints what a file holds, or misbehaves."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """#!{python}
import os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
name = os.path.basename(__file__)
with open(os.path.join(folder, name + ".calls"), "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
kind = "list" if "list" in sys.argv else "metric"
path = os.path.join(folder, name + "." + kind)
if not os.path.exists(path):
    sys.stderr.write("amd-smi: error: unknown command\\n")
    sys.exit(2)
text = open(path).read()
if text.startswith("hang"):
    time.sleep(60)
if text.startswith("fail"):
    sys.stderr.write(text)
    sys.exit(3)
sys.stdout.write(text)
"""


def install(folder: Path, name: str, *, metric: str, listed: str | None = None) -> Path:
    """The tool `name` in `folder`; returns its path. `metric` beginning with `fail` or `hang` does so."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / name
    tool.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    tool.chmod(0o755)
    (folder / f"{name}.metric").write_text(metric, encoding="utf-8")
    if listed is not None:
        (folder / f"{name}.list").write_text(listed, encoding="utf-8")
    return tool
