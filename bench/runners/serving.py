"""What it takes to bring up any engine that is a process and speaks HTTP: a command, an environment, a port, a health page, a
first token. Each engine brings its own of these; this is the order in which they happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import TOKEN_ID_PROTOCOLS, EngineHandle, Scalar, Target
from bench.runners.box import Box
from bench.runners.containers.client import WORDS as CONTAINER_WORDS
from bench.runners.containers.command import boxed
from bench.runners.counters import Counters
from bench.runners.diagnosis import Words
from bench.runners.first_token import Question, await_first_token
from bench.runners.host_variables import without_secrets
from bench.runners.launched import LaunchedEngine
from bench.runners.process import EngineProcess, stopped_on_error
from bench.runners.readiness import on_free_port, wait_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One exact command: what is run, and which variables are added to its environment."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What is an engine's own about coming up: its name in messages, its health page, how one token is asked for, and the words
    of its log that tell why it failed.
    """

    name: str
    health: str
    question: Question
    words: Sequence[Words] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """An engine that has given a first token: `start_s` after the launch its health page was good, `first_token_s` after that
    the token came [s].
    """

    process: EngineProcess
    launch: Launch
    base_url: str
    start_s: float
    first_token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What a running engine says of itself; None where it does not."""

    version: str | None
    build: str | None
    precision: str | None
    model: str
    vocab_size: int | None
    load_s: float | None = None
    settings: dict[str, Scalar] = field(default_factory=dict)


def serve(request: StartRequest, habits: Habits, launch: Callable[[int], Launch], served_as: str) -> Serving:
    """`bring_up` of `launch(port)` on a free port, and on another one if it was taken meanwhile. Raises: EngineStartError."""

    def attempt(port: int) -> Serving:
        return bring_up(request, habits, launch(port), lambda: f"http://127.0.0.1:{port}", served_as, port=port)

    return on_free_port(attempt)


def bring_up(
    request: StartRequest,
    habits: Habits,
    launch: Launch,
    find_url: Callable[[], str | None],
    served_as: str,
    *,
    port: int | None = None,
) -> Serving:
    """Start `launch`, in a container where the case says so, and wait for a first token of the model `served_as`. `find_url`
    gives None while the address isn't known; `port` is the one that was chosen for it.

    Raises: EngineStartError with the log's tail and the likely cause. Nothing of the engine runs then.
    """
    request.work_dir.mkdir(parents=True, exist_ok=True)
    launch, box = placed(request, launch, port)
    process = EngineProcess.start(
        launch.argv,
        name=habits.name,
        log_path=request.work_dir / "engine.log",
        env={} if box else launch.env,
        cwd=request.work_dir,
        own_words=(*habits.words, *CONTAINER_WORDS) if box else habits.words,
        box=box,
    )
    with stopped_on_error(process):
        ready = wait_ready(process, find_url, path=habits.health, timeout_s=request.start_timeout_s)
        left_s = request.start_timeout_s - ready.waited_s
        first_s = await_first_token(process, ready.base_url, served_as, habits.question, timeout_s=left_s)
    return Serving(process=process, launch=launch, base_url=ready.base_url, start_s=ready.waited_s, first_token_s=first_s)


def placed(request: StartRequest, launch: Launch, port: int | None) -> tuple[Launch, Box | None]:
    """`launch` as it is run: as it is, or in a container. Raises: EngineMissing, UsageError."""
    if request.case.container is None:
        return launch, None
    made = boxed(request, launch.argv, launch.env, port)
    return Launch(argv=made.argv, env=made.env), made.box


def hand_over(request: StartRequest, serving: Serving, told: ReadBack, counters: Counters) -> LaunchedEngine:
    """The running engine as the trial loop knows it."""
    case = request.case
    handle = EngineHandle(
        name=case.engine,
        version=told.version,
        build=told.build,
        command=serving.launch.argv,
        env=serving.launch.env,
        pids=serving.process.pids,
        settings=told.settings | (serving.process.box.settings if serving.process.box else {}),
        precision=told.precision,
        start_s=serving.start_s,
        load_s=told.load_s,
        first_token_s=serving.first_token_s,
        log_path=str(serving.process.log_path),
    )
    target = Target(
        base_url=serving.base_url,
        protocol=case.protocol,
        model=told.model,
        token_ids=case.protocol in TOKEN_ID_PROTOCOLS and told.vocab_size is not None,
        vocab_size=told.vocab_size,
    )
    return LaunchedEngine(serving.process, target, handle, counters)


def inherited(prefixes: tuple[str, ...]) -> dict[str, Scalar]:
    """Variables of ours that change how an engine runs, to be kept with its settings: those whose names begin like `prefixes`,
    without any that may hold a secret.
    """
    return {f"env.{name}": value for name, value in without_secrets(prefixes).items()}


def visible(request: StartRequest, *, by_number: bool = False) -> Mapping[str, str]:
    """The variables that show the engine its devices and no others; `by_number` for engines that can't read ids.

    Raises: UsageError where it would have to be a number, and a device has none.
    """
    placement = request.placement
    if not by_number or not placement.visibility_env:
        return placement.visibility_env
    if placement.numbered_env is None:
        raise UsageError(
            f"{request.case.engine} of this version can be shown boards by number only, and a slice of a board has none",
            hint="use a newer version of it, or name whole boards",
        )
    return placement.numbered_env
