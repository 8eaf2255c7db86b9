"""Who implements what. Built-ins are a table of strings; entry points are scanned only for a name that is not in it.

Adding an engine or a vendor is one module and one line here; from outside, an entry point in `bench.runners` or `bench.probes`.
Shapes of `bench export` from outside are entry points in `bench.reports`. docs/extending.md shows each.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Any

from bench.errors import UsageError

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

    Raises: UsageError with the nearest known name.
    """
    table = _TABLES.get(group, {})
    spec = table.get(name)
    if spec is not None:
        module, _, attribute = spec.partition(":")
        return getattr(importlib.import_module(module), attribute)
    found = _entry_points(group)
    if name in found:
        return found[name].load()
    known = sorted({*table, *found})
    near = get_close_matches(name, known, n=1)
    kind = group.rpartition(".")[2].removesuffix("s")
    did_you_mean = f" Did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"unknown {kind} {name!r}.{did_you_mean}", hint=f"known: {', '.join(known)}")


def names(group: str) -> tuple[str, ...]:
    """Built-in names and those of installed entry points."""
    return tuple(sorted({*_TABLES.get(group, {}), *_entry_points(group)}))


def _entry_points(group: str) -> dict[str, Any]:
    from importlib.metadata import entry_points  # slow to import: only when a name is not built in

    return {point.name: point for point in entry_points(group=group)}
