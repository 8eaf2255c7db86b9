"""Stand-ins for vendors' command-line tools: programs on the path that print what files hold for their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_PROGRAM = """#!/bin/sh
cd "$(dirname "$0")" || exit 9
echo "$*" >> "{name}.calls"
told="{name}.$(echo "$*" | tr ' /' '__')"
[ -f "$told.fail" ] && {{ cat "$told.fail"; exit 3; }}
[ -f "$told" ] || {{ echo "{name}: unknown argument $*" >&2; exit 2; }}
cat "$told"
"""


def install(folder: Path, name: str, answers: Mapping[str, str], failures: Mapping[str, str] | None = None) -> Path:
    """The program `name` in `folder`, which prints `answers` by its arguments (`info -t common`), or `failures` and exits with 3.

    `name.calls` beside it lists the arguments of each run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(_PROGRAM.format(name=name), encoding="utf-8")
    program.chmod(0o755)
    for told, ending in ((answers, ""), (failures or {}, ".fail")):
        for arguments, text in told.items():
            words = arguments.replace(" ", "_").replace("/", "_")
            (folder / f"{name}.{words}{ending}").write_text(text, encoding="utf-8")
    return program
