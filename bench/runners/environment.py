"""Where an engine lives: the Python that has it. Engines clash with each other and with `bench`, so nothing of one is ever
imported here: what must be known is asked of that Python in a short child.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from bench.errors import EngineMissing

ANSWER = "BENCH_ANSWER "
"""Begins the line of a child's output that holds its JSON: engines print what they like around it."""
_SHIMS = Path(__file__).resolve().parent / "shims"
_RUN_TEXT = "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(sys.argv.pop(1), 'shim', 'exec'))"
"""Without the folder where it is started: one that is called like the engine must not be imported."""
_QUOTED_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a short child ended and what it printed. `status` is None where it was stopped at its time limit."""

    status: int | None
    out: str
    err: str

    @property
    def last_words(self) -> str:
        """The last lines of what it complained, on one line."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return " | ".join(lines[-_QUOTED_LINES:])


class Environment(Hashable, Protocol):
    """A place that has the engine: a Python of this host, or a container. Equal ones are the same place: what is asked of one is
    kept for the time of this process.
    """

    @property
    def where(self) -> str:
        """For messages: what it is, and how it was found."""
        ...

    def python(self, *arguments: str) -> tuple[str, ...]:
        """The command line of its Python with `arguments`."""
        ...

    def program(self, name: str) -> str | None:
        """The program `name` that is installed beside its Python; None where there is none."""
        ...

    def ask(self, command: Sequence[str], timeout_s: float) -> Said:
        """Run a short command there. Raises: EngineMissing where it can't be run at all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePython:
    """A Python of this host. Fills `Environment`."""

    path: str
    found_by: str

    @property
    def where(self) -> str:
        return f"{self.path} ({self.found_by})"

    def python(self, *arguments: str) -> tuple[str, ...]:
        return (self.path, *arguments)

    def program(self, name: str) -> str | None:
        beside = Path(self.path).parent / name
        return str(beside) if os.access(beside, os.X_OK) else None

    def ask(self, command: Sequence[str], timeout_s: float) -> Said:
        return run_short(command, timeout_s)


def run_short(command: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> Said:
    """Run `command` for up to `timeout_s` [s]; all that it started ends with it. Raises: EngineMissing (it can't be run)."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    except OSError as error:
        raise EngineMissing(f"{command[0]} can't be run: {error.strerror}", hint="give the path of one that works") from error
    status: int | None = None
    try:
        out, err = child.communicate(timeout=timeout_s)
        status = child.returncode
    except subprocess.TimeoutExpired:
        _end_session(child)
        out, err = child.communicate()
    except BaseException:
        _end_session(child)
        child.wait()
        raise
    return Said(status=status, out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"))


def _end_session(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()


def ask_shim(environment: Environment, shim: str, question: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any] | Said:
    """What the program `shims/<shim>.py` answers to `question` (JSON both ways), run by the engine's Python: an object, or how it
    ended without one. Its text travels on the command line, so that it also runs where our files are not.

    Raises: EngineMissing where that Python can't be run.
    """
    text = (_SHIMS / f"{shim}.py").read_text(encoding="utf-8")
    said = environment.ask(environment.python("-c", _RUN_TEXT, text, json.dumps(question)), timeout_s)
    for line in reversed(said.out.splitlines()):
        if line.startswith(ANSWER):
            found = json.loads(line.removeprefix(ANSWER))
            return found if isinstance(found, dict) else said
    return said


def ask_engine(
    environment: Environment, shim: str, question: Mapping[str, Any], *, what: str, of: str, timeout_s: float, install: str
) -> dict[str, Any]:
    """What the engine in words `what` answers to a shim about its `of` (device, platform), an `error` included.

    Raises: EngineMissing where it gives no answer at all, with `install` as the next step.
    """
    answer = ask_shim(environment, shim, question, timeout_s=timeout_s)
    if isinstance(answer, Said):
        why = f"it gave no answer within {timeout_s:.0f} s" if answer.status is None else answer.last_words
        raise EngineMissing(f"{what} can't be asked for its {of}: {why}", hint=install)
    return answer


# --- finding it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """How an engine is found: `program` is what its package puts on PATH, `distributions` are the names of packages that hold
    it, the usual one first.
    """

    engine: str
    distributions: tuple[str, ...]
    program: str | None = None

    @property
    def variable(self) -> str:
        """The environment variable that names its Python."""
        return f"BENCH_{self.engine.upper().replace('-', '_')}_PYTHON"


def find_python(sought: Sought, named: str | None, *, install: str) -> EnginePython:
    """The engine's Python: the case's `engine_python` (`named`), else the variable, else that of the program on PATH, else our
    own where the package is installed in it.

    Raises: EngineMissing; `install` is then the next step.
    """
    for by, path in (("engine_python", named), (sought.variable, os.environ.get(sought.variable))):
        if path:
            return EnginePython(path=_executable(path, by), found_by=by)
    program = shutil.which(sought.program) if sought.program else None
    beside = _python_of(program) if program else None
    if beside:
        return EnginePython(path=beside, found_by=f"that of {program}")
    if any(_have(distribution) for distribution in sought.distributions):
        return EnginePython(path=sys.executable, found_by="that of bench")
    looked = f", no program {sought.program!r} on PATH" if sought.program else ""
    raise EngineMissing(f"{sought.engine} was not found: no engine_python, no {sought.variable}{looked}", hint=install)


def _executable(path: str, by: str) -> str:
    """An absolute path; symbolic links stay, since a virtual environment's Python is one."""
    found = shutil.which(os.path.expanduser(path))  # noqa: PTH111 - keeps a bare name bare, for PATH
    if found is None:
        raise EngineMissing(f"{by} {path!r} is no program", hint="give the path of a Python, as in /opt/engine/bin/python")
    return str(Path(found).absolute())


def _python_of(program: str) -> str | None:
    """The Python beside a script, with links to it (as pipx and uv make them) followed; else the one in its first line."""
    for script in (Path(program).absolute(), Path(program).resolve()):
        for name in ("python3", "python"):
            if os.access(script.with_name(name), os.X_OK) and script.parent.joinpath("..", "pyvenv.cfg").exists():
                return str(script.with_name(name))
    try:
        with Path(program).open("rb") as file:
            first = file.readline(4096).decode("utf-8", "replace")
    except OSError:
        return None
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    return words[0] if words and "python" in Path(words[0]).name and os.access(words[0], os.X_OK) else None


def _have(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
