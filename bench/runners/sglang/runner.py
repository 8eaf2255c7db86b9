"""SGLang: on CUDA, ROCm, Ascend, Gaudi, Moore Threads, XPU and CPU. The platform is the one that the installed SGLang finds, and
a flag is passed only where its own parser has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import Case, LocalModel, Scalar
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.http import Answer, get
from bench.runners.launched import LaunchedEngine
from bench.runners.metric_names import SGLANG
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.process import stopped_on_error
from bench.runners.served import first_served, told
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sglang.facts import MODULE, NAME, Sglang, find_sglang
from bench.runners.sglang.precision import menu
from bench.runners.sglang.precision import told as precision_told
from bench.runners.sglang.words import WORDS
from bench.runners.sizing import size_for
from bench.runners.weights import safetensors_of

_ATTENTION = "enable_dp_attention"
OURS = {
    **dict.fromkeys(("model", "model_path"), "write 'model'"),
    **dict.fromkeys(
        ("host", "port", "fastapi_root_path", "api_key", "admin_api_key", "served_model_name", "config", "enable_metrics"),
        "it is bench's own: leave it out",
    ),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "grpc_mode", "smg_grpc_mode"), "bench speaks plain HTTP"),
    **dict.fromkeys(("dtype", "quantization", "enable_tf32_matmul"), "write 'precision', as in precision: bf16"),
    **dict.fromkeys(("tp_size", "tensor_parallel_size"), "write 'tp'"),
    **dict.fromkeys(("pp_size", "pipeline_parallel_size"), "write 'pp'"),
    **dict.fromkeys(("dp_size", "data_parallel_size"), "write 'dp'"),
    **dict.fromkeys(("attn_dp_size", "attention_data_parallel_size"), f"write 'dp', and {_ATTENTION}: true"),
    **dict.fromkeys(("ep", "ep_size", "expert_parallel_size"), "write 'ep'"),
    **dict.fromkeys(("device", "base_gpu_id", "gpu_id_step"), "write 'devices'; the platform is that of the installed sglang"),
    **dict.fromkeys(("nnodes", "node_rank"), "bench starts engines on one host"),
}
"""Options that are keys of a case, or that belong to how bench reaches it."""
_LOG_LINES = 4000
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


class SglangRunner:
    """Serves a folder of safetensors with SGLang on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        check_parallel(self.name, case, ("tp", "pp", "dp", "ep"))
        spreads_attention(case)
        found = find_sglang(case)
        menu(found).check(case.precision)
        found.flags.passed(_passed_on(case), OURS)

    def about(self, case: Case) -> str:
        found = find_sglang(case)
        return f"{found.installed.line}, on {found.platform}"

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        found = find_sglang(request.case)
        weights = read_checkpoint(model.path)
        serving = serve(request, HABITS, partial(self.launch_for, request), served_name(model))
        with stopped_on_error(serving.process):
            told_back = _read_back(found, request, model, weights, serving)
            return hand_over(request, serving, told_back, prometheus_counters(serving.base_url, SGLANG))

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        model = safetensors_of(request)
        return launch_of(find_sglang(request.case), request, model, read_checkpoint(model.path), port)


def served_name(model: LocalModel) -> str:
    """The model's name for SGLang, which keeps the colon for adapters."""
    return model.name.replace(":", "-")


def spreads_attention(case: Case) -> bool:
    """Whether the ranks of `dp` are groups of attention inside one server, which share its experts, rather than whole copies of
    the model: wherever experts are spread over them, or where the case says `enable_dp_attention`.

    Raises: UsageError where that is no truth value.
    """
    said = case.engine_args.get(_ATTENTION)
    if said is not None and not isinstance(said, bool):
        raise UsageError(f"engine argument {_ATTENTION!r} of sglang is {said!r}, which is not true or false", hint="write true")
    if said is False and case.parallel.dp > 1 and case.parallel.ep > 1:
        raise UsageError(
            f"sglang spreads experts over the ranks of dp only with {_ATTENTION}", hint=f"leave {_ATTENTION} or dp or ep out"
        )
    return case.parallel.dp > 1 and (said is True or case.parallel.ep > 1)


def _passed_on(case: Case) -> dict[str, Scalar]:
    return {name: value for name, value in case.engine_args.items() if name != _ATTENTION}


