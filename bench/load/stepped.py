"""Closed loop whose number in flight changes along stages that begin at `t0`."""

from __future__ import annotations

from functools import partial

from bench.load.arrivals import levels, share
from bench.load.closed import ClosedLoop
from bench.load.messages import Arm
from bench.load.spill import End
from bench.load.wire import Connection


class SteppedLoop(ClosedLoop):
    """Slots below the level of the moment are kept filled. When it falls, requests above it end in their own time and are not
    replaced; when it rises, slots are filled at once. The last level holds after the window.
    """

    def start(self, start_ns: int) -> None:
        self._steps = [(at_s, share(level, self.workers, self.worker)) for at_s, level in levels(self.case.load.stages)]
        self._level = self._steps[0][1]
        self._parked: set[int] = set()
        super().start(start_ns)

    def slots(self) -> int:
        return self._level

    def arm(self, window: Arm) -> None:
        super().arm(window)
        for at_s, level in self._steps:
            self.at(window.t0_ns + round(at_s * 1e9), partial(self._resize, level))

    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None:
        if connection.slot < self._level or self.stopped:
            super().ended(connection, end, reusable=reusable)
            return
        self.count(connection, end)
        self._open -= 1
        self._parked.add(connection.slot)
        self.forget(connection)
        connection.close()

    def unsent(self, slot: int) -> None:
        if slot < self._level or self.stopped:
            super().unsent(slot)
            return
        self._open -= 1
        self._parked.add(slot)

    def _begin(self, index: int) -> None:
        if index < self._level:
            super()._begin(index)
        else:
            self._parked.add(index)

    def _resize(self, level: int) -> None:
        self._level = level
        for index in sorted(index for index in self._parked if index < level):
            self._parked.discard(index)
            self._begin(index)
