"""What is known of an installed LMDeploy before it is started: where it is, for which kind of device, with which flags."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bench.records import Case
from bench.runners.containers.place import find_engine
from bench.runners.environment import Environment, Sought
from bench.runners.host_platform import host_platform
from bench.runners.installed import Installed, installed
from bench.runners.parser import Flags, ask_flags

NAME = "lmdeploy"
SOUGHT = Sought(engine=NAME, distributions=("lmdeploy",), program="lmdeploy")
COMMAND = ("serve", "api_server")
_PLUGINS = {"dlinfer-ascend": "ascend", "dlinfer-maca": "maca", "dlinfer-camb": "camb"}
"""Packages that bring its kernels for a device, with LMDeploy's own word for that."""
_BY_DRIVER = {"ascend": "ascend", "metax": "maca", "cambricon": "camb"}
_BESIDE = ("torch", "transformers", "triton", *_PLUGINS, "dlinfer", "torch-npu", "ray", "deep-ep", "deep-gemm")
_INSTALL = {
    "ascend": "pip install lmdeploy dlinfer-ascend",
    "metax": "use MetaX's container of LMDeploy and dlinfer",
    "cambricon": "use Cambricon's container of LMDeploy and dlinfer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LMDeploy:
    """An installed LMDeploy; `device` is the value of `--device`: cuda, ascend, maca or camb."""

    environment: Environment
    installed: Installed
    device: str
    flags: Flags


def install_line(platform: str | None = None) -> str:
    """How LMDeploy is installed for `platform`, that of this host if None."""
    line = _INSTALL.get(platform or host_platform(), "pip install lmdeploy; it runs on CUDA, Ascend, MetaX and Cambricon")
    return f"{line} (in an environment of its own, named by engine_python or {SOUGHT.variable})"


def find_lmdeploy(case: Case) -> LMDeploy:
    """The LMDeploy of `case`. Raises: EngineMissing in plain words, with how to install it."""
    return facts_of(find_engine(SOUGHT, case, install=install_line()))


@cache
def facts_of(environment: Environment) -> LMDeploy:
    """The LMDeploy in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=install_line())
    plugin = next((device for name, device in _PLUGINS.items() if name in found.beside), None)
    return LMDeploy(
        environment=environment,
        installed=found,
        device=plugin or _BY_DRIVER.get(host_platform(), "cuda"),
        flags=ask_flags(environment, NAME, found, NAME, COMMAND),
    )
