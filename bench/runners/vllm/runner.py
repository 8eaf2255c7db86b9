"""vLLM: on CUDA, ROCm, CPU, XPU, TPU and on its plugins for Ascend, MetaX, Moore Threads, Cambricon and Gaudi. The platform is
the one that the installed vLLM finds, and a flag is passed only where its own parser has it.
"""

from __future__ import annotations

import math
import os
import re
from functools import partial
from pathlib import Path

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.precision import spelled
from bench.records import Case, LocalModel, ModelShape, Scalar
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.host_platform import host_platform
from bench.runners.launched import LaunchedEngine
from bench.runners.metric_names import VLLM
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.process import stopped_on_error
from bench.runners.served import first_served, version_at
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import Sizing, size_for
from bench.runners.vllm.facts import NAME, Vllm, find_vllm, install_line
from bench.runners.vllm.precision import ask_for, check_word
from bench.runners.vllm.precision import told as precision_told
from bench.runners.vllm.words import WORDS
from bench.runners.weights import safetensors_of

OURS = {
    **dict.fromkeys(("model", "model_tag"), "write 'model'"),
    **dict.fromkeys(
        ("host", "port", "uds", "root_path", "api_key", "served_model_name", "config"), "it is bench's own: leave it out"
    ),
    **dict.fromkeys(("dtype", "quantization"), "write 'precision', as in precision: bf16"),
    "tensor_parallel_size": "write 'tp'",
    "pipeline_parallel_size": "write 'pp'",
    "data_parallel_size": "write 'dp'",
    "enable_expert_parallel": "write 'ep', as many as tp x dp",
    "device": "write 'devices'; the platform is that of the installed vllm",
    "device_ids": "write 'devices'",
}
"""Options that are keys of a case, or that belong to how bench reaches it."""
_KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_GIB = 1 << 30
_UNKNOWN_SHAPE_GIB = 4
_LOG_LINES = 4000
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


class VllmRunner:
    """Serves a folder of safetensors with vLLM on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        check_parallel(self.name, case, ("tp", "pp", "dp", "ep"))
        check_experts(case)
        found = find_vllm(case)
        check_word(case.precision, found.platform)
        found.flags.passed(case.engine_args, OURS)

    def about(self, case: Case) -> str:
        found = find_vllm(case)
        here = host_platform()
        unused = f", though this host has {here}: {install_line(here)}" if found.platform.name == "cpu" and here != "cpu" else ""
        return f"{found.installed.line}, on {found.platform.name}{unused}"

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        found = find_vllm(request.case)
        weights = read_checkpoint(model.path)
        serving = serve(request, HABITS, partial(self.launch_for, request), model.name)
        with stopped_on_error(serving.process):
            return hand_over(
                request, serving, _read_back(found, request, model, weights, serving), prometheus_counters(serving.base_url, VLLM)
            )

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        model = safetensors_of(request)
        return launch_of(find_vllm(request.case), request, model, read_checkpoint(model.path), port)


def check_experts(case: Case) -> None:
    """vLLM spreads experts over all ranks of tp x dp or over none. Raises: UsageError."""
    ranks = case.parallel
    if ranks.ep not in (1, ranks.tp * ranks.dp):
        raise UsageError(
            f"vllm spreads experts over all {ranks.tp * ranks.dp} ranks of tp x dp, and the case asks for ep: {ranks.ep}",
            hint=f"write ep: {ranks.tp * ranks.dp}, or leave it out",
        )


# --- the command ------------------------------------------------------------------------------------------------------


def launch_of(found: Vllm, request: StartRequest, model: LocalModel, weights: Checkpoint, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing (a flag that this version does not have)."""
    case, flags = request.case, found.flags
    precision = ask_for(case.precision, weights, found.platform)
    sizing = size_for(request.cases, {})
    folder = str(Path(model.path).absolute())
    line = [*found.head, *([folder] if found.takes_positional else ["--model", folder])]
    line += [*flags.need("--served-model-name"), model.name, "--host", "127.0.0.1", "--port", str(port)]
    if "max_model_len" not in case.engine_args:
        line += [*flags.need("--max-model-len"), str(sizing.slot_tokens)]
    line += flags.known("--device", found.platform.device_type)  # versions before 0.10 only
    line += ranks_of(found, case)
    line += precision.flags
    line += flags.known("--disable-uvicorn-access-log")
    line += flags.known("--disable-log-requests")  # where they are logged unless told otherwise
    line += flags.passed(case.engine_args, OURS)
    by_number = found.platform.name == "cuda" and flags.find("--device-ids") is None
    env = dict(visible(request, by_number=by_number)) | precision.env | own_env(found, model.shape, sizing, case.precision)
    return Launch(argv=tuple(line), env=env)


