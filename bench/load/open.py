"""Open loop: requests go out at moments that were fixed beforehand, however long the answers take."""

from __future__ import annotations

from array import array
from collections import deque
from math import inf
from time import perf_counter_ns

from bench.load.arrivals import arrival_offsets_s, partition, share
from bench.load.dial import DIALS_AT_ONCE
from bench.load.driver import Driver
from bench.load.spill import End
from bench.load.timer import MomentTimer
from bench.load.wire import Connection
from bench.records import MISSING


class OpenLoop(Driver):
    """Sends each request when it is due. Where `max_concurrency` holds one back, its due time stays: queueing is not hidden.

    One that finds no idle connection waits for the first to be had, be it new or freed by another request. Were each tied to a
    connection of its own, a stall would leave thousands to open, with the freed ones idle beside them.
    """

    def start(self, start_ns: int) -> None:
        load = self.case.load
        horizon_s = self.case.warmup_s + self.case.duration_s + self.case.grace_s
        everyone = self.pool.due_s()
        if everyone is None:
            everyone = arrival_offsets_s(load, horizon_s, self.case.seed, warmup_s=self.case.warmup_s)
        offsets = everyone[list(partition(len(everyone), self.workers, self.worker))]
        self._due_ns = array("q", (start_ns + (offsets * 1e9).astype("int64")).tobytes())
        self._next = 0
        self._cap = inf if load.max_concurrency is None else share(load.max_concurrency, self.workers, self.worker)
        self._busy = 0
        self._queue: deque[int] = deque()
        self._waiting: dict[int, tuple[int, int]] = {}  # for a connection: number -> (due, when it could have gone) [ns]
        self._dials = 0
        self._idle: list[Connection] = []
        self._timer = MomentTimer(self.loop, self._tick)
        self._tick()

    def slots(self) -> int:
        return 0

    def waiting_before(self, t1_ns: int) -> bool:
        return bool(self._queue and self._queue[0] < t1_ns) or (
            self._next < len(self._due_ns) and self._due_ns[self._next] < t1_ns
        )

    def exhausted(self) -> bool:
        return self._next == len(self._due_ns) and not self._queue and self._busy == 0

    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None:
        good = self.count(connection, end)
        if good and reusable and not connection.dead:
            self._hand_over(connection)
        elif not connection.dead:
            self.forget(connection)
            connection.close()
        self._free(connection.now_ns)

    def unsent(self, slot: int) -> None:
        self._free(perf_counter_ns())

    def stop(self) -> None:
        super().stop()
        self._timer.close()
        self._own_up()

    def _own_up(self) -> None:
        """Book what was due in the window and was never sent: held back by `max_concurrency`, or still dialling. Left out, it
        would make an overloaded server look as if less had been asked of it.
        """
        now_ns = perf_counter_ns()
        held_back = [(self.next_number(), due_ns) for due_ns in (*self._queue, *self._due_ns[self._next :])]
        waiting = [(number, due_ns) for number, (due_ns, _) in self._waiting.items()]
        for number, due_ns in (*waiting, *held_back):
            if self.t0_ns <= due_ns < min(self.t1_ns, now_ns):
                self.spill.sent(number, due_ns, MISSING, MISSING, MISSING)
                self.spill.end(
                    number, MISSING, now_ns, End.CANCELLED, status=0, error="never sent: it was still waiting for its turn"
                )

    def _tick(self) -> None:
        """Send all that is due, then sleep until the next is."""
        if self.stopped:
            return
        now_ns = perf_counter_ns()
        due = self._due_ns
        while self._next < len(due) and due[self._next] <= now_ns:
            self._queue.append(due[self._next])
            self._next += 1
        self._drain(MISSING)
        if self._next < len(due):
            self._timer.set(due[self._next])

    def _drain(self, freed_ns: int) -> None:
        """Send what is queued while there is room. `freed_ns`: when a full house got a free place, else `MISSING`."""
        while self._queue and self._busy < self._cap:
            scheduled_ns = self._queue.popleft()
            self._busy += 1
            possible_ns = max(scheduled_ns, freed_ns)
            number = self.next_number()  # now, not once there is a connection: what is due first is the first of the data
            connection = self._take_idle()
            if connection is None:
                self._waiting[number] = scheduled_ns, possible_ns
                self.book(number, scheduled_ns)
                self._dial_more()
            else:
                self._launch(connection, number, scheduled_ns, possible_ns)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.dead:
                return connection
            self.forget(connection)
        return None

    def _launch(self, connection: Connection, number: int, scheduled_ns: int, possible_ns: int) -> None:
        """Send lag is ours from the moment when the request could have gone: waiting for a free place is the load's doing."""
        sent_ns = self.send(connection, scheduled_ns, number)
        self.gauges.send_at_ns.append(sent_ns)
        self.gauges.send_lag_ns.append(sent_ns - possible_ns)

    def _free(self, now_ns: int) -> None:
        self._busy -= 1
        if not self.stopped:
            self._drain(now_ns)

    def _hand_over(self, connection: Connection) -> None:
        """A connection that can be used goes to who has waited longest."""
        if self._waiting and not self.stopped:
            self._launch(connection, *self._longest_waiting())
        else:
            self._idle.append(connection)

    def _longest_waiting(self) -> tuple[int, int, int]:
        number = next(iter(self._waiting))
        return number, *self._waiting.pop(number)

    def _dial_more(self) -> None:
        """As many connections at once as wait for one, within what a server's backlog bears."""
        while self._dials < min(DIALS_AT_ONCE, len(self._waiting)):
            self._dials += 1
            self.spawn(self._dial())

    async def _dial(self) -> None:
        tried_ns = perf_counter_ns()
        try:
            connection = await self.dialer.connect()
        except OSError as error:
            self._dials -= 1
            self._refused(tried_ns, error)
        else:
            self._dials -= 1
            self.live[connection] = None
            self._hand_over(connection)
        self._dial_more()

    def _refused(self, tried_ns: int, error: OSError) -> None:
        """No connection could be had: who has waited longest fails by that."""
        if self._waiting:
            number, scheduled_ns, _ = self._longest_waiting()
            _, asked_in, asked_out = self.pool.take(number)
            self.spill.sent(number, scheduled_ns, tried_ns, asked_in, asked_out)
            self.fail_to_connect(scheduled_ns, tried_ns, error, number)
            self.unsent(0)
