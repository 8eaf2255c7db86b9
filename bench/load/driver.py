"""What closed and open loop share: numbering, sending, counting, the heartbeat, the window, the end."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from array import array
from dataclasses import dataclass, field
from time import perf_counter_ns

from bench.load.address import Address
from bench.load.dial import Dialer
from bench.load.messages import Arm, Progress
from bench.load.prompts import PromptSource
from bench.load.protocols import WireProtocol
from bench.load.spill import End, SpillWriter
from bench.load.timer import MomentTimer
from bench.load.watch import ContentWatch
from bench.load.wire import Connection
from bench.records import MISSING, Case

HEARTBEAT_NS = 10_000_000
_FLUSH_EVERY = 25
_FLUSH_B = 256 << 10
"""What has gathered goes to the disk's thread four times a second, or sooner in pieces of this size: waking it costs."""
_SWEEP = 100
"""Heartbeats in which every connection is flushed once and looked at for a time-out: one second."""


@dataclass(slots=True)
class Gauges:
    """What a worker observes of itself: pairs of (when, how much), all in ns."""

    beat_at_ns: array[int] = field(default_factory=lambda: array("q"))
    beat_lag_ns: array[int] = field(default_factory=lambda: array("q"))
    send_at_ns: array[int] = field(default_factory=lambda: array("q"))
    send_lag_ns: array[int] = field(default_factory=lambda: array("q"))
    cpu_at_ns: array[int] = field(default_factory=lambda: array("q"))
    cpu_ns: array[int] = field(default_factory=lambda: array("q"))

    def cpu(self, now_ns: int) -> None:
        self.cpu_at_ns.append(now_ns)
        self.cpu_ns.append(time.process_time_ns())


