"""A Python that has a scripted engine installed: the packages that a runner asks about, with our own programs behind them.

The runner's questions run in it for real (package metadata, the engine's platform, its argument parser), and so does the command
that it builds. Only the engine itself is a script.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder that has the package `bench`."""


def engine_python(
    folder: Path,
    distribution: str,
    version: str,
    modules: Mapping[str, str],
    *,
    programs: Mapping[str, str] | None = None,
    beside: Mapping[str, str] | None = None,
) -> str:
    """The path of a Python in `folder` with `distribution` installed: `modules` (dotted name to source), `programs` (name in
    `bin` to the module that it runs), and empty packages `beside` it by version.
    """
    site, programs_at = folder / "site", folder / "bin"
    for name, text in modules.items():
        path = site.joinpath(*name.split(".")).with_suffix(".py")
        for package in [parent for parent in path.parents if site in parent.parents]:
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").touch()
        path.write_text(text)
    for name, its_version in {distribution: version, **(beside or {})}.items():
        metadata = site / f"{name.replace('-', '_')}-{its_version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {its_version}\n")
    programs_at.mkdir(parents=True)
    (folder / "pyvenv.cfg").touch()
    _script(programs_at / "python", f'PYTHONPATH="{site}:{ROOT}" exec "{sys.executable}" "$@"')
    for name, module in (programs or {}).items():
        _script(programs_at / name, f'exec "{programs_at}/python" -m {module} "$@"')
    return str(programs_at / "python")


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
