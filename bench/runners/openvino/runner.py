"""OpenVINO GenAI: on Intel's CPUs, GPUs and NPUs, and on other CPUs. It is a library, so a server of ours
(`shims/openvino_server.py`) runs its pipeline in its own Python; what runs is read from its log.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import Case, LocalModel, Scalar
from bench.runners.arguments import Argument, check_arguments, whole, word
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.launched import LaunchedEngine
from bench.runners.library import check_one_device, info_at, settings_of
from bench.runners.metric_names import OPENVINO
from bench.runners.openvino.facts import NAME, OpenVINO, device_of, find_openvino
from bench.runners.openvino.precision import Weights, compiled, menu_of, read_weights, told
from bench.runners.openvino.words import WORDS
from bench.runners.parallel import check_parallel
from bench.runners.process import stopped_on_error
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import Sizing, longest, size_for

ARGUMENTS = {
    "cache_gb": Argument(kind="int", low=1, about="size of the KV cache in GB; it grows as it is needed unless given"),
    "device": Argument(kind="text", about="OpenVINO's name for a device: CPU, GPU, GPU.1, NPU"),
    "kv_cache_precision": Argument(
        kind="text", choices=("f32", "f16", "bf16", "u8", "i8", "u4"), about="f32, f16, bf16, u8, ..."
    ),
    "prefill_tokens": Argument(kind="int", low=1, about="tokens that go through the model in one step (max_num_batched_tokens)"),
    "prefix_cache": Argument(kind="bool", about="reuse the KV cache between prompts: off unless true"),
    "slots": Argument(kind="int", low=1, about="requests stepped together (max_num_seqs)"),
    "threads": Argument(kind="int", low=1, about="CPU threads (INFERENCE_NUM_THREADS)"),
}
PREFILL_TOKENS = 256
"""The library's own default, written down so that it stays with the result."""
_PAGED_ONLY = ("cache_gb", "prefill_tokens", "prefix_cache", "slots")
_LOG_LINES = 1000
_SHIM = Path(__file__).resolve().parents[1] / "shims" / "openvino_server.py"
_OWN_VARIABLES = {"OPENVINO_LOG_LEVEL": "3", "OPENVINO_TELEMETRY_DISABLE": "1"}
"""The first makes it tell the properties of the compiled model, once; it says nothing more while it runs."""
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


class OpenVINORunner:
    """Serves a GGUF file, or a folder in OpenVINO's own format, with OpenVINO GenAI on 127.0.0.1."""

    name = NAME
    reads = ("gguf", "openvino")

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, ARGUMENTS)
        check_parallel(self.name, case, (), instead="it runs on one device: leave it out")
        check_one_device(self.name, len(case.devices))
        found = find_openvino(case)
        device = device_of(case, found)
        menu_of(found.computes(device)).check(case.precision)
        if not is_paged(device):
            _check_one_by_one(case)

    def about(self, case: Case) -> str:
        found = find_openvino(case)
        devices = ", ".join(f"{name} ({device.name})" for name, device in found.devices.items())
        return f"{found.installed.line}, with {devices or 'no device'}"

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_one_device(self.name, request.placement.devices or 1)
        model = _weights_of(request)
        found = find_openvino(request.case)
        weights = read_weights(model)
        serving = serve(request, HABITS, partial(self.launch_for, request), model.name)
        with stopped_on_error(serving.process):
            return hand_over(
                request,
                serving,
                _read_back(found, request, model, weights, serving),
                prometheus_counters(serving.base_url, OPENVINO),
            )

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        model = _weights_of(request)
        return launch_of(find_openvino(request.case), request, model, read_weights(model), port)


def is_paged(device: str) -> bool:
    """Whether the library's continuous batching runs there: its NPU plugin has no paged attention."""
    return not device.startswith("NPU")


def _check_one_by_one(case: Case) -> None:
    unknown = sorted(set(case.engine_args) & set(_PAGED_ONLY))
    if unknown:
        raise UsageError(
            f"openvino takes one request after the other on an NPU, so that {', '.join(unknown)} mean nothing there",
            hint="leave them out, or write device: CPU or GPU",
        )


