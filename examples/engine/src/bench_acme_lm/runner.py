"""Acme's engine: `acme-serve` on one GGUF file. Its command, readiness, version, precision, diagnosis and counters."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.errors import EngineMissing, UsageError
from bench.ports import StartRequest
from bench.precision import read_back
from bench.records import Case, LocalModel
from bench.runners.arguments import Argument, check_arguments
from bench.runners.checkpoint import Checkpoint
from bench.runners.containers.place import find_engine
from bench.runners.counters import prometheus_counters
from bench.runners.diagnosis import words
from bench.runners.environment import Environment, Sought
from bench.runners.first_token import completion
from bench.runners.installed import installed
from bench.runners.launched import LaunchedEngine
from bench.runners.library import info_at
from bench.runners.parallel import check_parallel
from bench.runners.process import stopped_on_error
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, serve, visible
from bench.runners.sizing import size_for
from bench.runners.weights import Menu

NAME = "acme-lm"
PROGRAM = "acme-serve"
SOUGHT = Sought(engine=NAME, distributions=("acme-lm",), program=PROGRAM)
INSTALL = f"pip install /path/to/acme-lm (in an environment of its own, named by engine_python or {SOUGHT.variable})"
"""Acme is made up: what an index has under that name is not its engine."""
ARGUMENTS = {"lanes": Argument(kind="int", low=1, about="requests that decode at a time")}
MENU = Menu(engine=NAME, plain={"fp16": ("--format", "half"), "fp32": ("--format", "single")})
COUNTERS = {
    "prompt_tokens_total": ("acme_tokens_in_total",),
    "generation_tokens_total": ("acme_tokens_out_total",),
    "requests_running": ("acme_lanes_busy",),
}
"""The project's names to Acme's."""
WORDS = (
    words(
        "unsupported",
        "the boards are of a generation that this engine does not know",
        "install a newer acme-lm",
        r"acme: unknown board generation",
    ),
)
HABITS = Habits(name=NAME, health="/ready", question=completion, words=WORDS)


class AcmeRunner:
    """Serves one GGUF file with `acme-serve` on 127.0.0.1."""

    name = NAME
    reads = ("gguf",)

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, ARGUMENTS)
        check_parallel(self.name, case, ())
        MENU.check(case.precision)
        _find(case)

    def about(self, case: Case) -> str:
        return installed(_find(case), SOUGHT, install=INSTALL).line

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        model = _weights_of(request)
        serving = serve(request, HABITS, partial(self.launch_for, request), model.name)
        with stopped_on_error(serving.process):
            return hand_over(
                request,
                serving,
                _read_back(request, model, serving),
                prometheus_counters(serving.base_url, COUNTERS, path="/stats"),
            )

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`: `bench run --dry-run` prints it. Raises: UsageError, EngineMissing."""
        program, model = _find(request.case).program(PROGRAM), _weights_of(request)
        assert program is not None
        lanes = request.case.engine_args.get("lanes") or size_for(request.cases, {}).slots
        line = [program, str(Path(model.path).absolute()), "--name", model.name, "--listen", str(port), "--lanes", str(lanes)]
        return Launch(argv=(*line, *MENU.flags(request.case.precision, Checkpoint())), env=dict(visible(request)))


def _weights_of(request: StartRequest) -> LocalModel:
    if request.model is None or request.model.format != "gguf":
        raise UsageError(f"{NAME} reads GGUF files", hint="choose a GGUF file of this model")
    return request.model


def _find(case: Case) -> Environment:
    environment = find_engine(SOUGHT, case, install=INSTALL)
    installed(environment, SOUGHT, install=INSTALL)
    if environment.program(PROGRAM) is None:
        raise EngineMissing(f"{environment.where} has no program {PROGRAM}", hint=INSTALL)
    return environment


def _read_back(request: StartRequest, model: LocalModel, serving: Serving) -> ReadBack:
    about = info_at(serving.base_url, "/about")
    told = {"half": "fp16", "single": "fp32"}.get(about.get("format", ""))
    return ReadBack(
        version=about.get("version"),
        build=None,
        precision=read_back(request.case.precision, told),
        model=model.name,
        vocab_size=model.shape.vocab,
        settings={"lanes": about["lanes"]} if "lanes" in about else {},
    )
