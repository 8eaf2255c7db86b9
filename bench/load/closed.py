"""Closed loop: a fixed number of requests in flight, each replaced at once, on the same connection, when it ends."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

from bench.load.arrivals import share
from bench.load.driver import Driver
from bench.load.spill import End
from bench.load.wire import Connection
from bench.records import MISSING

BARREN_AFTER = 3
"""Attempts without any token after which the warm-up no longer waits for a slot."""
_BACKOFF_FIRST_S = 0.02
_BACKOFF_LAST_S = 1.0
_RETRY_AFTER_LIMIT_S = 30.0
"""A server may ask for a longer pause (`Retry-After`), but not for one that outlasts most trials."""
_SPREAD_SHARE = 0.5
"""Slots begin spread over this share of the warm-up: requests of one length that begin together go on in lockstep, and then
queue for each other in the server's intake, which no independent users would do."""


def start_offsets_s(slots: int, warmup_s: float, seed: int) -> list[float]:
    """When each slot begins [s]: at a random moment of each of as many equal parts as there are slots.

    Even steps could be as bad as none: a step may be a multiple of the time between two tokens.
    """
    if slots == 1:
        return [0.0]
    jitter = random.Random(seed)  # noqa: S311  nothing secret
    return [(slot + jitter.random()) * warmup_s * _SPREAD_SHARE / slots for slot in range(slots)]


@dataclass(slots=True)
class _Slot:
    """`failures` counts those in a row; `attempts` those that ended before the slot's first token."""

    failures: int = 0
    attempts: int = 0


class ClosedLoop(Driver):
    """Slot i always has one request in flight, from the moment when its turn comes in the warm-up."""

    def start(self, start_ns: int) -> None:
        count = share(self.case.load.batch_size or 1, self.workers, self.worker)
        self._left = None if self.case.load.num_prompts is None else share(self.case.load.num_prompts, self.workers, self.worker)
        self._open = 0
        self._slots = [_Slot() for _ in range(count if self._left is None else min(count, self._left))]
        everyone = self.case.load.batch_size or 1
        warmup_s = self.case.warmup_s if self._left is None else 0.0  # a job bound by a count has no warm-up
        offsets_s = start_offsets_s(everyone, warmup_s, self.case.seed)[self.worker :: self.workers]
        for index, offset_s in zip(range(len(self._slots)), offsets_s, strict=False):
            self.at(start_ns + round(offset_s * 1e9), partial(self._begin, index))

    def _begin(self, index: int) -> None:
        if not self.stopped and self._book():
            self.spawn(self._dial(index))

    def slots(self) -> int:
        return len(self._slots)

    def waiting_before(self, t1_ns: int) -> bool:
        return False

    def exhausted(self) -> bool:
        return self._left == 0 and self._open == 0

    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None:
        good = self.count(connection, end)
        self._open -= 1
        if self.stopped:
            return
        if good and not self.streamed:
            self.warm.add(connection.slot)
        self._judge(connection.slot, good=good)
        if not self._book():
            return
        if not good:
            self.forget(connection)
            connection.close()
            self._later(connection.slot, connection.retry_after_s)
        elif reusable and not connection.dead:
            self._send(connection, connection.now_ns)
        else:
            self.forget(connection)
            self.spawn(self._dial(connection.slot, connection.now_ns))

    def unsent(self, slot: int) -> None:
        self._open -= 1
        self._judge(slot, good=False)
        if not self.stopped and self._book():
            self._later(slot)

    def _book(self) -> bool:
        """Take one of a count-bound job's requests; always possible where time is the bound."""
        if self._left == 0:
            return False
        if self._left is not None:
            self._left -= 1
        self._open += 1
        return True

    def _judge(self, index: int, *, good: bool) -> None:
        slot = self._slots[index]
        slot.failures = 0 if good else slot.failures + 1
        if index not in self.warm:
            slot.attempts += 1
            if slot.attempts >= BARREN_AFTER:
                self.barren.add(index)

    def _send(self, connection: Connection, ended_ns: int = MISSING) -> None:
        connection.watch = self.watch() if self.streamed and connection.slot not in self.warm else None
        sent_ns = self.send(connection)
        if ended_ns != MISSING:
            self.gauges.send_at_ns.append(sent_ns)
            self.gauges.send_lag_ns.append(sent_ns - ended_ns)

    def _later(self, index: int, asked_s: float = 0.0) -> None:
        """Try a slot again after a pause that doubles with each failure: a dead server must not be hammered. `asked_s`: how long
        the server asked us to wait.
        """
        delay_s = min(_BACKOFF_LAST_S, _BACKOFF_FIRST_S * 2 ** min(self._slots[index].failures - 1, 10))
        delay_s = max(delay_s, min(asked_s, _RETRY_AFTER_LIMIT_S))
        self.loop.call_later(delay_s, lambda: None if self.stopped else self.spawn(self._dial(index)))

    async def _dial(self, index: int, ended_ns: int = MISSING) -> None:
        """A fresh connection for a slot whose next request is booked, and that request on it."""
        tried_ns = perf_counter_ns()
        try:
            connection = await self.dialer.connect()
        except OSError as error:
            self.fail_to_connect(MISSING, tried_ns, error)
            self.unsent(index)
            return
        connection.slot = index
        self.live[connection] = None
        self._send(connection, ended_ns)
