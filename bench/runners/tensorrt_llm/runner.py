"""TensorRT-LLM through `trtllm-serve`, on NVIDIA boards."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import yaml

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import Case, LocalModel, Scalar
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.launched import LaunchedEngine
from bench.runners.metric_names import TENSORRT_LLM
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.process import stopped_on_error
from bench.runners.served import first_served, version_at
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import size_for
from bench.runners.tensorrt_llm.facts import NAME, TensorRTLLM, find_tensorrt_llm
from bench.runners.tensorrt_llm.options import FILES, MENU, options_of
from bench.runners.tensorrt_llm.options import told as precision_told
from bench.runners.tensorrt_llm.words import WORDS
from bench.runners.weights import safetensors_of

OURS = {
    **dict.fromkeys(("host", "port", "served_model_name"), "it is bench's own: leave it out"),
    **dict.fromkeys(("tp", "tp_size", "tensor_parallel_size"), "write 'tp'"),
    **dict.fromkeys(("pp", "pp_size", "pipeline_parallel_size"), "write 'pp'"),
    **dict.fromkeys(("ep", "ep_size", "moe_expert_parallel_size"), "write 'ep'"),
    **dict.fromkeys(("server_role", "metadata_server_config_file", "disagg_cluster_uri"), "bench starts one server"),
}
"""Options that are keys of a case, or that belong to how bench reaches it."""
_FILE = "llm_api_options.yaml"
_METRICS = "/prometheus/metrics"
"""`/metrics` are statistics of iterations, and those are gone once they are read."""
_LOG_LINES = 4000
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


class TensorRTLLMRunner:
    """Serves a folder of safetensors with `trtllm-serve` on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        check_parallel(self.name, case, ("tp", "pp", "dp", "ep"))
        _check_attention(case)
        MENU.check(case.precision)
        find_tensorrt_llm(case).flags.passed(_passed_on(case), OURS)

    def about(self, case: Case) -> str:
        return find_tensorrt_llm(case).installed.line

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        found = find_tensorrt_llm(request.case)
        write_options(request, read_checkpoint(model.path))
        serving = serve(request, HABITS, partial(self.launch_for, request), model.name)
        with stopped_on_error(serving.process):
            told_back = _read_back(found, request, model, serving)
            return hand_over(request, serving, told_back, prometheus_counters(serving.base_url, TENSORRT_LLM, path=_METRICS))

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        return launch_of(find_tensorrt_llm(request.case), request, safetensors_of(request), port)


def _check_attention(case: Case) -> None:
    """Its ranks of dp are groups of attention within one server, each on one board; whole copies of a model are servers."""
    if case.parallel.dp > 1 and case.parallel.tp > 1:
        raise UsageError(
            f"tensorrt-llm spreads attention over tp or over dp, and the case asks for tp: {case.parallel.tp}, "
            f"dp: {case.parallel.dp}",
            hint=f"write tp: 1 and dp: {case.parallel.tp * case.parallel.dp}, or leave dp out",
        )


def _passed_on(case: Case) -> dict[str, Scalar]:
    return {name: value for name, value in case.engine_args.items() if name not in FILES}


def write_options(request: StartRequest, weights: Checkpoint) -> None:
    """Its LLM API options as a file in the work folder. Raises: UsageError (weights of another format, an unreadable file)."""
    options = options_of(request.case, weights)
    request.work_dir.mkdir(parents=True, exist_ok=True)
    (request.work_dir / _FILE).write_text(yaml.safe_dump(options), encoding="utf-8")


# --- the command ------------------------------------------------------------------------------------------------------


def launch_of(found: TensorRTLLM, request: StartRequest, model: LocalModel, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing (an option that this version does not have)."""
    case, flags = request.case, found.flags
    line = [*found.head, str(Path(model.path).absolute()), "--host", "127.0.0.1", "--port", str(port)]
    line += flags.known("--served_model_name", model.name)
    if "max_seq_len" not in case.engine_args:
        line += [*flags.need("--max_seq_len"), str(size_for(request.cases, {}).slot_tokens)]
    ranks = case.parallel
    for flag, count in (("--tp_size", ranks.tp * ranks.dp), ("--pp_size", ranks.pp), ("--ep_size", ranks.ep)):
        line += [*flags.need(flag), str(count)] if count > 1 else []
    line += [*flags.need("--extra_llm_api_options"), str((request.work_dir / _FILE).absolute())]
    line += flags.passed(_passed_on(case), OURS)
    return Launch(argv=tuple(line), env=dict(visible(request)))


# --- read back --------------------------------------------------------------------------------------------------------


def _read_back(found: TensorRTLLM, request: StartRequest, model: LocalModel, serving: Serving) -> ReadBack:
    log = serving.process.log_tail(_LOG_LINES)
    model_told = first_served(serving.base_url)
    return ReadBack(
        version=version_at(serving.base_url + "/version") or found.installed.version,
        build=found.installed.build,
        precision=precision_told(log, request.case.precision),
        model=model_told.name if model_told else model.name,
        vocab_size=model.shape.vocab,
        settings={
            **found.installed.settings,
            **(model_told.settings() if model_told else {}),
            "llm_api_options": (request.work_dir / _FILE).read_text(encoding="utf-8"),
            **inherited(("TRTLLM_", "TLLM_")),
        },
    )
