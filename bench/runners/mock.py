"""The mock engine as an engine like any other: launched, measured, and asked for its truth afterwards."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench import __version__
from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import TOKEN_ID_PROTOCOLS, Case, EngineHandle, Scalar, Target
from bench.runners.arguments import Argument, check_arguments
from bench.runners.counters import read_metrics
from bench.runners.http import Answer, get
from bench.runners.launched import LaunchedEngine
from bench.runners.metric_names import MOCK
from bench.runners.parallel import check_parallel
from bench.runners.process import EngineProcess, stopped_on_error
from bench.runners.readiness import Ready, wait_ready
from bench.runners.served import served_models
from bench.runners.serving import Launch

EMISSION = "BENCH_SIM_EMISSION"
"""Variable with the file that the simulated device reads."""
_URL_FILE = "mock.url"
ARGUMENTS = {
    "ttft_ms": Argument(kind="number", low=0, about="first content chunk this long after the request [ms]"),
    "gap_ms": Argument(kind="number", low=0, about="time between content chunks [ms]"),
    "tokens_per_chunk": Argument(kind="int", low=1, about="tokens in each content chunk"),
    "prefill_us_per_token": Argument(kind="number", low=0, about="added to the TTFT for each prompt token [us]"),
    "max_in_flight": Argument(kind="int", low=1, about="requests served at once; later ones wait"),
    "seed": Argument(kind="int", low=0, about="seed of the random quirks"),
    "sim": Argument(kind="bool", about="account for tokens in the file BENCH_SIM_EMISSION, for the simulated device"),
    "quirk": Argument(kind="text", about="misbehaviours, separated by commas: see bench mock-server --list-quirks"),
}


class MockRunner:
    """Launches `bench mock-server` on 127.0.0.1."""

    name = "mock"
    reads = ()

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, ARGUMENTS)
        check_parallel(self.name, case, ())
        if case.engine_args.get("sim") and not os.environ.get(EMISSION):
            hint = f"export {EMISSION}=FILE: the simulated device reads it (docs/mock.md)"
            raise UsageError(f"engine argument 'sim' of mock needs {EMISSION} in the environment", hint=hint)

    def about(self, case: Case) -> str:
        return f"part of tokjoule {__version__}"

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        request.work_dir.mkdir(parents=True, exist_ok=True)
        url_file = request.work_dir / _URL_FILE
        url_file.unlink(missing_ok=True)
        argv = self.launch_for(request, 0).argv
        process = EngineProcess.start(
            argv, name=self.name, log_path=request.work_dir / "engine.log", env=request.placement.visibility_env
        )
        with stopped_on_error(process):
            ready = wait_ready(
                process,
                lambda: url_file.read_text().strip() if url_file.exists() else None,
                path="/health",
                timeout_s=request.start_timeout_s,
            )
            return _engine_of(request, process, argv, ready)

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        url_file = (request.work_dir / _URL_FILE).resolve()
        head = (sys.executable, "-m", "bench", "mock-server", f"--port={port}", f"--port-file={url_file}")
        return Launch(argv=(*head, *flags_of(request.case)), env=dict(request.placement.visibility_env))


def flags_of(case: Case) -> tuple[str, ...]:
    """`engine_args` as flags of `bench mock-server`."""
    flags = [f"--model={case.model}"]
    for name, value in case.engine_args.items():
        if value is None:
            continue
        if name == "sim":
            flags += [f"--emission-file={Path(os.environ[EMISSION]).resolve()}"] if value else []
        elif name == "quirk":
            flags += [f"--quirk={quirk.strip()}" for quirk in str(value).split(",") if quirk.strip()]
        else:
            flags.append(f"--{name.replace('_', '-')}={value}")
    return tuple(flags)


def _engine_of(request: StartRequest, process: EngineProcess, argv: tuple[str, ...], ready: Ready) -> LaunchedEngine:
    answer = get(f"{ready.base_url}/v1/models")
    # none at all is a misbehaviour that it can be told: the load generator then sees what a real client would
    models = served_models(answer.json()) if isinstance(answer, Answer) else None
    about = get(f"{ready.base_url}/version")
    version = about.json_object().get("version") if isinstance(about, Answer) else None
    served = models[0] if models else None
    settings: dict[str, Scalar] = served.settings() if served else {}
    handle = EngineHandle(
        name="mock",
        version=version if isinstance(version, str) else None,
        build=None,
        command=argv,
        env=dict(request.placement.visibility_env),
        pids=process.pids,
        settings=settings | {name: value for name, value in request.case.engine_args.items() if value is not None},
        precision=None,
        start_s=ready.waited_s,
        log_path=str(process.log_path),
        own_weights="mock",
    )
    vocab_size = served.vocab_size if served else None
    target = Target(
        base_url=ready.base_url,
        protocol=request.case.protocol,
        model=request.case.model,
        token_ids=request.case.protocol in TOKEN_ID_PROTOCOLS and vocab_size is not None,
        vocab_size=vocab_size,
    )
    return LaunchedEngine(process, target, handle, lambda window: read_metrics(ready.base_url, window, mock=True, tables=(MOCK,)))