# --- the command ------------------------------------------------------------------------------------------------------


def launch_of(found: Sglang, request: StartRequest, model: LocalModel, weights: Checkpoint, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing (a flag that this version does not have)."""
    case, flags = request.case, found.flags
    line = [*found.environment.python("-m", MODULE), "--model-path", str(Path(model.path).absolute())]
    line += [*flags.need("--served-model-name"), served_name(model), "--host", "127.0.0.1", "--port", str(port)]
    if "context_length" not in case.engine_args:
        line += [*flags.need("--context-length"), str(size_for(request.cases, {}).slot_tokens)]
    line += flags.need("--enable-metrics")
    line += flags.known("--log-level-http", "warning")  # else a line is written for every request
    line += _ranks(found, case)
    line += menu(found).flags(case.precision, weights)
    line += flags.passed(_passed_on(case), OURS)
    # where ranks exchange sums it reads CUDA_VISIBLE_DEVICES as numbers
    by_number = found.platform == "cuda" and case.parallel.devices > 1
    return Launch(argv=tuple(line), env=dict(visible(request, by_number=by_number)))


def _ranks(found: Sglang, case: Case) -> list[str]:
    """SGLang counts the ranks of attention groups within its `tp`; copies of the model come on top of it."""
    ranks, flags = case.parallel, found.flags
    attention = spreads_attention(case)
    tp = ranks.tp * ranks.dp if attention else ranks.tp
    line: list[str] = []
    for flag, count in (("--tp-size", tp), ("--pp-size", ranks.pp), ("--ep-size", ranks.ep)):
        line += [*flags.need(flag), str(count)] if count > 1 else []
    if attention and flags.find("--attn-dp-size"):
        return [*line, "--attn-dp-size", str(ranks.dp)]
    line += [*flags.need("--dp-size"), str(ranks.dp)] if ranks.dp > 1 else []
    return line + (flags.need("--enable-dp-attention") if attention else [])


# --- read back --------------------------------------------------------------------------------------------------------


def _read_back(found: Sglang, request: StartRequest, model: LocalModel, weights: Checkpoint, serving: Serving) -> ReadBack:
    log = serving.process.log_tail(_LOG_LINES)
    info = server_info(serving.base_url)
    model_told = first_served(serving.base_url)
    return ReadBack(
        version=told(info.get("version")) or found.installed.version,
        build=found.installed.build,
        precision=precision_told(info, log, request.case.precision, weights),
        model=model_told.name if model_told else served_name(model),
        vocab_size=model.shape.vocab,
        load_s=load_seconds(log),
        settings={
            **found.installed.settings,
            "platform": found.platform,
            **(model_told.settings() if model_told else {}),
            **settings_of(info),
            **inherited(("SGLANG_", "SGL_")),
        },
    )


def server_info(base_url: str) -> Mapping[str, Any]:
    """What the server says of its configuration, on its page or, in older versions, on that page's old name."""
    for path in ("/server_info", "/get_server_info"):
        answer = get(base_url + path)
        if isinstance(answer, Answer) and answer.status == 200:
            return answer.json_object()
    return {}


def load_seconds(log: str) -> float | None:
    """How long the weights took to load, as the slowest rank says [s]."""
    found = re.findall(r"Load weight end\..{0,40}?elapsed=([\d.]+) s", log)
    return max(float(text) for text in found) if found else None


_SETTINGS = (
    *("dtype", "quantization", "kv_cache_dtype", "load_format", "device", "context_length", "random_seed"),
    *("tp_size", "pp_size", "dp_size", "attn_dp_size", "ep_size", "enable_dp_attention"),
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend", "sampling_backend", "moe_runner_backend"),
    *("moe_a2a_backend", "speculative_algorithm", "schedule_policy", "page_size", "mem_fraction_static"),
    *("max_running_requests", "max_total_num_tokens", "chunked_prefill_size", "max_prefill_tokens", "stream_interval"),
    *("disable_radix_cache", "disable_cuda_graph", "disable_overlap_schedule", "enable_mixed_chunk", "enable_torch_compile"),
)


def settings_of(info: Mapping[str, Any]) -> dict[str, Scalar]:
    """What of the server's configuration decides how fast it is; what it does not say is absent."""
    return {name: value for name in _SETTINGS if isinstance(value := info.get(name), str | int | float | bool)}
