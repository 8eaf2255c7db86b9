"""Ascend chips through `npu-smi`, run once a second: the last way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bench.clock import Clock
from bench.probes import tool
from bench.probes.ascend import tool_text
from bench.probes.ascend.tool_text import Common, Place
from bench.probes.card_probe import Opened
from bench.probes.command import output
from bench.probes.tool import Told
from bench.probes.values import Unavailable, attempt

_FOLDERS = "/usr/local/sbin:/usr/local/bin"

Run = Callable[[Sequence[str]], str]


class NpuSmi:
    """The tool at `path`. Where a card's power stands in no table, that card is asked for it."""

    def __init__(self, path: str, run: Run = output) -> None:
        self._run = partial(_run, run, path)
        self._logic: Mapping[Place, str] | None = None

    def read(self) -> list[Told]:
        """All devices, as of now. Raises: Unavailable."""
        if self._logic is None:
            listed = attempt(lambda: self._run("-m"))[0]
            self._logic = tool_text.parse_mapping(listed) if listed else {}
        text = self._run()
        commons = {card: self._common(card) for card in tool_text.cards_by_microcontroller(text)}
        return tool_text.parse(text, self._logic, commons)

    def _common(self, card: int) -> Common:
        try:
            return tool_text.parse_common(self._run("-t", "common", "-i", str(card)))
        except Unavailable as error:
            return Common(failure=str(error))


def _run(run: Run, path: str, *args: str) -> str:
    return run([path, "info", *args])


def find(env: Mapping[str, str]) -> str | None:
    """Path of `npu-smi`; None where it is not installed."""
    return shutil.which("npu-smi", path=env.get("PATH")) or shutil.which("npu-smi", path=_FOLDERS)


def open_cards(path: str, clock: Clock) -> Opened:
    """The cards, asked again and again. Raises: Unavailable."""
    return tool.opened("npu-smi info", NpuSmi(path).read, clock)
