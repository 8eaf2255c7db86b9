"""LMDeploy: its turbomind engine on CUDA, and its pytorch engine on CUDA, Ascend, MetaX (maca) and Cambricon (camb)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.errors import EngineStartError, UsageError
from bench.ports import StartRequest
from bench.records import Case, LocalModel
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.launched import LaunchedEngine
from bench.runners.lmdeploy.facts import COMMAND, NAME, LMDeploy, find_lmdeploy
from bench.runners.lmdeploy.precision import PYTORCH, TURBOMIND, backend_of, device_of, format_flags, menu
from bench.runners.lmdeploy.precision import told as precision_told
from bench.runners.lmdeploy.words import WORDS
from bench.runners.metric_names import LMDEPLOY
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.process import stopped_on_error
from bench.runners.served import first_served
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import size_for
from bench.runners.weights import safetensors_of

OURS = {
    "model_path": "write 'model'",
    **dict.fromkeys(
        ("server_name", "server_port", "api_keys", "ssl", "proxy_url", "model_name", "disable_metrics", "enable_metrics"),
        "it is bench's own: leave it out",
    ),
    **dict.fromkeys(("dtype", "model_format"), "write 'precision', as in precision: bf16"),
    **{kind: f"write '{kind}'" for kind in ("tp", "dp", "ep")},
    **dict.fromkeys(("nnodes", "node_rank", "dist_init_addr"), "bench starts engines on one host"),
}
"""Options that are keys of a case, or that belong to how bench reaches it."""
_FELL_BACK = "Fallback to pytorch engine because"
_LOG_LINES = 4000
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


class LMDeployRunner:
    """Serves a folder of safetensors with LMDeploy on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        found = find_lmdeploy(case)
        found.flags.passed(case.engine_args, OURS)
        _check_ranks(case, backend_of(found, case))
        menu(found, case).check(case.precision)

    def about(self, case: Case) -> str:
        return find_lmdeploy(case).installed.line

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        found = find_lmdeploy(request.case)
        weights = read_checkpoint(model.path)
        serving = serve(request, HABITS, partial(self.launch_for, request), model.name)
        with stopped_on_error(serving.process):
            told_back = _read_back(found, request, model, weights, serving)
            return hand_over(request, serving, told_back, prometheus_counters(serving.base_url, LMDEPLOY))

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        model = safetensors_of(request)
        return launch_of(find_lmdeploy(request.case), request, model, read_checkpoint(model.path), port)


def _check_ranks(case: Case, backend: str) -> None:
    """Ranks of dp are servers of their own in the pytorch engine, which only a proxy joins; its experts are spread over all ranks
    or none.
    """
    if backend == TURBOMIND:
        check_parallel(NAME, case, ("tp", "dp", "ep"))
        return
    check_parallel("lmdeploy's pytorch engine in one server", case, ("tp", "ep"))
    if case.parallel.ep not in (1, case.parallel.tp):
        raise UsageError(
            f"lmdeploy's pytorch engine spreads experts over all {case.parallel.tp} ranks of tp, not over {case.parallel.ep}",
            hint=f"write ep: {case.parallel.tp}, or leave it out",
        )


# --- the command ------------------------------------------------------------------------------------------------------


def launch_of(found: LMDeploy, request: StartRequest, model: LocalModel, weights: Checkpoint, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing (a flag that this version does not have)."""
    case, flags = request.case, found.flags
    line = [*found.environment.python("-m", NAME), *COMMAND, str(Path(model.path).absolute())]
    line += [*flags.need("--model-name"), model.name, "--server-name", "127.0.0.1", "--server-port", str(port)]
    if "session_len" not in case.engine_args:
        line += [*flags.need("--session-len"), str(size_for(request.cases, {}).slot_tokens)]
    if "backend" not in case.engine_args:
        line += flags.need("--backend", backend_of(found, case))
    if "device" not in case.engine_args:
        line += flags.need("--device", found.device) if found.device != "cuda" else flags.known("--device", "cuda")
    line += flags.known("--enable-metrics")  # where they are not there unless asked for
    ranks = case.parallel
    for flag, count in (("--tp", ranks.tp), ("--dp", ranks.dp), ("--ep", ranks.ep)):
        line += [*flags.need(flag), str(count)] if count > 1 else []
    line += [*menu(found, case).flags(case.precision, weights), *format_flags(found, case, weights)]
    line += flags.passed(case.engine_args, OURS)
    return Launch(argv=tuple(line), env=dict(visible(request)))


# --- read back --------------------------------------------------------------------------------------------------------


def _read_back(found: LMDeploy, request: StartRequest, model: LocalModel, weights: Checkpoint, serving: Serving) -> ReadBack:
    log = serving.process.log_tail(_LOG_LINES)
    model_told = first_served(serving.base_url)
    return ReadBack(
        version=found.installed.version,
        build=found.installed.build,
        precision=precision_told(log, request.case.precision, weights),
        model=model_told.name if model_told else model.name,
        vocab_size=None,  # its completions take a list for several texts, not for token ids
        settings={
            **found.installed.settings,
            "backend": _backend_that_runs(request.case, backend_of(found, request.case), serving, log),
            "device": device_of(found, request.case),
            **(model_told.settings() if model_told else {}),
            **inherited(("LMDEPLOY_", "TM_", "DLINFER_")),
        },
    )


def _backend_that_runs(case: Case, asked: str, serving: Serving, log: str) -> str:
    """LMDeploy takes its pytorch engine where turbomind does not know the model. Raises: EngineStartError where the case names
    turbomind: that would be another engine under its name.
    """
    if asked == PYTORCH or _FELL_BACK not in log:
        return asked
    if case.engine_args.get("backend") == TURBOMIND:
        raise EngineStartError(
            "lmdeploy runs its pytorch engine, and the case asks for turbomind, which does not know this model or is not built",
            hint="write backend: pytorch, or leave it out",
            log_tail=serving.process.log_tail(20),
            log_path=str(serving.process.log_path),
        )
    return PYTORCH
