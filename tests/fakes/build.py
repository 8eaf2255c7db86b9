"""Compiles the C fakes of vendor libraries, with the system's compiler or `ziglang` from PyPI: each once, kept in `build/`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
MADE = HERE.parent.parent / "build" / "fakes"


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
    """`tests/fakes/<source>` as the library `out`: a file of its own, for the loader knows libraries by their file.

    Raises: CannotBuild with the compiler's words.
    """
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", *(f"-D{name}" for name in defines)]
    command = [*compiler(), *flags, f"-Wl,-soname,{out.name}", str(HERE / source)]
    read = b"".join(path.read_bytes() for path in (HERE / source, *sorted(HERE.glob("*.h"))))
    made = MADE / hashlib.sha256("\0".join(command).encode() + read).hexdigest()[:16]
    if not made.exists():
        _compile(command, made)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made, out)
    return out


def _compile(command: Sequence[str], made: Path) -> None:
    """The file is whole or not there: other processes of the same test run make it, too."""
    made.parent.mkdir(parents=True, exist_ok=True)
    partial = made.with_name(f"{made.name}.{os.getpid()}")
    done = subprocess.run([*command, "-o", str(partial)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(command)}\n{done.stderr}")
    partial.replace(made)