def _weights_of(request: StartRequest) -> LocalModel:
    model = request.model
    if model is None or model.format not in OpenVINORunner.reads:
        kind = "no weights" if model is None else f"{model.format} weights"
        raise UsageError(
            f"openvino reads GGUF files and OpenVINO's own folders, but {request.case.model!r} has {kind}",
            hint="choose a GGUF file of this model, or a folder that `optimum-cli export openvino` wrote",
        )
    return model


# --- the command ------------------------------------------------------------------------------------------------------


def launch_of(found: OpenVINO, request: StartRequest, model: LocalModel, weights: Weights, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing."""
    case, args = request.case, request.case.engine_args
    device = device_of(case, found)
    paged = is_paged(device)
    sizing = size_for(request.cases, args)
    if weights.context is not None and sizing.slot_tokens > weights.context:
        raise UsageError(
            f"the cases need a context of {sizing.slot_tokens} tokens, and {model.name} has {weights.context}",
            hint="shorten input_tokens and output_tokens",
        )
    order = {
        "model": str(Path(model.path).absolute()),
        "name": model.name,
        "port": port,
        "device": device,
        "paged": paged,
        "slots": sizing.slots if paged else 1,
        "context": sizing.slot_tokens if weights.context is None or not paged else weights.context,
        "vocabulary": model.shape.vocab or 0,
        "prefill_tokens": whole(args, "prefill_tokens") or PREFILL_TOKENS,
        "prefix_cache": args.get("prefix_cache") is True,
        "cache_gb": whole(args, "cache_gb") or 0,
        "properties": properties_of(case, found.computes(device), weights) | ({} if paged else _lengths(request, sizing)),
    }
    argv = found.environment.python("-u", str(_SHIM), json.dumps(order))
    return Launch(argv=argv, env={**visible(request), **_OWN_VARIABLES})


def properties_of(case: Case, computes: frozenset[str], weights: Weights) -> dict[str, Any]:
    """Properties of OpenVINO's plugin for the device. Raises: UsageError where the weights are of another format than asked."""
    hint = menu_of(computes).flags(case.precision, weights.checkpoint)
    found: dict[str, Any] = {"INFERENCE_PRECISION_HINT": hint[0]} if hint else {}
    if threads := whole(case.engine_args, "threads"):
        found["INFERENCE_NUM_THREADS"] = threads
    if kept := word(case.engine_args, "kv_cache_precision"):
        found["KV_CACHE_PRECISION"] = kept
    return found


def _lengths(request: StartRequest, sizing: Sizing) -> dict[str, Any]:
    """What an NPU's pipeline is compiled for [tokens]."""
    answer = max(longest(case.output_tokens) for case in request.cases)
    return {"MAX_PROMPT_LEN": sizing.slot_tokens - answer, "MIN_RESPONSE_LEN": answer}


# --- read back --------------------------------------------------------------------------------------------------------


def _read_back(found: OpenVINO, request: StartRequest, model: LocalModel, weights: Weights, serving: Serving) -> ReadBack:
    info, properties = info_at(serving.base_url), compiled(serving.process.log_tail(_LOG_LINES))
    load_s = info.get("load_s")
    device = properties.get("EXECUTION_DEVICES")
    known = found.devices.get(device) if device else None
    settings: dict[str, Scalar | None] = {
        "device_name": known.name if known else None,
        "execution_devices": device,
        "inference_precision": properties.get("INFERENCE_PRECISION_HINT"),
        "kv_cache_dtype": properties.get("KV_CACHE_PRECISION"),
        "threads": _number(properties.get("INFERENCE_NUM_THREADS")),
        "weights": weights.checkpoint.precision,
    }
    return ReadBack(
        version=found.installed.version,
        build=found.build or found.installed.build,
        precision=told(properties, request.case.precision, weights.checkpoint),
        model=model.name,
        vocab_size=model.shape.vocab,
        load_s=load_s if isinstance(load_s, float) else None,
        settings={
            **found.installed.settings,
            **settings_of(info, ("device", "slots", "context", "paged", "prefix_cache", "prefill_tokens")),
            **{name: value for name, value in settings.items() if value is not None},
            **inherited(("OPENVINO_", "OMP_", "TBB_", "ZE_")),
        },
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
