"""What a person sees on a terminal while a run goes on: one live line under the finished trials."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from bench.cli.terminal import PHASES, trial_line
from bench.printable import printable
from bench.records import LoadProgress, Status, TrialRecord
from bench.units import format_bytes


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
        self._task = self._progress.add_task(PHASES.get(name, name), total=None, detail=printable(detail))

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


def _load_text(progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> str:
    parts = [f"{progress.chunks_per_s:.0f} reads/s", f"{progress.in_flight} in flight", f"{progress.completed} done"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if power_w is not None:
        parts.append(f"{power_w:.0f} W")
    if seconds_left is not None:
        parts.append(f"{seconds_left:.0f} s left")
    return ", ".join(parts)
