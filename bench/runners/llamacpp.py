"""llama.cpp: through the `xllamacpp` package in a child process, or a `llama-server` program when asked for.

Which way, and how it was set, is read back from the running server, not assumed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.ports import StartRequest
from bench.precision import GGUF, nearest, read_back, spelled
from bench.records import Case, LocalModel, Scalar
from bench.runners.arguments import Argument, check_arguments, whole, word
from bench.runners.containers.place import container_of
from bench.runners.counters import prometheus_counters
from bench.runners.environment import EnginePython, Sought
from bench.runners.first_token import completion
from bench.runners.http import Answer, get
from bench.runners.installed import installed
from bench.runners.launched import LaunchedEngine
from bench.runners.llamacpp_binary import LlamaServer, absolute_program, find_llama_server, llama_server_in
from bench.runners.metric_names import LLAMACPP
from bench.runners.parallel import check_parallel
from bench.runners.process import EngineProcess, stopped_on_error
from bench.runners.served import ServedModel, served_models, slots_told
from bench.runners.serving import Habits, Launch, ReadBack, Serving, bring_up, hand_over, serve
from bench.runners.sizing import Sizing, size_for

INSTALL = "pip install 'tokjoule[llamacpp]'"
_SHIM = Path(__file__).resolve().parent / "shims" / "xllamacpp_server.py"
WEIGHT_FORMATS = ("fp32", "fp16", "bf16", "mxfp4", "nvfp4", *GGUF)
"""What a GGUF file may hold."""
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
ARGUMENTS = {
    "binary": Argument(kind="text", about="a llama-server program, by name on PATH or by path, instead of xllamacpp"),
    "threads": Argument(kind="int", low=1, about="CPU threads"),
    "n_gpu_layers": Argument(kind="int", low=-1, about="layers on the accelerator; -1: as many as fit"),
    "n_batch": Argument(kind="int", low=1, about="logical batch of prompt tokens"),
    "n_ubatch": Argument(kind="int", low=1, about="physical batch of prompt tokens"),
    "flash_attn": Argument(kind="text", choices=("on", "off", "auto"), about="flash attention: on, off or auto"),
    "cache_type_k": Argument(kind="text", choices=_CACHE_TYPES, about="how the keys of the KV cache are stored"),
    "cache_type_v": Argument(kind="text", choices=_CACHE_TYPES, about="how the values of the KV cache are stored"),
    "ctx_per_slot": Argument(kind="int", low=1, about="tokens of context for each request in flight"),
    "slots": Argument(kind="int", low=1, about="requests served at a time"),
    "prompt_cache": Argument(kind="bool", about="reuse the KV cache between prompts: off unless true"),
}


_STATUS = "xllamacpp.json"
HABITS = Habits(name="llamacpp", health="/health", question=completion)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A server that answers, and what is known of it from outside."""

    serving: Serving
    version: str | None
    settings: dict[str, Scalar]