class Driver(ABC):
    """Sends one worker's share of the load. Subclasses decide when."""

    def __init__(
        self,
        *,
        case: Case,
        address: Address,
        protocol: WireProtocol,
        pool: PromptSource,
        spill: SpillWriter,
        worker: int,
        workers: int,
    ) -> None:
        self.case, self.protocol, self.pool, self.spill = case, protocol, pool, spill
        self.worker, self.workers = worker, workers
        self.dialer = Dialer(address, self)
        self.loop = asyncio.get_running_loop()
        self.gauges = Gauges()
        self.live: dict[Connection, None] = {}
        self.completed = self.failed = self.reads = self.begun = 0
        self.warm: set[int] = set()
        self.barren: set[int] = set()
        self.t0_ns = self.t1_ns = MISSING
        self._booked: dict[int, int] = {}
        self._window_left: set[int] | None = None
        self.stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._beats = 0
        self._sweep_at: list[Connection] = []

    @property
    def sink(self) -> SpillWriter:
        return self.spill

    # --- what subclasses do

    @abstractmethod
    def start(self, start_ns: int) -> None:
        """Begin to send."""

    @abstractmethod
    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None:
        """One request is over: count it, and send what comes next."""

    @abstractmethod
    def unsent(self, slot: int) -> None:
        """No connection could be had for a request; it is booked as failed. Give its place back."""

    @abstractmethod
    def slots(self) -> int:
        """Requests that are to be in flight at once; 0 where that isn't given."""

    @abstractmethod
    def waiting_before(self, t1_ns: int) -> bool:
        """Whether requests that are due before `t1_ns` still wait for their turn."""

    @abstractmethod
    def exhausted(self) -> bool:
        """A count-bound job has nothing left to send or to wait for."""

    # --- life of the load

    def begin(self, start_ns: int) -> None:
        """Start the heartbeat and the load."""
        self._pulse = MomentTimer(self.loop, self._beat)
        self._beat_due_ns = perf_counter_ns()
        self._beat()
        self.start(start_ns)

    def arm(self, window: Arm) -> None:
        """The window is known; watch its two edges."""
        self.t0_ns, self.t1_ns = window.t0_ns, window.t1_ns
        self.at(window.t0_ns, lambda: self.gauges.cpu(perf_counter_ns()))
        self.at(window.t1_ns, self._close_window)

    def at(self, when_ns: int, call: object) -> None:
        """Call at a moment of the monotonic clock."""
        self.loop.call_later(max(0.0, (when_ns - perf_counter_ns()) / 1e9), call)  # type: ignore[arg-type]

    def stop(self) -> None:
        """Cut off all that is in flight."""
        self.stopped = True
        self._pulse.close()
        for task in self._tasks:
            task.cancel()
        for connection in list(self.live):
            if connection.in_flight:
                connection.give_up(End.CANCELLED)
            else:
                connection.close()
        self.live.clear()
        self.gauges.cpu(perf_counter_ns())

    def progress(self) -> Progress:
        """A glance for the coordinator."""
        in_flight = sum(c.in_flight for c in self.live)
        reads = self.reads + sum(c.reads + len(c.stamps) for c in self.live)
        return Progress(
            in_flight,
            self.completed,
            self.failed,
            reads,
            self.slots(),
            len(self.warm),
            len(self.barren - self.warm),
            self.settled(),
        )

    def settled(self) -> bool:
        """Every request that the window or the job waits for has ended."""
        if self.case.load.num_prompts is not None:
            return self.exhausted()
        return self._window_left is not None and not self._window_left and not self.waiting_before(self.t1_ns)

    def turning_points(self) -> tuple[object, ...]:
        """What the coordinator waits for: it is told at once when this changes."""
        return len(self.warm), len(self.barren), self.settled()

    # --- for subclasses

    def spawn(self, work: object) -> None:
        """Run a coroutine that ends with the load."""
        task: asyncio.Task[None] = self.loop.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[None]) -> None:
        """A task is over. What it failed by is told at once: left alone, it would show when garbage is collected, or never."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.loop.call_exception_handler({"message": "a request could not be sent", "exception": error})

    def next_number(self) -> int:
        """Number of the next request in the whole trial."""
        number = self.worker + self.begun * self.workers
        self.begun += 1
        return number

    def book(self, number: int, key_ns: int) -> None:
        """A request is on its way: dialling, in flight or to be sent again. `key_ns`: when it was due, or sent (closed loop)."""
        self._booked[number] = key_ns
        if self._window_left is not None and self.t0_ns <= key_ns < self.t1_ns:
            self._window_left.add(number)

    def _unbook(self, number: int) -> None:
        self._booked.pop(number, None)
        if self._window_left is not None:
            self._window_left.discard(number)

    def count(self, connection: Connection, end: End) -> bool:
        """Book an ended request; True if the wire says that it went well."""
        good = end is End.COMPLETE and connection.status == 200
        self.completed += good
        self.failed += not good
        self._unbook(connection.request)
        if connection.dead:
            self.forget(connection)
        return good

    def forget(self, connection: Connection) -> None:
        """A connection that is of no more use."""
        if connection in self.live:
            del self.live[connection]
            self.reads += connection.reads

    def fail_to_connect(self, scheduled_ns: int, tried_ns: int, error: OSError, number: int | None = None) -> None:
        """Book a request for which no connection could be had. `number`: of one that is booked as sent already."""
        now_ns = perf_counter_ns()
        if number is None:
            number = self.next_number()
            _, asked_in, asked_out = self.pool.take(number)
            self.spill.sent(number, scheduled_ns, tried_ns, asked_in, asked_out)
        self.spill.end(number, MISSING, now_ns, End.CONNECT, status=0, error=f"can't connect: {error.strerror or error}")
        self.failed += 1
        self._unbook(number)

    def send(self, connection: Connection, scheduled_ns: int = MISSING, number: int | None = None) -> int:
        """Send a request on a connection, the next one where no `number` is given; returns when [ns]."""
        if number is None:
            number = self.next_number()
        payload, asked_in, asked_out = self.pool.take(number)
        sent_ns = connection.send(number, payload, scheduled_ns)
        self.spill.sent(number, scheduled_ns, sent_ns, asked_in, asked_out)
        self.book(number, scheduled_ns if scheduled_ns != MISSING else sent_ns)
        return sent_ns

    def watch(self) -> ContentWatch:
        return ContentWatch(self.protocol)

    def unanswered(self, connection: Connection) -> None:
        self.forget(connection)
        if not self.stopped:
            self.spawn(self._redial(connection))

    async def _redial(self, old: Connection) -> None:
        """Send again what went into a connection that the server had already closed: not the server's failure to answer."""
        try:
            connection = await self.dialer.connect()
        except OSError as error:
            self.fail_to_connect(old.scheduled_ns, old.sent_ns, error, old.request)
            self.unsent(old.slot)
            return
        connection.slot, connection.watch = old.slot, old.watch
        self.live[connection] = None
        connection.send(old.request, old.payload, old.scheduled_ns, old.sent_ns)

    @property
    def streamed(self) -> bool:
        """Whether answers show their first token; else they have it at their end."""
        return self.case.stream

    def first_content(self, connection: Connection) -> None:
        self.warm.add(connection.slot)

    # --- window and heartbeat

    def _close_window(self) -> None:
        self.gauges.cpu(perf_counter_ns())
        self._window_left = {n for n, key_ns in self._booked.items() if self.t0_ns <= key_ns < self.t1_ns}

    def _beat(self) -> None:
        if self.stopped:
            return
        now_ns = perf_counter_ns()
        self.gauges.beat_at_ns.append(now_ns)
        self.gauges.beat_lag_ns.append(max(0, now_ns - self._beat_due_ns))
        if self._beats % _SWEEP == 0:
            self.gauges.cpu(now_ns)
        self._beats += 1
        self._sweep(now_ns)
        if self._beats % _FLUSH_EVERY == 0 or self.spill.pending_b > _FLUSH_B:
            self.spill.flush()
        self._beat_due_ns = perf_counter_ns() + HEARTBEAT_NS
        self._pulse.set(self._beat_due_ns)

    def _sweep(self, now_ns: int) -> None:
        """Flush and check a hundredth of the connections: all of them once a second, none of them in a burst."""
        if not self._sweep_at:
            self._sweep_at = list(self.live)
        limit_ns = now_ns - int(self.case.request_timeout_s * 1e9)
        for _ in range(-(-len(self.live) // _SWEEP)):
            if not self._sweep_at:
                return
            connection = self._sweep_at.pop()
            if connection.in_flight:
                connection.flush()
                if connection.sent_ns < limit_ns:
                    connection.give_up(End.TIMEOUT)
