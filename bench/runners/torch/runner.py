"""torch: transformers on CUDA, ROCm, Ascend, Cambricon, Moore Threads, Intel, Gaudi, Apple and CPUs. It is a library, so a server
of ours (`shims/torch_server.py`) steps the model in torch's own Python; what it runs is read back from it.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from bench.errors import EngineMissing
from bench.ports import StartRequest
from bench.records import Case, LocalModel
from bench.runners.arguments import Argument, check_arguments, whole, word
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.host_platform import host_platform
from bench.runners.launched import LaunchedEngine
from bench.runners.library import check_one_device, info_at, settings_of
from bench.runners.metric_names import TORCH
from bench.runners.parallel import check_parallel
from bench.runners.process import stopped_on_error
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import size_for
from bench.runners.torch.facts import NAME, Torch, find_torch, install_line
from bench.runners.torch.precision import menu_of, told
from bench.runners.torch.words import WORDS
from bench.runners.weights import safetensors_of

ARGUMENTS = {
    "attention": Argument(kind="text", about="attn_implementation of transformers: sdpa, eager, flash_attention_2, ..."),
    "device": Argument(
        kind="text",
        choices=("cpu", "cuda", "npu", "mlu", "musa", "xpu", "hpu", "mps"),
        about="torch's word for a device: cpu, cuda (ROCm too), npu, mlu, musa, xpu, hpu, mps",
    ),
    "gather_ms": Argument(kind="int", low=0, about="static batches: how long one that is not full is waited for"),
    "prefill_tokens": Argument(kind="int", low=1, about="prompt tokens, padding included, that go through the model at once"),
    "slots": Argument(kind="int", low=1, about="requests stepped together"),
    "threads": Argument(kind="int", low=1, about="CPU threads"),
}
TOLD = ("device", "device_name", "dtype", "attention", "architecture", "threads", "slots", "context", "n_vocab")
"""Settings that the server tells."""
GATHER_MS = 200
PREFILL_TOKENS = 8192
_SHIM = Path(__file__).resolve().parents[1] / "shims" / "torch_server.py"
_OWN_VARIABLES = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


class TorchRunner:
    """Serves a folder of safetensors with transformers on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, ARGUMENTS)
        check_parallel(self.name, case, (), instead="it runs on one device: leave it out", static=True)
        check_one_device(self.name, len(case.devices))
        found = find_torch(case)
        menu_of(device_of(case, found), found.platform).check(case.precision)

    def about(self, case: Case) -> str:
        found = find_torch(case)
        return f"{found.installed.line}, on {found.platform}"

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_one_device(self.name, request.placement.devices or 1)
        model = safetensors_of(request)
        found = find_torch(request.case)
        weights = read_checkpoint(model.path)
        serving = serve(request, HABITS, partial(self.launch_for, request), model.name)
        with stopped_on_error(serving.process):
            return hand_over(
                request,
                serving,
                _read_back(found, request, model, weights, serving),
                prometheus_counters(serving.base_url, TORCH),
            )

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        model = safetensors_of(request)
        return launch_of(find_torch(request.case), request, model, read_checkpoint(model.path), port)


def device_of(case: Case, found: Torch) -> str:
    """torch's word for where `case` runs. Raises: EngineMissing where this torch can't use the accelerator that is here, and
    nobody asked for the CPU.
    """
    asked, here = word(case.engine_args, "device"), host_platform()
    if asked == "cpu" or case.devices == ("cpu",):
        return "cpu"
    if asked not in (None, found.device):
        raise EngineMissing(
            f"torch {found.installed.version} in {found.environment.where} has no {asked}: it finds {found.device}",
            hint=install_line(),
        )
    if found.device == "cpu" and (here != "cpu" or case.devices):
        what = f"this host's {here}" if here != "cpu" else ", ".join(case.devices)
        raise EngineMissing(
            f"torch {found.installed.version} in {found.environment.where} can't use {what}: it finds no device but the CPU",
            hint=f"{install_line()}; or write devices: cpu",
        )
    return found.device


def launch_of(found: Torch, request: StartRequest, model: LocalModel, weights: Checkpoint, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing."""
    case, args = request.case, request.case.engine_args
    sizing = size_for(request.cases, args)
    device = device_of(case, found)
    order = {
        "model": str(Path(model.path).absolute()),
        "name": model.name,
        "port": port,
        "device": device,
        "imports": found.imports,
        "precision": next(iter(menu_of(device, found.platform).flags(case.precision, weights)), None),
        "attention": word(args, "attention"),
        "threads": whole(args, "threads"),
        "slots": sizing.slots,
        "context": sizing.slot_tokens,
        "prefill_tokens": whole(args, "prefill_tokens") or PREFILL_TOKENS,
        "static": case.batching == "static",
        "gather_ms": GATHER_MS if args.get("gather_ms") is None else whole(args, "gather_ms"),
    }
    argv = found.environment.python("-u", str(_SHIM), json.dumps(order))
    return Launch(argv=argv, env={**visible(request), **_OWN_VARIABLES})


def _read_back(found: Torch, request: StartRequest, model: LocalModel, weights: Checkpoint, serving: Serving) -> ReadBack:
    info = info_at(serving.base_url)
    load_s = info.get("load_s")
    return ReadBack(
        version=info.get("torch") or found.installed.version,
        build=found.build or found.installed.build,
        precision=told(info, request.case.precision, weights),
        model=model.name,
        vocab_size=info.get("n_vocab"),
        load_s=load_s if isinstance(load_s, float) else None,
        settings={
            "platform": found.platform,
            "batching": request.case.batching,
            **{f"package.{name}": version for name, version in found.installed.beside.items()},
            **settings_of(info, TOLD),
            **inherited(("PYTORCH_", "OMP_", "MKL_", "TORCH_")),
        },
    )
