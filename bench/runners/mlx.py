"""MLX (`mlx_lm.server`): on Apple's chips, and on CUDA and CPU under Linux. It serves weights as they are, and has no page of
counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench.ports import StartRequest
from bench.records import Case, LocalModel
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.containers.place import find_engine
from bench.runners.diagnosis import words
from bench.runners.environment import Environment, Sought
from bench.runners.first_token import completion
from bench.runners.host_platform import host_platform
from bench.runners.installed import Installed, installed
from bench.runners.launched import LaunchedEngine
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.parser import Flags, ask_flags
from bench.runners.process import stopped_on_error
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.sizing import size_for
from bench.runners.weights import Menu, check_as_stored, safetensors_of

NAME = "mlx"
SOUGHT = Sought(engine=NAME, distributions=("mlx-lm",), program="mlx_lm.server")
OURS = {
    "model": "write 'model'",
    **dict.fromkeys(("host", "port", "allowed_origins"), "it is bench's own: leave it out"),
    "pipeline": "bench starts it on one device",
}
"""Options that are keys of a case, or that belong to how bench reaches it."""
MENU = Menu(
    engine=NAME,
    plain=dict.fromkeys(("bf16", "fp16", "fp32"), ()),
    stored=("fp8", "int8", "w4a16", "awq", "gptq", "int4", "fp4", "mxfp4", "nvfp4"),
)
WORDS = (
    words(
        "gpu_memory",
        "the device has too little free memory",
        "take a smaller model, batch size or context, or close other programs",
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory",
        r"\[METAL\].{0,80}Insufficient Memory",
        r"\[(metal::)?malloc\w*\] .{0,40}allocate",
    ),
    words(
        "unsupported",
        "it does not know this model, or weights of this format",
        "take a newer mlx-lm, or weights that `mlx_lm.convert` made",
        r"Model type \S+ not supported",
        r"Only bits=.{0,20}is supported",
        r"Unsupported modelopt quant_algo",
        r"quantization .{0,60}not supported",
    ),
)
_BESIDE = ("mlx", "mlx-metal", "mlx-cuda-13", "mlx-cuda-12", "mlx-cpu", "transformers")
_SERVED_AS = "default_model"
"""What the model of its command line is called in requests: any other name it would look for on the Hugging Face hub."""
_EXTRAS = {"metal": "", "cuda": "[cuda13]"}
_FEWEST_SLOTS = 32
"""Requests that it decodes at a time unless told."""
HABITS = Habits(name=NAME, health="/health", question=completion, words=WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlx:
    """An installed mlx-lm. `head` begins its command line."""

    installed: Installed
    flags: Flags
    head: tuple[str, ...]


def install_line(platform: str | None = None) -> str:
    """How mlx-lm is installed for `platform`, that of this host if None."""
    extra = _EXTRAS.get(platform or host_platform(), "[cpu]")
    return f"pip install 'mlx-lm{extra}' (in an environment of its own, named by engine_python or {SOUGHT.variable})"


def find_mlx(case: Case) -> Mlx:
    """The mlx-lm of `case`. Raises: EngineMissing in plain words, with how to install it."""
    return facts_of(find_engine(SOUGHT, case, install=install_line()))


@cache
def facts_of(environment: Environment) -> Mlx:
    """The mlx-lm in `environment`, asked once in this process. Raises: EngineMissing."""
    found = installed(environment, SOUGHT, _BESIDE, install=install_line())
    program = environment.program("mlx_lm.server")
    return Mlx(
        installed=found,
        flags=ask_flags(environment, NAME, found, "mlx_lm.server"),
        head=(program,) if program else environment.python("-m", "mlx_lm.server"),
    )


class MlxRunner:
    """Serves a folder of safetensors with MLX on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        check_parallel(self.name, case, ())
        MENU.check(case.precision)
        find_mlx(case).flags.passed(case.engine_args, OURS)

    def about(self, case: Case) -> str:
        return find_mlx(case).installed.line

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        found = find_mlx(request.case)
        weights = read_checkpoint(model.path)
        check_as_stored(MENU, request.case.precision, weights)
        serving = serve(request, HABITS, partial(self.launch_for, request), _SERVED_AS)
        with stopped_on_error(serving.process):
            return hand_over(request, serving, _read_back(found, weights, serving), lambda _: {})

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        return launch_of(find_mlx(request.case), request, safetensors_of(request), port)


def launch_of(found: Mlx, request: StartRequest, model: LocalModel, port: int) -> Launch:
    """The exact command line and environment. Raises: UsageError."""
    case, flags = request.case, found.flags
    line = [*found.head, "--model", str(Path(model.path).absolute()), "--host", "127.0.0.1", "--port", str(port)]
    if "decode_concurrency" not in case.engine_args:
        line += flags.known("--decode-concurrency", str(max(_FEWEST_SLOTS, size_for(request.cases, {}).slots)))
    line += flags.known("--log-level", "WARNING")  # else lines are written for every request
    line += flags.passed(case.engine_args, OURS)
    return Launch(argv=tuple(line), env=dict(visible(request)))


def _read_back(found: Mlx, weights: Checkpoint, serving: Serving) -> ReadBack:
    """Nothing that it says tells its version, its model's name or what runs."""
    return ReadBack(
        version=found.installed.version,
        build=found.installed.build,
        precision=None,
        model=_SERVED_AS,
        vocab_size=None,  # its completions take text only
        settings={
            **found.installed.settings,
            **({"weights": weights.precision} if weights.precision else {}),
            **inherited(("MLX_",)),
        },
    )