class LlamaCppRunner:
    """Serves one GGUF file with llama.cpp on 127.0.0.1."""

    name = "llamacpp"
    reads = ("gguf",)

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, ARGUMENTS)
        args = case.engine_args
        check_parallel(
            self.name, case, (), instead="llama.cpp splits the layers over the devices that it sees: name them with devices"
        )
        if args.get("binary") and case.engine_python:
            raise UsageError("engine argument 'binary' and 'engine_python' exclude each other", hint="keep one of them")
        if case.container and case.engine_python:
            raise UsageError("llamacpp in a container is its llama-server: no engine_python", hint="leave engine_python out")
        if case.precision is not None and spelled(case.precision) not in WEIGHT_FORMATS:
            near = nearest(case.precision, WEIGHT_FORMATS)
            did_you_mean = f" Did you mean {near!r}?" if near else ""
            raise UsageError(
                f"llamacpp has no precision {case.precision!r}.{did_you_mean}", hint=f"known: {', '.join(WEIGHT_FORMATS)}"
            )
        if _server_of(case) is None:
            _check_xllamacpp(case.engine_python)

    def about(self, case: Case) -> str:
        if server := _server_of(case):
            where = f" in {container_of(case).where}" if case.container else ""
            return f"llama-server {server.version or 'of an unknown version'}, {server.path}{where}"
        _check_xllamacpp(case.engine_python)
        path = absolute_program(case.engine_python or sys.executable)
        environment = EnginePython(path=path, found_by="engine_python" if case.engine_python else "that of bench")
        return installed(environment, Sought(engine=self.name, distributions=("xllamacpp",)), install=INSTALL).line

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        model = _gguf_of(request)
        sizing = size_for(request.cases, request.case.engine_args)
        request.work_dir.mkdir(parents=True, exist_ok=True)
        server = _server_of(request.case)
        started = _start_xllamacpp(request, model, sizing) if server is None else _start_binary(request, server, model, sizing)
        with stopped_on_error(started.serving.process):
            return _engine_of(request, sizing, started)

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        model, server = _gguf_of(request), _server_of(request.case)
        sizing = size_for(request.cases, request.case.engine_args)
        if server is None:
            return _launch_xllamacpp(request, model, sizing)
        return _launch_binary(request, server, model, sizing, port)


def _server_of(case: Case) -> LlamaServer | None:
    """The llama-server of `case`; None where it is xllamacpp. Raises: EngineMissing."""
    binary = case.engine_args.get("binary")
    if case.container:
        return llama_server_in(container_of(case), None if binary is None else str(binary))
    return find_llama_server(str(binary)) if binary else None


def _gguf_of(request: StartRequest) -> LocalModel:
    model = request.model
    if model is None or model.format != "gguf":
        kind = "no weights" if model is None else f"{model.format} weights"
        raise UsageError(
            f"llamacpp reads GGUF files, but {request.case.model!r} has {kind}", hint="choose a GGUF file of this model"
        )
    return model


def _check_xllamacpp(engine_python: str | None) -> None:
    """Raises: EngineMissing where `xllamacpp` can't be imported; nothing of it is imported here."""
    if engine_python is None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise EngineMissing("the llama.cpp engine (xllamacpp) is not installed", hint=INSTALL)
        return
    probe = [engine_python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('xllamacpp') is None)"]
    try:
        found = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineMissing(f"engine_python {engine_python!r} can't be run: {error}", hint="give the path of a Python") from error
    if not found:
        raise EngineMissing(
            f"xllamacpp is not installed for engine_python {engine_python!r}", hint=f"{engine_python} -m pip install xllamacpp"
        )


# --- the two ways -----------------------------------------------------------------------------------------------------


def _launch_xllamacpp(request: StartRequest, model: LocalModel, sizing: Sizing) -> Launch:
    args = request.case.engine_args
    order = {
        "model": str(Path(model.path).absolute()),
        "alias": alias_of(model.name),
        "slots": sizing.slots,
        "context": sizing.context_tokens,
        "status_file": str((request.work_dir / _STATUS).resolve()),
        "prompt_cache": args.get("prompt_cache") is True,
        **{name: args.get(name) for name in ("threads", "n_gpu_layers", "n_batch", "n_ubatch")},
        **{name: word(args, name) for name in ("flash_attn", "cache_type_k", "cache_type_v")},
    }
    order = {name: value for name, value in order.items() if value is not None}
    python = request.case.engine_python or sys.executable
    argv = (absolute_program(python), "-u", str(_SHIM), json.dumps(order))
    return Launch(argv=argv, env=request.placement.visibility_env)


def _start_xllamacpp(request: StartRequest, model: LocalModel, sizing: Sizing) -> _Started:
    status_file = request.work_dir / _STATUS
    status_file.unlink(missing_ok=True)
    status: dict[str, Any] = {}

    def address() -> str | None:
        if not status and status_file.exists():
            status.update(json.loads(status_file.read_text()))
        return status.get("address")

    serving = bring_up(request, HABITS, _launch_xllamacpp(request, model, sizing), address, alias_of(model.name))
    prompt_cache = request.case.engine_args.get("prompt_cache") is True
    settings: dict[str, Scalar] = {"through": "xllamacpp", "prompt_cache": prompt_cache}
    if status.get("devices"):
        settings["devices"] = ", ".join(status["devices"])
    return _Started(serving=serving, version=status.get("version"), settings=settings)


