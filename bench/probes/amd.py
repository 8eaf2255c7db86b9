"""AMD boards: `amdsmi`, else `pyrsmi`; then the kernel's files for what they lack; then `amd-smi` or `rocm-smi`.

The library numbers all GPUs in PCI order and ignores `ROCR_VISIBLE_DEVICES`: join on the unique id.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes import amd_card, amd_cli, amd_library, amd_rsmi, amd_sysfs, counter_check, presence
from bench.probes.amd_card import Board, Card
from bench.probes.presence import Roots
from bench.probes.values import Unavailable
from bench.records import ProbeProblem, Reading

NAME = "amd"
_LIBRARY_FIX = (
    "install ROCm's amd-smi-lib (its binding is read from /opt/rocm/share/amd_smi; ROCM_PATH says where ROCm is), "
    "or pip install 'tokjoule[amd]' of the same major version"
)


class AmdProbe:
    """One device a GPU die or partition; power once a board. On an APU power is that of CPU and GPU: scope `module`."""

    name = NAME

    def __init__(
        self,
        roots: Roots | None = None,
        env: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM,
        *,
        check_s: float = counter_check.CHECK_S,
    ) -> None:
        self._env = os.environ if env is None else env
        self._roots = roots or Roots.of(self._env)
        self._clock = clock
        self._check_s = check_s
        self._library: amd_library.Amdsmi | None = None
        self._tool: amd_cli.Tool | None = None
        self._boards: dict[str, Board] = {}

    def discover(self) -> Discovery:
        self.close()
        problems: list[ProbeProblem] = []
        by_library, why = self._by_library()
        sources = [by_library, amd_sysfs.cards(self._roots)]
        boards = self._made(sources, problems)
        if self._wants_tool(boards):
            sources.append(self._by_tool(problems))
            boards = self._made(sources, problems) if sources[-1] else boards
        problems.extend(_lacking(boards, why))
        problems.extend(self._unseen(boards))
        problems.extend(self._check_counters(boards))
        self._boards = {board.info.uid: board for board in boards}
        return Discovery(devices=tuple(board.info for board in boards), problems=tuple(problems))

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery()

    def sample(self, uid: str) -> Reading:
        board = self._boards.get(uid)
        if board is None:
            raise ProbeError(f"the amd probe has no device {uid!r}")
        return board.sample(self._clock)

    def close(self) -> None:
        self._boards.clear()
        if self._tool is not None:
            self._tool.close()
            self._tool = None
        if self._library is not None:
            self._library.close()
            self._library = None

    def _by_library(self) -> tuple[list[Card], str | None]:
        """Cards of the library, and why there are none."""
        try:
            self._library = amd_library.load(self._env)
            return amd_library.cards(self._library, self._clock), None
        except (Unavailable, ProbeError) as error:
            return [], str(error)
        except amd_library.CannotLoad as error:
            why = str(error)
        try:
            return amd_rsmi.cards(amd_rsmi.load()), None
        except amd_library.CannotLoad as error:
            return [], f"{why}; {error}"

    def _by_tool(self, problems: list[ProbeProblem]) -> list[Card]:
        self._tool = amd_cli.find(self._env, self._clock)
        if self._tool is None:
            return []
        try:
            return self._tool.cards()
        except Unavailable as error:
            problems.append(_problem("amd-smi", str(error), "run `amd-smi metric --json` by hand: it tells more"))
            return []

    def _wants_tool(self, boards: list[Board]) -> bool:
        if not boards:
            return presence.amd_card(self._roots) is not None
        covered = {uid for board in boards for uid in board.info.covers}
        return any(amd_card.needs(board, ("power_w",)) for board in boards if board.info.uid not in covered)

    def _made(self, sources: list[list[Card]], problems: list[ProbeProblem]) -> list[Board]:
        try:
            return amd_card.boards(sources)
        except ProbeError as error:
            problems.append(_problem("amd", str(error), error.hint or "amd-smi tells more"))
            return []

    def _unseen(self, boards: list[Board]) -> list[ProbeProblem]:
        """Cards that are there and that nobody can read."""
        fix = "load amdgpu (sudo modprobe amdgpu); a card given to a virtual machine is measured there"
        found = [_problem(pci, f"the card is held by {driver}", fix) for pci, driver in amd_sysfs.unserved(self._roots)]
        sign = presence.amd_card(self._roots)
        if not boards and not found and sign is not None:
            fix = "in a container start it with --device=/dev/kfd --device=/dev/dri and the groups video and render"
            found.append(_problem(sign, "no AMD GPU can be seen", fix))
        return found

    def _check_counters(self, boards: list[Board]) -> list[ProbeProblem]:
        """Counters that don't fit the power are put aside."""
        sensors = {b.info.uid: (b.energy.get, b.power.get if b.power else None) for b in boards if b.energy is not None}
        if not sensors:
            return []
        problems: list[ProbeProblem] = []
        verdicts = counter_check.check(sensors, self._clock, self._check_s)
        for board in boards:
            verdict = verdicts.get(board.info.uid)
            if verdict is None:
                continue
            if verdict.refused:
                board.energy = None
                reasons = {**board.info.reasons, "energy_j": verdict.refused}
                board.info = replace(board.info, energy=None, reasons=reasons)
            elif verdict.warning:
                fix = "the energy is checked again over each window; `bench devices selftest` compares for longer"
                problems.append(_problem(board.info.uid, verdict.warning, fix))
        return problems


def _problem(subject: str, problem: str, fix: str) -> ProbeProblem:
    return ProbeProblem(probe=NAME, subject=subject, problem=problem, fix=fix)


def _lacking(boards: list[Board], why: str | None) -> list[ProbeProblem]:
    """A missing library is nobody's problem while the kernel's files tell power and memory."""
    if why is None:
        return []
    covered: dict[str, Any] = {uid: board for board in boards for uid in board.info.covers}
    short = [b for b in boards if b.info.uid not in covered and amd_card.needs(b, ("power_w", "memory_used_b"))]
    names = ", ".join(board.info.uid for board in short)
    return [_problem(names, f"power or memory can't be read without the library: {why}", _LIBRARY_FIX)] if short else []
