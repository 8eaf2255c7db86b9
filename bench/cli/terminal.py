"""What a person sees while a run goes on: a live line on a terminal, one plain line an event when piped. All on stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from bench.printable import printable
from bench.records import LoadProgress, Status, TrialRecord
from bench.units import format_bytes

if TYPE_CHECKING:
    from bench.cli.live_line import LiveObserver

_BUSY_SHARE = 0.5
"""Processes running per core above which a machine counts as busy."""
PHASES = {
    "pull": "model",
    "start": "starting the engine",
    "attach": "attaching",
    "idle": "measuring idle power",
    "check": "comparing its answers",
    "warmup": "warming up",
    "measure": "measuring",
    "drain": "waiting for the last requests",
    "save": "saving",
    "trial": "trial",
}


def busy_note() -> str | None:
    """A sentence where other work on this machine is about to be measured too."""
    if not hasattr(os, "getloadavg"):
        return None
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= _BUSY_SHARE * cores:
        return None
    return f"this machine is busy ({load:.1f} processes running on {cores} cores): its other work will be measured too"


def observer(stream: TextIO | None = None) -> PlainObserver | LiveObserver:
    """The observer that suits the stream (stderr if None)."""
    stream = stream or sys.stderr
    if not stream.isatty():
        return PlainObserver(stream)
    from bench.cli.live_line import LiveObserver

    return LiveObserver(stream)


def trial_line(record: TrialRecord) -> str:
    """One finished trial in one line."""
    key = record.key
    parts = [f"{record.case.name} #{key.repeat}: {record.status.value}"]
    for name, text in (("output_tok_per_s", "{:.1f} tok/s"), ("ttft_ms", "TTFT {:.1f} ms"), ("j_per_output_tok", "{:.3f} J/tok")):
        metric = record.metrics.get(name)
        number = None if metric is None else (metric.value if metric.value is not None else metric.p50)
        if number is not None:
            parts.append(text.format(number))
    if record.status is not Status.VALID:
        reasons = dict.fromkeys(reason.message for reason in record.reasons if reason.severity == "invalid")
        parts.append(record.error.splitlines()[0] if record.error else "; ".join(reasons))
    return ", ".join(part for part in parts if part)


class PlainObserver:
    """A line an event; nothing is ever redrawn."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tenth = -1

    def __enter__(self) -> PlainObserver:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def phase(self, name: str, detail: str = "") -> None:
        if name != "save":
            self._say(f"{PHASES.get(name, name)}{f': {detail}' if detail else ''}")

    def bytes_done(self, what: str, done: int, total: int | None) -> None:
        tenth = -1 if not total else done * 10 // total
        if tenth != self._tenth:
            self._tenth = tenth
            whole = f" of {format_bytes(total)}" if total else ""
            self._say(f"  {what}: {format_bytes(done)}{whole}")

    def load(self, progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> None:
        """Piped output tells phases, not every glance."""

    def trial_done(self, record: TrialRecord) -> None:
        self._say(trial_line(record))

    def note(self, message: str) -> None:
        self._say(f"note: {message}")

    def _say(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)
