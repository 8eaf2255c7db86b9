"""What a person sees while a run goes on: a live line on a terminal, one plain line an event when piped. All on stderr."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from bench.printable import printable
from bench.records import LoadProgress, Status, TrialRecord
from bench.units import format_bytes

_BUSY_SHARE = 0.5
"""Processes running per core above which a machine counts as busy."""
_PHASES = {
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
    return LiveObserver(stream) if stream.isatty() else PlainObserver(stream)


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


def _load_text(progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> str:
    parts = [f"{progress.chunks_per_s:.0f} reads/s", f"{progress.in_flight} in flight", f"{progress.completed} done"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if power_w is not None:
        parts.append(f"{power_w:.0f} W")
    if seconds_left is not None:
        parts.append(f"{seconds_left:.0f} s left")
    return ", ".join(parts)


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
            self._say(f"{_PHASES.get(name, name)}{f': {detail}' if detail else ''}")

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


class LiveObserver:
    """One live line under the finished trials."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> LiveObserver:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def phase(self, name: str, detail: str = "") -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        if name == "trial":
            self._console.print(Text(printable(detail), style="bold"))
            return
        self._task = self._progress.add_task(_PHASES.get(name, name), total=None, detail=printable(detail))

    def bytes_done(self, what: str, done: int, total: int | None) -> None:
        if self._task is not None:
            whole = f" of {format_bytes(total)}" if total else ""
            self._progress.update(
                self._task, completed=done, total=total, detail=f"{printable(what)} {format_bytes(done)}{whole}"
            )

    def load(self, progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> None:
        if self._task is None:
            return
        total = None if seconds_left is None else progress.elapsed_s + seconds_left
        detail = _load_text(progress, power_w, seconds_left)
        self._progress.update(self._task, completed=progress.elapsed_s, total=total, detail=detail)

    def trial_done(self, record: TrialRecord) -> None:
        colour = "green" if record.status is Status.VALID else "red"
        self._console.print(Text.assemble("  ", (record.status.value, colour), " ", printable(trial_line(record))))

    def note(self, message: str) -> None:
        self._console.print(Text(printable(f"note: {message}")))
