"""Triton Inference Server: its vLLM backend on a folder of safetensors, with a model repository that is written for the case; or
a repository that is there, with any backend. `protocol: kserve-generate` starts `tritonserver`, OpenAI's protocols its frontend
for them.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import EngineMissing, UsageError
from bench.ports import StartRequest
from bench.records import Case, LocalModel, Scalar
from bench.runners.arguments import Argument, check_arguments
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.counters import Counters, prometheus_counters
from bench.runners.first_token import completion
from bench.runners.launched import LaunchedEngine
from bench.runners.metric_names import TRITON
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.process import free_port, stopped_on_error
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import size_for
from bench.runners.triton.facts import INSTALL, NAME, Triton, find_triton
from bench.runners.triton.repository import OWN, asked_of_vllm, model_json, served_name, vllm_args, write_repository
from bench.runners.triton.words import WORDS
from bench.runners.vllm.facts import Vllm
from bench.runners.vllm.facts import facts_of as vllm_in
from bench.runners.vllm.precision import check_word, told
from bench.runners.vllm.runner import OURS as VLLMS
from bench.runners.vllm.runner import check_experts, load_seconds, own_env, settings_of
from bench.runners.vllm.words import WORDS as VLLMS_WORDS
from bench.runners.weights import safetensors_of

ARGUMENTS = {
    "home": Argument(kind="text", about="where Triton is installed: /opt/tritonserver unless given"),
    "model_repository": Argument(
        kind="text", about="a folder that Triton serves as it is, in the place of one that bench writes"
    ),
    "model_name": Argument(kind="text", about="with model_repository: the model of it that requests go to"),
    "tokenizer": Argument(kind="text", about="folder of the tokenizer for the OpenAI frontend: that of the weights unless given"),
    "vllm_metrics": Argument(kind="bool", about="vLLM's own counters: its engine then runs in the process of its backend"),
}
KSERVE = "kserve-generate"
_FOLDER = "triton-models"
_METRICS_FLAG = "--metrics-port="
_LOG_LINES = 4000
_PROMPT = {"text_input": "The capital of France is", "parameters": {"max_tokens": 1, "temperature": 0, "stream": False}}


def generate(model: str) -> tuple[str, dict[str, Any]]:
    """One token over KServe's generate extension."""
    return f"/v2/models/{model}/generate", _PROMPT


_WORDS = (*WORDS, *VLLMS_WORDS)
BY_KSERVE = Habits(name=NAME, health="/v2/health/ready", question=generate, words=_WORDS)
BY_OPENAI = Habits(name=NAME, health="/health/ready", question=completion, words=_WORDS)


