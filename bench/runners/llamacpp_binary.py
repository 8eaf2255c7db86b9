"""A `llama-server` program: where it is, which version, which flags it knows."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from bench.errors import EngineMissing
from bench.records import Scalar
from bench.runners.arguments import word
from bench.runners.containers.place import Container
from bench.runners.sizing import Sizing

_ASK_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaServer:
    """A llama-server program. `flags` are those of its own `--help`: they came and went over the years."""

    path: str
    version: str | None
    flags: frozenset[str]
    flash_takes_value: bool

    def command(self, model_path: str, alias: str, port: int, sizing: Sizing, args: Mapping[str, Scalar]) -> tuple[str, ...]:
        """The whole command line. Flags that only some versions have are given only to those."""
        line = [self.path, "--model", model_path, "--alias", alias, "--host", "127.0.0.1", "--port", str(port)]
        line += ["--parallel", str(sizing.slots), "--ctx-size", str(sizing.context_tokens), "--metrics"]
        line += self._known(("--no-ui",), ("--no-webui",))
        line += self._known(("--no-kv-unified",))
        if args.get("prompt_cache") is not True:
            line += self._known(("--no-cache-prompt",))
            line += self._known(("--cache-ram", "0"))
        for name, flag in (("threads", "--threads"), ("n_batch", "--batch-size"), ("n_ubatch", "--ubatch-size")):
            if args.get(name) is not None:
                line += [flag, str(args[name])]
        line += _gpu_layers(args)
        for name, flag in (("cache_type_k", "--cache-type-k"), ("cache_type_v", "--cache-type-v")):
            if (kind := word(args, name)) is not None:
                line += [flag, kind]
        return (*line, *self._flash(word(args, "flash_attn")))

    def prompt_cache_of(self, args: Mapping[str, Scalar]) -> bool | Literal["engine_default"]:
        """Whether prompts reuse the KV cache; versions without `--no-cache-prompt` can't be told not to."""
        if args.get("prompt_cache") is True:
            return True
        return False if "--no-cache-prompt" in self.flags else "engine_default"

    def _known(self, *choices: tuple[str, ...]) -> list[str]:
        return next((list(choice) for choice in choices if choice[0] in self.flags), [])

    def _flash(self, asked: str | None) -> list[str]:
        if asked is None:
            return []
        if self.flash_takes_value:
            return ["--flash-attn", asked]
        return ["--flash-attn"] if asked == "on" else []


def _gpu_layers(args: Mapping[str, Scalar]) -> list[str]:
    layers = args.get("n_gpu_layers")
    # -1 means "as many as fit", which is what the program does by itself
    return [] if layers in (None, -1) else ["--n-gpu-layers", str(layers)]


def find_llama_server(binary: str) -> LlamaServer:
    """The program called `binary`, on PATH or by path. Raises: EngineMissing."""
    path = shutil.which(binary)
    if path is None:
        raise EngineMissing(
            f"no program {binary!r} was found on PATH",
            hint="install llama.cpp, give the program's path, or drop 'binary' and pip install 'tokjoule[llamacpp]'",
        )
    return _known(absolute_program(path), lambda flag: _ask(path, flag))


@cache
def llama_server_in(container: Container, binary: str | None) -> LlamaServer:
    """The llama-server of an image: `binary`, else what the image runs by itself. Raises: EngineMissing."""
    own = container.entrypoint[0] if container.entrypoint and not container.keeps_entrypoint else None

    def ask(flag: str) -> str:
        said = container.ask((program, flag), _ASK_LIMIT_S)
        return said.out + said.err

    program = binary or own or "llama-server"
    return _known(program, ask)


def _known(path: str, ask: Callable[[str], str]) -> LlamaServer:
    usage = ask("--help")
    return LlamaServer(
        path=path,
        version=parse_version(ask("--version")),
        flags=frozenset(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", usage)),
        flash_takes_value=re.search(r"--flash-attn\s+[\[{<]", usage) is not None,
    )


def absolute_program(program: str) -> str:
    """A program that is found the same from any folder; symbolic links stay (a virtual environment's Python is one)."""
    found = shutil.which(program)
    return program if found is None else str(Path(found).absolute())


def parse_version(text: str) -> str | None:
    """`b6729-3b3a9481` from what `llama-server --version` prints; None where it is something else."""
    found = re.search(r"^version:\s*(\S+)(?:\s*\((\w+)\))?", text, re.MULTILINE)
    if found is None:
        return None
    number = f"b{found[1]}" if found[1].isdigit() else found[1]
    return f"{number}-{found[2]}" if found[2] else number


def _ask(path: str, flag: str) -> str:
    command = [path, flag]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineMissing(f"{path} can't be run: {error}", hint="try the program by hand with --version") from error
    return (done.stdout + done.stderr).decode(errors="replace")
