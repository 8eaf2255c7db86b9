"""A load worker: one process, one event loop, one share of the load. Started by `bench.load.coordinator`, told what to do
over its standard input. It ends when its parent does.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BenchError
from bench.load.address import Address, route
from bench.load.closed import ClosedLoop
from bench.load.columns import column_path, parse_spill, spill_path
from bench.load.data.book import BookSource
from bench.load.driver import Driver, Gauges
from bench.load.health import GAUGES
from bench.load.keys import key_in
from bench.load.messages import (
    Arm,
    Build,
    Done,
    Failed,
    FromWorker,
    Go,
    Halt,
    Inbox,
    Job,
    Probe,
    Probed,
    Ready,
    Refused,
    ToWorker,
    last_line,
    pack,
)
from bench.load.open import OpenLoop
from bench.load.preflight import Preflight
from bench.load.prompts import Calibration, PromptPool, PromptSource
from bench.load.protocols import WireProtocol, wire_protocol
from bench.load.retokenize import Retokenizer
from bench.load.spill import Meta, SpillWriter
from bench.load.stepped import SteppedLoop
from bench.records import Case, Target

_PR_SET_PDEATHSIG = 1
_TICK_S = 0.05
_TICKS_PER_GLANCE = 5


def way_to(target: Target) -> tuple[WireProtocol, Address]:
    """How to speak to a target, and where: through a proxy where the environment names one. Raises: UsageError."""
    protocol = wire_protocol(target.protocol)
    return protocol, route(target.base_url, os.environ, versioned=protocol.versioned)


def prompts_for(job: Job, calibration: Calibration, protocol: WireProtocol, address: Address) -> PromptSource:
    """Where a worker's requests come from: made up, or out of the book that the harness has written."""
    case, target, key = job.case, job.target, key_in(job.target.api_key_env)
    if case.dataset != "synthetic":
        folder = Path(job.spill_dir)
        return BookSource(folder, case=case, target=target, protocol=protocol, address=address, key=key, salt=job.salt)
    return PromptPool(
        case=case, target=target, protocol=protocol, address=address, key=key, salt=job.salt,
        calibration=calibration, worker=job.worker, workers=job.workers,
    )  # fmt: skip


def driver_for(case: Case) -> type[Driver]:
    """What decides when requests of a case go out."""
    if case.load.kind == "open":
        return OpenLoop
    return SteppedLoop if case.load.stages else ClosedLoop