class TritonRunner:
    """Serves a model repository with Triton on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        own = {name: value for name, value in case.engine_args.items() if name in OWN or _is_prepared(case)}
        check_arguments(self.name, own, ARGUMENTS)
        check_parallel(self.name, case, ("tp", "pp", "ep"))
        check_experts(case)
        found = find_triton(case)
        _check_frontend(case, found)
        if _is_prepared(case):
            _check_prepared(case)
            return
        vllm = _vllm_of(found)
        check_word(case.precision, vllm.platform)
        vllm.flags.passed(vllm_args(case), VLLMS)

    def about(self, case: Case) -> str:
        return find_triton(case).line

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        name = _name_of(request.case, model)
        habits = BY_KSERVE if request.case.protocol == KSERVE else BY_OPENAI
        if not _is_prepared(request.case):
            _write(request, model, name)
        serving = serve(request, habits, partial(self.launch_for, request), name)
        with stopped_on_error(serving.process):
            return hand_over(request, serving, _read_back(request, model, name, serving), _counters(serving))

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        return launch_of(find_triton(request.case), request, safetensors_of(request), port)


# --- what is refused --------------------------------------------------------------------------------------------------


def _is_prepared(case: Case) -> bool:
    return case.engine_args.get("model_repository") is not None


def _check_frontend(case: Case, found: Triton) -> None:
    if case.protocol == KSERVE:
        return
    if found.frontend is None:
        raise EngineMissing(
            f"{found.environment.where} has no OpenAI frontend of Triton's", hint=f"write protocol: {KSERVE}; or {INSTALL}"
        )
    if not found.has_bindings:
        raise EngineMissing(
            f"Triton's OpenAI frontend can't be run in {found.environment.where}: the Python package tritonserver is missing",
            hint=f"pip install /opt/tritonserver/python/triton*.whl there, or write protocol: {KSERVE}",
        )


def _check_prepared(case: Case) -> None:
    folder, name = Path(str(case.engine_args["model_repository"])), case.engine_args.get("model_name")
    if name is None:
        raise UsageError("engine argument 'model_repository' needs 'model_name'", hint="name the model that requests go to")
    if not (folder / str(name)).is_dir():
        raise UsageError(f"{folder} has no model {name!r}", hint="give a model repository: a folder with a folder for each model")
    if case.precision is not None or case.parallel.devices > 1:
        raise UsageError(
            "a model repository that is there says its own precision and ranks",
            hint="leave precision, tp and pp out, or leave model_repository out",
        )


def _vllm_of(found: Triton) -> Vllm:
    """The vLLM that its backend runs. Raises: EngineMissing where it has none."""
    if "vllm" not in found.backends:
        raise EngineMissing(
            f"triton in {found.environment.where} has no vLLM backend, but: {', '.join(found.backends) or 'none'}",
            hint=f"{INSTALL}; or give engine_args.model_repository for another backend",
        )
    return vllm_in(found.environment)


# --- the command ------------------------------------------------------------------------------------------------------


def _name_of(case: Case, model: LocalModel) -> str:
    return str(case.engine_args["model_name"]) if _is_prepared(case) else served_name(model)


def _repository(request: StartRequest) -> str:
    prepared = request.case.engine_args.get("model_repository")
    return str(Path(str(prepared)).absolute() if prepared is not None else (request.work_dir / _FOLDER).absolute())


def _write(request: StartRequest, model: LocalModel, name: str) -> None:
    fields = model_json(_vllm_of(find_triton(request.case)), request, model, read_checkpoint(model.path))
    metrics = request.case.engine_args.get("vllm_metrics") is True
    write_repository(request.work_dir / _FOLDER, name, fields, metrics=metrics)


def launch_of(found: Triton, request: StartRequest, model: LocalModel, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError, EngineMissing."""
    case, name, repository = request.case, _name_of(request.case, model), _repository(request)
    if case.protocol == KSERVE:
        line = [found.program, f"--model-repository={repository}", "--model-control-mode=explicit", f"--load-model={name}"]
        line += ["--http-address", "127.0.0.1", f"--http-port={port}", "--allow-grpc=false"]
        line += ["--metrics-address", "127.0.0.1", f"{_METRICS_FLAG}{free_port()}"]
        line += [f"--backend-config=python,shm-region-prefix-name=bench-{port}"]  # another Triton of this host has other names
    else:
        line = [*found.environment.python("-u", found.frontend or ""), "--model-repository", repository]
        line += ["--tokenizer", str(case.engine_args.get("tokenizer") or Path(model.path).absolute())]
        line += ["--host", "127.0.0.1", "--openai-port", str(port)]
        line += ["--uvicorn-log-level", "warning"]  # else a line is written for every request
    return Launch(argv=tuple(line), env=_env(found, request, model))


def _env(found: Triton, request: StartRequest, model: LocalModel) -> dict[str, str]:
    if _is_prepared(request.case):
        return dict(visible(request))
    vllm = _vllm_of(found)
    by_number = vllm.platform.name == "cuda" and vllm.flags.find("--device-ids") is None
    asked = asked_of_vllm(request.case, read_checkpoint(model.path), vllm)
    own = own_env(vllm, model.shape, size_for(request.cases, {}), request.case.precision)
    return dict(visible(request, by_number=by_number)) | asked.env | own


# --- read back --------------------------------------------------------------------------------------------------------


def _counters(serving: Serving) -> Counters:
    """Of `tritonserver` its counters are on a port of their own."""
    own = next((word.removeprefix(_METRICS_FLAG) for word in serving.launch.argv if word.startswith(_METRICS_FLAG)), None)
    return prometheus_counters(serving.base_url if own is None else f"http://127.0.0.1:{own}", TRITON)


def _read_back(request: StartRequest, model: LocalModel, name: str, serving: Serving) -> ReadBack:
    found, log = find_triton(request.case), serving.process.log_tail(_LOG_LINES)
    weights = Checkpoint() if _is_prepared(request.case) else read_checkpoint(model.path)
    env: dict[str, Scalar] = {**os.environ, **serving.launch.env}
    version = re.search(r"\|\s*server_version\s*\|\s*([\d.]+)", log)
    backend = re.search(rf"name='{re.escape(name)}', backend='(\w+)'", log)
    settings: dict[str, Scalar | None] = {
        "frontend": "kserve" if request.case.protocol == KSERVE else "openai",
        "image": found.image,
        "backend": backend[1] if backend else None if _is_prepared(request.case) else "vllm",
        "repository": "as it is" if _is_prepared(request.case) else _config_of(request, name),
    }
    return ReadBack(
        version=version[1] if version else found.version,
        build=found.image,
        precision=told(log, request.case.precision, weights, env),
        model=name,
        vocab_size=None,  # prompts go as text
        load_s=load_seconds(log),
        settings={
            **{key: value for key, value in settings.items() if value is not None},
            **settings_of(log),
            **inherited(("VLLM_", "TRITON_")),
        },
    )


def _config_of(request: StartRequest, name: str) -> str:
    return (request.work_dir / _FOLDER / name / "1" / "model.json").read_text(encoding="utf-8")
