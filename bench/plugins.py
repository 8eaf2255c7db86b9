"""Who implements what. Built-ins are a table of strings; entry points are scanned only for a name that is not in it.

Adding an engine or a vendor is one module and one line here; from outside, an entry point in `bench.runners` or `bench.probes`.
Shapes of `bench export` from outside are entry points in `bench.reports`. docs/extending.md shows each.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from bench.errors import MissingError, UsageError
from bench.printable import printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

RUNNERS = {
    "llamacpp": "bench.runners.llamacpp:LlamaCppRunner",
    "vllm": "bench.runners.vllm.runner:VllmRunner",
    "sglang": "bench.runners.sglang.runner:SglangRunner",
    "lmdeploy": "bench.runners.lmdeploy.runner:LMDeployRunner",
    "tensorrt-llm": "bench.runners.tensorrt_llm.runner:TensorRTLLMRunner",
    "triton": "bench.runners.triton.runner:TritonRunner",
    "mindie": "bench.runners.mindie.runner:MindIERunner",
    "mlx": "bench.runners.mlx:MlxRunner",
    "torch": "bench.runners.torch.runner:TorchRunner",
    "openvino": "bench.runners.openvino.runner:OpenVINORunner",
    "openai": "bench.runners.openai:OpenAIRunner",
    "mock": "bench.runners.mock:MockRunner",
}
PROBES = {
    "amd": "bench.probes.amd.probe:AmdProbe",
    "apple": "bench.probes.apple.probe:AppleProbe",
    "ascend": "bench.probes.ascend.probe:AscendProbe",
    "biren": "bench.probes.biren.probe:BirenProbe",
    "cambricon": "bench.probes.cambricon.probe:CambriconProbe",
    "cpu": "bench.probes.cpu:CpuProbe",
    "enflame": "bench.probes.enflame.probe:EnflameProbe",
    "external": "bench.probes.external:ExternalProbe",
    "gaudi": "bench.probes.gaudi.probe:GaudiProbe",
    "hygon": "bench.probes.hygon.probe:HygonProbe",
    "iluvatar": "bench.probes.iluvatar.probe:IluvatarProbe",
    "intel": "bench.probes.intel.probe:IntelProbe",
    "metax": "bench.probes.metax.probe:MetaxProbe",
    "mthreads": "bench.probes.mthreads.probe:MthreadsProbe",
    "node": "bench.probes.node:NodeProbe",
    "nvidia": "bench.probes.nvidia.probe:NvidiaProbe",
    "replay": "bench.probes.replay:ReplayProbe",
    "sim": "bench.probes.sim:SimProbe",
    "tpu": "bench.probes.tpu.probe:TpuProbe",
}
_TABLES = {"bench.runners": RUNNERS, "bench.probes": PROBES}


def load(group: str, name: str) -> Any:
    """The object called `name` in `group` (`bench.runners`, `bench.probes`, `bench.reports`).

    Raises: UsageError with the nearest known name; MissingError where an installed package has not what it names.
    """
    table = _TABLES.get(group, {})
    spec = table.get(name)
    if spec is not None:
        module, _, attribute = spec.partition(":")
        return getattr(importlib.import_module(module), attribute)
    found = _entry_points(group)
    if name in found:
        return _loaded(found[name])
    known = sorted({*table, *found})
    near = get_close_matches(name, known, n=1)
    kind = group.rpartition(".")[2].removesuffix("s")
    did_you_mean = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"unknown {kind} {name!r}.{did_you_mean}", hint=f"known: {', '.join(known)}")


def _loaded(point: EntryPoint) -> Any:
    """What an entry point names. Raises: MissingError where its package can't be imported, whatever it stumbles over, or has no
    such thing to call.
    """
    try:
        found = point.load()
    except Exception as error:
        raise _unusable(point, str(error) or type(error).__name__) from error
    if not callable(found):
        raise _unusable(point, f"{type(found).__name__} can't be called")
    return found


def _unusable(point: EntryPoint, why: str) -> MissingError:
    package = point.dist.name if point.dist is not None else point.value.partition(".")[0]
    what = printable(f"{point.name!r} ({point.group}, {point.value}) can't be loaded: {why}")
    return MissingError(what, hint=f"mend or remove its package: pip show {package}")


def names(group: str) -> tuple[str, ...]:
    """Built-in names and those of installed entry points."""
    return tuple(sorted({*_TABLES.get(group, {}), *_entry_points(group)}))


def _entry_points(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to import: only when a name is not built in

    return {point.name: point for point in entry_points(group=group)}