def ranks_of(found: Vllm, case: Case) -> list[str]:
    """The flags of its ranks."""
    ranks, flags = case.parallel, found.flags
    line: list[str] = []
    for flag, count in (
        ("--tensor-parallel-size", ranks.tp),
        ("--pipeline-parallel-size", ranks.pp),
        ("--data-parallel-size", ranks.dp),
    ):
        line += [*flags.need(flag), str(count)] if count > 1 else []
    return line + (flags.need("--enable-expert-parallel") if ranks.ep > 1 else [])


def own_env(found: Vllm, shape: ModelShape, sizing: Sizing, precision: str | None) -> dict[str, str]:
    """Variables that decide how it runs: no reports home, and on a CPU the size of its KV cache."""
    env = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if os.environ.get("VLLM_API_KEY"):
        env["VLLM_API_KEY"] = ""  # it would ask us for it
    if found.platform.name == "cpu" and _KV_SPACE not in os.environ:
        env[_KV_SPACE] = str(kv_space_gib(shape, sizing, precision))
    return env


def kv_space_gib(shape: ModelShape, sizing: Sizing, precision: str | None) -> int:
    """Memory for the KV cache on a CPU [GiB]: every request of the largest batch at its full length, and a quarter more. Its
    numbers have 32 bits where the case asks for fp32, else 16.
    """
    if shape.layers is None or shape.kv_heads is None or shape.head_dim is None:
        return _UNKNOWN_SHAPE_GIB
    number_b = 4 if precision is not None and spelled(precision) == "fp32" else 2
    per_token_b = 2 * shape.layers * shape.kv_heads * shape.head_dim * number_b
    return max(1, math.ceil(1.25 * sizing.context_tokens * per_token_b / _GIB))


# --- read back --------------------------------------------------------------------------------------------------------


def _read_back(found: Vllm, request: StartRequest, model: LocalModel, weights: Checkpoint, serving: Serving) -> ReadBack:
    log = serving.process.log_tail(_LOG_LINES)
    model_told = first_served(serving.base_url)
    env: dict[str, Scalar] = {**os.environ, **serving.launch.env}
    return ReadBack(
        version=version_at(serving.base_url + "/version") or found.installed.version,
        build=found.installed.build,
        precision=precision_told(log, request.case.precision, weights, env),
        model=model_told.name if model_told else model.name,
        vocab_size=model.shape.vocab,
        load_s=load_seconds(log),
        settings={
            **found.installed.settings,
            "platform": found.platform.name,
            **(model_told.settings() if model_told else {}),
            **settings_of(log),
            **inherited(("VLLM_",)),
        },
    )


def load_seconds(log: str) -> float | None:
    """How long the weights took to load, as the slowest rank says [s]."""
    found = re.findall(r"Loading weights took ([\d.]+) seconds", log)
    return max(float(text) for text in found) if found else None


_SETTINGS = {
    "dtype": r"\bdtype=(?:torch\.)?(\w+)",
    "quantization": r"\bquantization=([\w-]+)",
    "kv_cache_dtype": r"\bkv_cache_dtype=(\w+)",
    "device": r"\bdevice_config=(\w+)",
    "enforce_eager": r"\benforce_eager=(\w+)",
    "prefix_caching": r"\benable_prefix_caching=(\w+)",
    "chunked_prefill": r"\b(?:enable_chunked_prefill|chunked_prefill_enabled)=(\w+)",
    "max_num_batched_tokens": r"\bmax_num_batched_tokens=(\d+)",
    "attention_backend": r"[Uu]sing (\w+) (?:attention )?backend",
    "kv_cache_tokens": r"KV cache size: ([\d,]+) tokens",
}


def settings_of(log: str) -> dict[str, Scalar]:
    """What vLLM logs of its configuration as it starts; what it does not say is absent."""
    found = {name: match[1] for name, pattern in _SETTINGS.items() if (match := re.search(pattern, log))}
    return {name: _scalar(text) for name, text in found.items() if text != "None"}


def _scalar(text: str) -> Scalar:
    if text in ("True", "False"):
        return text == "True"
    digits = text.replace(",", "")
    return int(digits) if digits.isdigit() else text
