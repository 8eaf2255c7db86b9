"""What is known of an installed torch before a model is loaded: where it is, which build, on which device it would run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bench.errors import EngineMissing
from bench.records import Case
from bench.runners.containers.place import find_engine
from bench.runners.environment import Environment, Sought, ask_engine
from bench.runners.host_platform import host_platform
from bench.runners.installed import Installed, installed, release_of

NAME = "torch"
SOUGHT = Sought(engine=NAME, distributions=("torch",))
_BESIDE = (
    "transformers",
    "tokenizers",
    "accelerate",
    "torch-npu",
    "torch-mlu",
    "torch-musa",
    "habana-torch-plugin",
    "flash-attn",
    "triton",
)
OLDEST_TRANSFORMERS = (4, 56)
"""The first whose `from_pretrained` takes `dtype`; its KV cache has the layers that the server stacks."""
_LIMIT_S = 180.0
_PLATFORMS = {"npu": "ascend", "mlu": "cambricon", "musa": "mthreads", "hpu": "gaudi", "mps": "metal"}
"""torch's words for devices as the names of platforms; the others are the same."""
_INSTALL = {
    "cuda": "pip install torch transformers accelerate",
    "rocm": "install torch for your ROCm as pytorch.org tells, then pip install transformers accelerate",
    "ascend": "pip install torch torch-npu transformers accelerate (torch-npu of the same version as torch, on CANN)",
    "gaudi": "use Intel's Gaudi container for PyTorch, and pip install transformers there",
    "metax": "use MetaX's container for PyTorch, and pip install transformers there",
    "mthreads": "use Moore Threads' container with torch_musa, and pip install transformers there",
    "cambricon": "use Cambricon's container with torch_mlu, and pip install transformers there",
    "xpu": "pip install torch --index-url https://download.pytorch.org/whl/xpu, then pip install transformers accelerate",
    "metal": "pip install torch transformers",
    "cpu": "pip install torch --index-url https://download.pytorch.org/whl/cpu, then pip install transformers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """An installed torch. `device` is its word for what it runs on by itself, `platform` ours; `imports`: packages that bring the
    device into it.
    """

    environment: Environment
    installed: Installed
    device: str
    platform: str
    build: str | None
    imports: tuple[str, ...] = ()


def install_line(platform: str | None = None) -> str:
    """How torch and transformers are installed for `platform`, that of this host if None."""
    line = _INSTALL.get(platform or host_platform(), _INSTALL["cpu"])
    return f"{line} (in an environment of its own, named by engine_python or {SOUGHT.variable})"


def find_torch(case: Case) -> Torch:
    """The torch of `case`. Raises: EngineMissing in plain words, with how to install or mend it."""
    return facts_of(find_engine(SOUGHT, case, install=install_line()))


@cache
def facts_of(environment: Environment) -> Torch:
    """The torch in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=install_line())
    _check_transformers(environment, found)
    what = f"torch {found.version} in {environment.where}"
    answer = ask_engine(environment, "torch_platform", {}, what=what, of="device", timeout_s=_LIMIT_S, install=install_line())
    if "error" in answer:
        raise EngineMissing(f"{what} can't be imported: {answer['error']}", hint=install_line())
    device = answer["device"]
    return Torch(
        environment=environment,
        installed=found,
        device=device,
        platform="rocm" if device == "cuda" and answer["is_rocm"] else _PLATFORMS.get(device, device),
        build=answer["build"],
        imports=tuple(answer["imports"]),
    )


def _check_transformers(environment: Environment, found: Installed) -> None:
    has = found.beside.get("transformers")
    oldest = ".".join(map(str, OLDEST_TRANSFORMERS))
    hint = f"{' '.join(environment.python('-m', 'pip', 'install'))} 'transformers>={oldest}'"
    if has is None:
        raise EngineMissing(f"transformers is not installed in {environment.where}, and torch alone runs no model", hint=hint)
    if release_of(has) < OLDEST_TRANSFORMERS:
        raise EngineMissing(f"transformers {has} in {environment.where} is too old: bench needs {oldest}", hint=hint)
