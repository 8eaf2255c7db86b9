"""Weights in another format, made once for all engines: bf16 safetensors, or a BF16 GGUF, of any GGUF file.

Engines' own libraries do the work, in a Python that has them. Both formats hold the very same numbers.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from bench.errors import MissingError, ModelError
from bench.models.cache import FILES, Cache, disk_error
from bench.models.child import running
from bench.models.entry import Entry, describe
from bench.models.layout import choose
from bench.models.source import Source

Target = Literal["safetensors", "gguf"]
PACKAGES: dict[Target, tuple[str, ...]] = {"safetensors": ("torch", "transformers", "gguf", "accelerate"), "gguf": ("gguf",)}
_SHIMS = Path(__file__).resolve().parent / "shims"
_LACKING = "import importlib.util, sys; print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))"
_ASK_LIMIT_S = 60.0
_BYTES_PER_PARAMETER = 2
_VARIABLE = re.compile(r"BENCH_[A-Z0-9_]+_PYTHON")


def fetch(
    source: Source,
    origin: tuple[Path, Entry],
    cache: Cache,
    *,
    pythons: Sequence[str],
    env: Mapping[str, str],
    note: Callable[[str], None],
) -> Entry:
    """Make what `source` names of `origin` (folder and entry) in the staging folder, with the first of `pythons` that can.

    Raises: ModelError (no single GGUF file, unknown architecture, disk full), MissingError (no Python has the packages).
    """
    assert source.to is not None
    assert source.of is not None
    root, made_of = origin
    if made_of.format != "gguf" or len(made_of.files) != 1:
        kind = "a split GGUF" if made_of.format == "gguf" else made_of.format
        raise ModelError(f"{source.of.text} is {kind}, and only a single GGUF file can be converted", hint="name another source")
    python = able_python(source.to, pythons, env)
    if made_of.shape.parameters:
        cache.need_space(_BYTES_PER_PARAMETER * made_of.shape.parameters, source.text)
    files = cache.staging(source.key) / FILES
    note(f"making bf16 {source.to} of {source.of.text} with {python}")
    try:
        shutil.rmtree(files)  # of a killed try
        files.mkdir()
        _run(source, [python, str(_SHIMS / f"to_{source.to}.py")], root / made_of.main, files, env)
        made = [path.name for path in files.iterdir()]
        entry = describe(files, choose(made, None, source.text), {}, source=source.text, commit=None, licence=made_of.licence)
    except OSError as error:
        raise disk_error(error, "converted weights", files) from error
    if made_of.shape.parameters != entry.shape.parameters:
        raise ModelError(
            f"{source.text} came out with {entry.shape.parameters} weights instead of {made_of.shape.parameters}",
            hint="this model can't be converted by the installed versions: choose weights in the format that the engine reads",
        )
    return replace(entry, made_of=made_of.weights_sha256)


def known_pythons(named: str | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """Pythons that may have an engine's libraries: `named` (a case's `engine_python`), those of the variables, and ours."""
    by_variable = [value for name, value in sorted(env.items()) if value and _VARIABLE.fullmatch(name)]
    return tuple(dict.fromkeys([*([named] if named else []), *by_variable, sys.executable]))


def able_python(to: Target, pythons: Sequence[str], env: Mapping[str, str]) -> str:
    """The first of `pythons` that has the packages. Raises: MissingError that says what each of them lacks."""
    why = []
    for python in pythons:
        lacking = _lacking(python, PACKAGES[to], env)
        if lacking == "":
            return python
        why.append(f"{python} {f'lacks {lacking}' if lacking else 'can not be run'}")
    raise MissingError(
        f"no Python that is known here can make bf16 {to} of a GGUF file: {'; '.join(why)}",
        hint=f"{pythons[0]} -m pip install {' '.join(PACKAGES[to])}; or name a Python that has them with engine_python or, for "
        "example, BENCH_VLLM_PYTHON",
    )


def _lacking(python: str, packages: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The packages that `python` lacks; None where it can't be asked."""
    command = [python, "-c", _LACKING, *packages]
    try:
        done = subprocess.run(command, env=dict(env), cwd="/", capture_output=True, text=True, timeout=_ASK_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ", ".join(done.stdout.split())


def _run(source: Source, command: Sequence[str], weights: Path, target: Path, env: Mapping[str, str]) -> None:
    order = json.dumps({"source": str(weights), "target": str(target)})
    last: deque[str] = deque(maxlen=20)
    with running([*command, order], {**env, "HF_HUB_OFFLINE": "1"}) as child:
        assert child.stdout is not None
        last.extend(line.strip() for line in child.stdout if line.strip())
        status = child.wait()
    if status != 0:
        raise ModelError(
            f"{source.text} can't be made: {last[-1] if last else f'the converter ended with status {status}'}",
            hint="choose weights in the format that the engine reads, or try newer packages in that Python",
        )
