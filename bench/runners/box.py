"""What an engine may run in."""

from __future__ import annotations

from typing import Protocol

from bench.records import Scalar
from bench.runners.diagnosis import Diagnosis


class Box(Protocol):
    """What an engine runs in where our own child is only the client of it: a container. It outlives that child until it is
    removed.
    """

    settings: dict[str, Scalar]
    """What of it is kept with a trial."""
    shares_network: bool
    """Whether the engine listens on this host's own addresses; else its port is published on them, by somebody else's process."""

    @property
    def removal(self) -> tuple[str, ...]:
        """The command that ends it with all that runs in it, however it stands."""
        ...

    def remove(self) -> str | None:
        """Run `removal`. Returns what went wrong; one that is not there is no problem."""
        ...

    def pids(self) -> tuple[int, ...]:
        """The roots of its process trees on this host; empty before it runs."""
        ...

    def ended(self, status: int) -> int:
        """Called when the client has ended with `status`, before anything is removed. Returns that of the engine, negative for a
        signal.
        """
        ...

    def cause(self) -> Diagnosis | None:
        """Why it ended, where that is known without its log."""
        ...
