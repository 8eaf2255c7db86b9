"""What is known of an installed OpenVINO GenAI before a model is loaded: where it is, and which devices it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from bench.errors import EngineMissing
from bench.records import Case
from bench.runners.arguments import word
from bench.runners.containers.place import find_engine
from bench.runners.environment import Environment, Sought, ask_engine
from bench.runners.host_platform import host_platform
from bench.runners.installed import Installed, installed

NAME = "openvino"
SOUGHT = Sought(engine=NAME, distributions=("openvino-genai",))
INSTALL = f"pip install openvino-genai (in an environment of its own, named by engine_python or {SOUGHT.variable})"
_BESIDE = ("openvino", "openvino-tokenizers", "numpy")
_DRIVERS = "install Intel's driver for it (compute-runtime for a GPU, linux-npu-driver for an NPU)"
_LIMIT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of OpenVINO's: its full name, and what it computes in (`FP32`, `BF16`, ...)."""

    name: str
    computes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVINO:
    """An installed OpenVINO GenAI, and the devices that it finds by OpenVINO's names (`CPU`, `GPU`, `GPU.1`, `NPU`)."""

    environment: Environment
    installed: Installed
    build: str | None
    devices: Mapping[str, Device]

    def computes(self, device: str) -> frozenset[str]:
        """What one of them computes in: `GPU` is the first of several."""
        return self.devices[device if device in self.devices else f"{device}.0"].computes


def find_openvino(case: Case) -> OpenVINO:
    """The OpenVINO GenAI of `case`. Raises: EngineMissing in plain words, with how to install or mend it."""
    return facts_of(find_engine(SOUGHT, case, install=INSTALL))


@cache
def facts_of(environment: Environment) -> OpenVINO:
    """The OpenVINO GenAI in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=INSTALL)
    what = f"openvino {found.version} in {environment.where}"
    answer = ask_engine(environment, "openvino_platform", {}, what=what, of="devices", timeout_s=_LIMIT_S, install=INSTALL)
    if "error" in answer:
        raise EngineMissing(f"{what} can't be imported: {answer['error']}", hint=INSTALL)
    devices = {name: Device(name=one["name"], computes=frozenset(one["computes"])) for name, one in answer["devices"].items()}
    return OpenVINO(environment=environment, installed=found, build=answer["build"], devices=devices)


def device_of(case: Case, found: OpenVINO) -> str:
    """OpenVINO's name of where `case` runs: what it asks for, else a GPU that is there, else the CPU.

    Raises: EngineMissing where OpenVINO does not find it, or would run on the CPU in the place of a board.
    """
    asked = word(case.engine_args, "device")
    if case.devices == ("cpu",) and asked is None:
        asked = "cpu"
    gpu = next((name for name in sorted(found.devices) if name.startswith("GPU")), None)
    name = asked.upper() if asked else gpu or "CPU"
    what, finds = f"openvino {found.installed.version} in {found.environment.where}", ", ".join(found.devices) or "none"
    if name not in found.devices and f"{name}.0" not in found.devices:
        raise EngineMissing(f"{what} has no {name}: it finds {finds}", hint=_DRIVERS)
    if asked is None and gpu is None and (host_platform() == "xpu" or case.devices):
        board = ", ".join(case.devices) or "this host's GPU"
        raise EngineMissing(f"{what} can't use {board}: it finds {finds}", hint=f"{_DRIVERS}; or write devices: cpu")
    return name
