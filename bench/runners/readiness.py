"""The one loop that waits until a started engine answers, or says why it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from bench.clock import SYSTEM, Clock
from bench.errors import EngineStartError
from bench.runners.http import Answer, NoAnswer, get
from bench.runners.process import EngineProcess, PortTakenError, free_port, listens

T = TypeVar("T")
_PORT_ATTEMPTS = 4
_POLL_S = 0.05
_SLOWEST_POLL_S = 0.5
_ANSWER_LIMIT_S = 2.0
"""Seconds for one answer [s]: while one is awaited, neither death nor the deadline is seen."""
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """An engine that answers: where (scheme, host, port), and how long that took [s] from the call of `wait_ready`."""

    base_url: str
    waited_s: float


def wait_ready(
    process: EngineProcess,
    find_url: Callable[[], str | None],
    *,
    path: str,
    timeout_s: float,
    clock: Clock = SYSTEM,
) -> Ready:
    """Poll `find_url() + path` until it answers 200 (`find_url` gives None while the address isn't known).

    Raises: EngineStartError at once when the process ends, or after `timeout_s` [s], with the log's tail and the likely
    cause; PortTakenError where that is a taken port.
    """
    began_ns = clock.monotonic_ns()
    pause_s = _POLL_S
    last = "it has not said where it listens"
    while True:
        if (how := process.failure()) is not None:
            raise died(process, how, "was ready")
        if (base_url := find_url()) is not None:
            answer = get(base_url + path, timeout_s=_ANSWER_LIMIT_S)
            if isinstance(answer, Answer) and answer.status == 200:
                _check_owner(process, base_url)
                return Ready(base_url=base_url, waited_s=(clock.monotonic_ns() - began_ns) / 1e9)
            last = _describe(answer)
        waited_s = (clock.monotonic_ns() - began_ns) / 1e9
        if waited_s >= timeout_s:
            raise late(process, waited_s, last)
        clock.sleep(min(pause_s, timeout_s - waited_s))
        pause_s = min(pause_s * 1.3, _SLOWEST_POLL_S)


def on_free_port(attempt: Callable[[int], T]) -> T:
    """`attempt(port)` with a free port, again with another one when the port was taken in between.

    Raises: what `attempt` raises; PortTakenError when it happened on every one of a few tries.
    """
    for _ in range(_PORT_ATTEMPTS - 1):
        try:
            return attempt(free_port())
        except PortTakenError:
            continue
    return attempt(free_port())


def _check_owner(process: EngineProcess, base_url: str) -> None:
    """Somebody else's server on our port would pass every other check: the engine may still be on its way to fail. A port that is
    published for it has been taken for it, or it would not have been started.
    """
    if process.box is not None and not process.box.shares_network:
        return
    port = urlsplit(base_url).port
    if port is not None and listens(process.pids, port) is False:
        raise PortTakenError(
            f"{process.name} does not listen on port {port}: another process answers there",
            hint="run it again: another free port is chosen",
            log_tail=process.log_tail(_TAIL_LINES),
            log_path=str(process.log_path),
        )


def _describe(answer: Answer | NoAnswer) -> str:
    return f"its last answer was HTTP {answer.status}" if isinstance(answer, Answer) else f"no answer ({answer.kind})"


def died(process: EngineProcess, how: str, before_it: str) -> EngineStartError:
    """An engine that ended before it `was ready`: its log, and the likely cause."""
    known = process.diagnosis()
    kind = PortTakenError if known is not None and known.kind == "port" else EngineStartError
    hint = known.hint if known else f"the engine's whole log: {process.log_path}"
    tail = process.log_tail(_TAIL_LINES)
    return kind(f"{how}, before it {before_it}", hint=hint, log_tail=tail, log_path=str(process.log_path))


def late(process: EngineProcess, waited_s: float, last: str) -> EngineStartError:
    """An engine that runs and was not ready in time; `last` is what it did instead."""
    known = process.diagnosis()
    why = f"; its log points to this: {known.cause}" if known else ""
    return EngineStartError(
        f"{process.name} was not ready after {waited_s:.1f} s: {last}{why}",
        hint=known.hint if known else f"give it a longer start time, or look at its log: {process.log_path}",
        log_tail=process.log_tail(_TAIL_LINES),
        log_path=str(process.log_path),
    )
