"""Compiles the C fakes of vendor libraries, with the system's compiler or with `ziglang` from PyPI."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


class CannotBuild(RuntimeError):
    """No compiler, or C that does not compile. Never a reason to skip: the fakes are what proves the probes."""


def compiler() -> list[str]:
    """The command of a C compiler. Raises: CannotBuild."""
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CannotBuild("no C compiler for the fake vendor libraries: install gcc or clang, or pip install ziglang")


def shared_library(source: str, out: Path, defines: Sequence[str] = ()) -> Path:
    """Compile `tests/fakes/<source>` into the library `out`. Raises: CannotBuild with the compiler's words."""
    out.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", *(f"-D{name}" for name in defines)]
    command = [*compiler(), *flags, f"-Wl,-soname,{out.name}", "-o", str(out), str(HERE / source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(command)}\n{done.stderr}")
    return out