def _launch_binary(request: StartRequest, server: LlamaServer, model: LocalModel, sizing: Sizing, port: int) -> Launch:
    path = str(Path(model.path).absolute())
    argv = server.command(path, alias_of(model.name), port, sizing, request.case.engine_args)
    return Launch(argv=argv, env=request.placement.visibility_env)


def _start_binary(request: StartRequest, server: LlamaServer, model: LocalModel, sizing: Sizing) -> _Started:
    launch = partial(_launch_binary, request, server, model, sizing)
    prompt_cache = server.prompt_cache_of(request.case.engine_args)
    settings: dict[str, Scalar] = {"through": "llama-server", "prompt_cache": prompt_cache}
    return _Started(serving=serve(request, HABITS, launch, alias_of(model.name)), version=server.version, settings=settings)


def alias_of(model_name: str) -> str:
    """The name under which the model is served: llama-server splits its `--alias` at commas."""
    return model_name.replace(",", "_")


# --- read back --------------------------------------------------------------------------------------------------------


def _engine_of(request: StartRequest, sizing: Sizing, started: _Started) -> LaunchedEngine:
    serving = started.serving
    props = _object_at(serving.base_url + "/props")
    served = _served_model(serving.base_url)
    log = serving.process.log_tail(2000)
    settings = started.settings | served.settings() | settings_of(props, log) | _asked_settings(request.case.engine_args)
    _check_context(settings, sizing, serving.process)
    told = ReadBack(
        version=started.version,
        build=props.get("build_info"),
        precision=read_back(request.case.precision, served.weights_type),
        model=served.name,
        vocab_size=served.vocab_size,
        settings=settings,
    )
    return hand_over(request, serving, told, prometheus_counters(serving.base_url, LLAMACPP))


def settings_of(props: Mapping[str, Any], log: str) -> dict[str, Scalar]:
    """Slots, context a slot, threads and offloaded layers as the server itself says; what it does not say is absent."""
    found = slots_told(props)
    if threads := re.search(r"\bn_threads = (\d+)", log):
        found["threads"] = int(threads[1])
    if layers := re.search(r"offloaded (\d+)/(\d+) layers", log):
        found["gpu_layers"] = int(layers[1])
        found["layers"] = int(layers[2])
    return found


def _asked_settings(args: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What the server does not tell: as asked, when asked."""
    numbers = {name: whole(args, name) for name in ("n_batch", "n_ubatch")}
    words = {name: word(args, name) for name in ("flash_attn", "cache_type_k", "cache_type_v")}
    return {name: value for name, value in (numbers | words).items() if value is not None}


def _object_at(url: str) -> dict[str, Any]:
    answer = get(url)
    return answer.json_object() if isinstance(answer, Answer) else {}


def _served_model(base_url: str) -> ServedModel:
    models = served_models(_object_at(base_url + "/v1/models"))
    if not models:
        raise EngineStartError("llama.cpp is ready but names no model at /v1/models", hint="try another version of the engine")
    return models[0]


def _check_context(settings: Mapping[str, Scalar], sizing: Sizing, process: EngineProcess) -> None:
    """A server that gave less context than asked for would cut requests off in mid-answer."""
    given = settings.get("n_ctx_slot")
    if isinstance(given, int) and given < sizing.slot_tokens:
        raise EngineStartError(
            f"llama.cpp gives {given} tokens of context to each request, but the case needs {sizing.slot_tokens}",
            hint=f"shorten the lengths; the model was trained with a context of {settings.get('n_ctx_train', 'unknown')}",
            log_tail=process.log_tail(20),
        )
