"""What is known of an installed SGLang before it is started: where it is, on which platform, with which flags."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bench.errors import EngineMissing
from bench.records import Case
from bench.runners.containers.place import find_engine
from bench.runners.environment import Environment, Sought, ask_engine
from bench.runners.host_platform import host_platform
from bench.runners.installed import Installed, installed
from bench.runners.parser import Flags, ask_flags

NAME = "sglang"
SOUGHT = Sought(engine=NAME, distributions=("sglang",), program="sglang")
MODULE = "sglang.launch_server"
_BESIDE = (
    "torch",
    "transformers",
    "sglang-kernel",
    "sgl-kernel",
    "flashinfer-python",
    "triton",
    "aiter",
    "torch-npu",
    "sgl-kernel-npu",
)
_LIMIT_S = 180.0
_PLATFORMS = {"npu": "ascend", "hpu": "gaudi", "musa": "mthreads", "mps": "metal"}
"""Where torch's word for a device is not the platform's."""
_INSTALL = {
    "cuda": "pip install sglang",
    "rocm": "use the container lmsysorg/sglang with a rocm tag",
    "ascend": "use the container quay.io/ascend/sglang",
    "cpu": "build SGLang for the CPU as its documentation says, and set SGLANG_USE_CPU_ENGINE=1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sglang:
    """An installed SGLang; `platform` is cuda, rocm, xpu, ascend, gaudi, mthreads, metal or cpu."""

    environment: Environment
    installed: Installed
    platform: str
    flags: Flags


def install_line(platform: str | None = None) -> str:
    """How SGLang is installed for `platform`, that of this host if None."""
    here = platform or host_platform()
    line = _INSTALL.get(here, f"SGLang's documentation says how it is installed for {here}")
    return f"{line} (in an environment of its own, named by engine_python or {SOUGHT.variable})"


def find_sglang(case: Case) -> Sglang:
    """The SGLang of `case`. Raises: EngineMissing in plain words, with how to install it."""
    return facts_of(find_engine(SOUGHT, case, install=install_line()))


@cache
def facts_of(environment: Environment) -> Sglang:
    """The SGLang in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=install_line())
    return Sglang(
        environment=environment,
        installed=found,
        platform=_ask_platform(environment, found),
        flags=ask_flags(environment, NAME, found, MODULE),
    )


def _ask_platform(environment: Environment, found: Installed) -> str:
    what = f"sglang {found.version} in {environment.where}"
    answer = ask_engine(environment, "sglang_device", {}, what=what, of="device", timeout_s=_LIMIT_S, install=install_line())
    if "No accelerator" in answer.get("error", ""):
        raise EngineMissing(
            f"{what} finds no device that its build can use",
            hint=f"check the driver with `bench doctor`; on a CPU set SGLANG_USE_CPU_ENGINE=1; else: {install_line()}",
        )
    if "error" in answer:
        raise EngineMissing(f"{what} can't be imported: {answer['error']}", hint=install_line())
    device = str(answer["device"])
    return "rocm" if device == "cuda" and answer["hip"] else _PLATFORMS.get(device, device)