class Worker:
    """Reacts to the coordinator's messages."""

    def __init__(self, out_fd: int, loop_name: str) -> None:
        self._out_fd, self._loop_name = out_fd, loop_name
        self._inbox = Inbox(ToWorker)
        self._job: Job | None = None
        self._driver: Driver | None = None
        self._pool: PromptSource | None = None
        self._spill: SpillWriter | None = None
        self._ticks = 0
        self._last: tuple[object, ...] = ()
        self._tasks: set[asyncio.Task[None]] = set()
        self.over = asyncio.Event()

    def readable(self) -> None:
        """The coordinator said something, or is gone."""
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.orphaned()
        for message in self._inbox.feed(data):
            try:
                self._react(message)
            except Exception as error:  # noqa: BLE001  a process's border: what is not said here leaves the harness waiting
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that this worker can't go on, and why. It ends us then."""
        if isinstance(error, BenchError):
            self._say(Failed(str(error), error.hint))
        elif isinstance(error, OSError):
            hint = "let a process have more: ulimit -n" if error.errno == errno.EMFILE else None
            self._say(Failed(f"the load worker can't go on: {error.strerror or last_line(error)}", hint))
        else:
            self._say(Failed(f"the load worker failed: {type(error).__name__}: {last_line(error)}"))

    def loop_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody caught. Those of sockets are the server's doing: the request that they hit is booked."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self.fail(error)
        else:
            loop.default_exception_handler(context)

    def orphaned(self) -> None:
        """Nobody is left to report to: keep what was seen, and go."""
        if self._driver is not None and self._spill is not None and not self._driver.stopped:
            for connection in list(self._driver.live):
                connection.flush()
            self._spill.close()
        os._exit(1)

    def _react(self, message: object) -> None:
        match message:
            case Job():
                self._job = message
            case Probe():
                task = asyncio.get_running_loop().create_task(self._probe())
                self._tasks.add(task)
            case Build():
                self._build(message)
            case Go() if self._driver is not None:
                gc.collect()
                gc.freeze()
                gc.disable()
                self._driver.begin(message.start_ns)
                # from here on there is something to save; before, SIGTERM ends even a worker that is busy making prompts
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.orphaned)
                self._tick()
            case Arm() if self._driver is not None:
                self._driver.arm(message)
            case Halt():
                self._finish()

    async def _probe(self) -> None:
        assert self._job is not None
        job = self._job
        try:
            protocol, address = way_to(job.target)
            self._say(Probed(await Preflight(job, protocol, address, key_in(job.target.api_key_env)).run()))
        except BenchError as error:
            self._say(Refused(str(error), error.hint))
        except Exception as error:  # noqa: BLE001  a process's border, as in `readable`
            self.fail(error)

    def _build(self, message: Build) -> None:
        assert self._job is not None
        job = self._job
        protocol, address = way_to(job.target)
        self._pool = prompts_for(job, message.calibration, protocol, address)
        meta = Meta(job.target.protocol, job.worker, job.target.api_key_env)
        self._spill = SpillWriter(spill_path(Path(job.spill_dir), job.worker), meta)
        self._driver = driver_for(job.case)(
            case=job.case, address=address, protocol=protocol, pool=self._pool, spill=self._spill,
            worker=job.worker, workers=job.workers,
        )  # fmt: skip
        self._say(Ready())

    def _tick(self) -> None:
        """Report four times a second, and at once when something turns that the coordinator waits for."""
        assert self._driver is not None
        assert self._spill is not None
        if self._driver.stopped:
            return
        if self._spill.failure is not None:
            self._say(self._disk_failure())
            return
        turned = self._driver.turning_points()
        self._ticks += 1
        if turned != self._last or self._ticks % _TICKS_PER_GLANCE == 0:
            self._say(self._driver.progress(), may_drop=turned == self._last)
            self._last = turned
        asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _finish(self) -> None:
        if self._driver is None or self._spill is None or self._job is None or self._pool is None:
            self.over.set()
            return
        self._driver.stop()
        self._spill.close()
        if self._spill.failure is not None:
            self._say(self._disk_failure())
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # parsing blocks the loop: let a signal end it
        folder = Path(self._job.spill_dir)
        self._save_gauges(folder, self._driver.gauges)
        tokenizer = self._job.case.tokenizer
        parse_spill(folder, self._job.worker, Retokenizer(tokenizer) if tokenizer is not None else None)
        self._say(Done(self._loop_name, self._pool.recycled))
        self.over.set()

    def _save_gauges(self, folder: Path, gauges: Gauges) -> None:
        assert self._job is not None
        for name in GAUGES:
            np.array(getattr(gauges, name), dtype=np.int64).tofile(column_path(folder, self._job.worker, name))

    def _disk_failure(self) -> Failed:
        assert self._spill is not None
        return Failed(
            f"events can't be kept on disk: {self._spill.failure}", "free space where results are written, or use --results"
        )

    def _say(self, message: FromWorker, *, may_drop: bool = False) -> None:
        """Messages are shorter than a pipe's atomic write, so one goes out whole or not at all."""
        os.set_blocking(self._out_fd, not may_drop)
        with contextlib.suppress(BlockingIOError):
            try:
                os.write(self._out_fd, pack(message))
            except BrokenPipeError:
                self.orphaned()


async def _serve(out_fd: int, loop_name: str) -> None:
    worker = Worker(out_fd, loop_name)
    loop = asyncio.get_running_loop()
    os.set_blocking(0, False)
    loop.add_reader(0, worker.readable)
    loop.set_exception_handler(worker.loop_failed)
    await worker.over.wait()
    loop.remove_reader(0)


def _settle_process() -> int:
    """Die with the parent, leave Ctrl-C to it, allow as many sockets as the system does. Returns where to write messages."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a loop that is stuck would not see SIGTERM
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    out_fd = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not land among the messages
    return out_fd


def main(wanted_loop: str = "auto") -> None:
    """Serve until told to stop. `wanted_loop`: auto, uvloop or asyncio."""
    out_fd = _settle_process()
    factory, name = None, "asyncio"
    if wanted_loop != "asyncio":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            factory, name = uvloop.new_event_loop, "uvloop"
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(out_fd, name))


if __name__ == "__main__":
    main(*sys.argv[1:])
