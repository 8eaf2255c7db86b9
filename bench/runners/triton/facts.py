"""What is known of an installed Triton before it is started: its program, its OpenAI frontend, its version, its backends."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.errors import EngineMissing
from bench.records import Case
from bench.runners.containers.place import find_engine
from bench.runners.environment import EnginePython, Environment, Sought, ask_engine

NAME = "triton"
PROGRAM = "tritonserver"
HOME = "/opt/tritonserver"
"""Where NVIDIA's images have it."""
SOUGHT = Sought(engine=NAME, distributions=("tritonserver",), program=PROGRAM)
INSTALL = (
    "write launch: docker and image: nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3, or run bench in such a container "
    f"(engine_args.home where it is not in {HOME})"
)
_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Triton:
    """An installed Triton. `frontend` is the script of its OpenAI frontend, `has_bindings` whether that can be run, `image` the
    release of NVIDIA's image.
    """

    environment: Environment
    program: str
    frontend: str | None
    has_bindings: bool
    version: str | None
    image: str | None
    backends: tuple[str, ...]

    @property
    def line(self) -> str:
        """All of it in one line, for a person."""
        image = f" (image {self.image})" if self.image else ""
        backends = ", ".join(self.backends) or "none"
        return f"tritonserver {self.version or 'of an unknown version'}{image}, {self.program}, with backends: {backends}"


def find_triton(case: Case) -> Triton:
    """The Triton of `case`. Raises: EngineMissing in plain words, with how to get one."""
    home = str(case.engine_args.get("home") or HOME)
    return facts_of(_environment(case, home), home)


def _environment(case: Case, home: str) -> Environment:
    """Triton's program is none of Python's and tells nothing of where Python is: unless it is said, that is the one on PATH."""
    is_named = case.container is not None or case.engine_python is not None or SOUGHT.variable in os.environ
    python = shutil.which("python3")
    if not is_named and python is not None and (shutil.which(PROGRAM) or Path(home).is_dir()):
        return EnginePython(path=python, found_by="python3 on PATH")
    return find_engine(SOUGHT, case, install=INSTALL)


@cache
def facts_of(environment: Environment, home: str) -> Triton:
    """The Triton in `environment`, asked once in this process. Raises: EngineMissing."""
    what = f"triton in {environment.where}"
    answer = ask_engine(
        environment, "triton_home", {"home": home}, what=what, of="installation", timeout_s=_LIMIT_S, install=INSTALL
    )
    if answer["program"] is None:
        raise EngineMissing(f"{environment.where} has no {PROGRAM}, in {home} or on PATH", hint=INSTALL)
    return Triton(
        environment=environment,
        program=answer["program"],
        frontend=answer["frontend"],
        has_bindings=answer["has_bindings"],
        version=answer["version"],
        image=answer["image"],
        backends=tuple(answer["backends"]),
    )
