"""What is known of an installed TensorRT-LLM before it is started: where it is, and with which options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bench.records import Case
from bench.runners.containers.place import find_engine
from bench.runners.environment import Environment, Sought
from bench.runners.installed import Installed, installed
from bench.runners.parser import Flags, ask_flags

NAME = "tensorrt-llm"
PROGRAM = "trtllm-serve"
SOUGHT = Sought(engine=NAME, distributions=("tensorrt_llm", "tensorrt-llm"), program=PROGRAM)
_MODULE = "tensorrt_llm.commands.serve"
_BESIDE = ("torch", "transformers", "tensorrt", "flashinfer-python", "nvidia-modelopt", "mpi4py")
INSTALL = (
    "on Linux with an NVIDIA driver: apt-get install libopenmpi-dev, then pip install tensorrt-llm "
    f"(in an environment of its own, named by engine_python or {SOUGHT.variable}); "
    "or the container nvcr.io/nvidia/tensorrt-llm/release"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRTLLM:
    """An installed TensorRT-LLM. `head` begins its command line."""

    environment: Environment
    installed: Installed
    flags: Flags
    head: tuple[str, ...]


def find_tensorrt_llm(case: Case) -> TensorRTLLM:
    """The TensorRT-LLM of `case`. Raises: EngineMissing in plain words, with how to install it."""
    return facts_of(find_engine(SOUGHT, case, install=INSTALL))


@cache
def facts_of(environment: Environment) -> TensorRTLLM:
    """The TensorRT-LLM in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=INSTALL)
    program = environment.program(PROGRAM)
    return TensorRTLLM(
        environment=environment,
        installed=found,
        flags=ask_flags(environment, NAME, found, _MODULE, ("serve",)),
        head=(program, "serve") if program else environment.python("-m", _MODULE, "serve"),
    )
