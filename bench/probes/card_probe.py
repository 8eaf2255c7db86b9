"""What the probes of most vendors have in common: ways to the cards tried in order, devices put together, counters checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes import cards, counter_check, presence
from bench.probes.cards import Board, Card
from bench.probes.occupants import Occupants
from bench.probes.presence import Roots
from bench.probes.values import Unavailable, attempt
from bench.probes.wire import RawValue
from bench.records import ProbeProblem, Reading
from bench.units import NS_PER_S

LOOK_EVERY_S = 1
"""Seconds between two looks at who uses a device."""


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Cards as one way sees them, what can't be read that way, and how to let go of it."""

    cards: Sequence[Card]
    problems: tuple[ProbeProblem, ...] = ()
    close: Callable[[], None] = _nothing


Way = Callable[[], Opened]
"""Opens one way to the cards. Raises: Unavailable or ProbeError where it does not lead there, with the reason."""


@dataclass(slots=True)
class _Look:
    due_ns: int = 0
    foreign: float | None = None
    engine_b: int | None = None


@dataclass(slots=True)
class _State:
    boards: dict[str, Board] = field(default_factory=dict)
    closers: list[Callable[[], None]] = field(default_factory=list)
    looks: dict[str, _Look] = field(default_factory=dict)


class CardProbe:
    """A vendor's subclass says `name`, `label` (`AMD GPU`), `ways`, and where they exist `tool` and `groups`.

    `fix`: what to type when the cards are there and no library is. `seen_fix`: when not even a card can be seen, though there
    are signs of one. `trusts_counter`: whether an energy counter is taken where there is no power to check it against.
    `repeats_power`: whether each device of a group tells the power of the whole board, so that it must be counted once.
    """

    name: str
    label: str
    fix: str
    seen_fix: str
    trusts_counter = True
    repeats_power = False

    def __init__(
        self,
        roots: Roots | None = None,
        env: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM,
        *,
        check_s: float = counter_check.CHECK_S,
        harness_pid: int | None = None,
    ) -> None:
        self.env = os.environ if env is None else env
        self.roots = roots or Roots.of(self.env)
        self.clock = clock
        self._check_s = check_s
        self._occupants = Occupants(self.roots, harness_pid)
        self._state = _State()

    # --- what a vendor says ------------------------------------------------------------------------------------------

    def ways(self) -> Sequence[Way]:
        """The ways to the cards, best first. All are opened: each may tell what another lacks."""
        raise NotImplementedError

    def tool(self) -> Way | None:
        """The vendor's command-line tool, asked only where the other ways tell no power; None where it is not installed."""
        return None

    def groups(self, boards: Sequence[Board]) -> list[list[Board]]:
        """Devices of one physical board, which may have one power sensor for all of them."""
        return cards.of_one_board(boards)

    def sign(self) -> str | None:
        """A sign of the vendor's hardware that needs no library, in words."""
        return presence.card(self.roots, self.name)

    # --- the port ----------------------------------------------------------------------------------------------------

    def discover(self) -> Discovery:
        self.close()
        why: list[str] = []
        problems: list[ProbeProblem] = []
        sources = [self._open(way, why, problems) for way in self.ways()]
        boards, lost = cards.boards(self.name, self.label, sources)
        if self._wants_tool(boards) and (tool := self.tool()) is not None:
            sources.append(self._open(tool, why, problems))
            boards, lost = cards.boards(self.name, self.label, sources) if sources[-1] else (boards, lost)
        for group in self.groups(boards):
            cards.gather(group, repeated=self.repeats_power)
        problems += [*lost, *self._lacking(boards, why), *self._check_counters(boards)]
        if not boards and not problems and (sign := self.sign()) is not None:
            problems.append(self.problem(sign, _because(f"no {self.label} can be seen", why), self.seen_fix))
        self._state.boards = {board.info.uid: board for board in boards}
        return Discovery(devices=tuple(board.info for board in boards), problems=tuple(problems))

    def watch(self, pids: Iterable[int]) -> Discovery:
        """Adds no device, but tells the engine's processes from others on the devices."""
        self._occupants.watch(pids)
        self._state.looks.clear()
        return Discovery()

    def sample(self, uid: str) -> Reading:
        board = self._board(uid)
        reading = board.sample(self.clock)
        if board.processes is None:
            return reading
        look = self._look(uid, board.processes, reading.after_ns)
        return replace(reading, foreign_processes=look.foreign, engine_memory_b=look.engine_b)

    def quick(self, uid: str) -> Reading:
        """Power and energy only: what is worth reading ten times a second. Raises: ProbeError."""
        return self._board(uid).quick(self.clock)

    def raw(self, uid: str) -> tuple[RawValue, ...]:
        """Power and energy in the vendor's own units. Raises: ProbeError."""
        return self._board(uid).raw()

    def close(self) -> None:
        state, self._state = self._state, _State()
        for close in state.closers:
            close()

    @contextmanager
    def by_tool(self) -> Iterator[Sequence[Card]]:
        """The cards as the vendor's tool sees them, to hold our numbers against; none where it is not here or does not answer."""
        way = self.tool()
        try:
            opened = way() if way is not None else None
        except (Unavailable, ProbeError):
            opened = None
        try:
            yield opened.cards if opened else ()
        finally:
            if opened:
                opened.close()

    def listed(self, indices: Iterable[int], make: Callable[[int], Card | None], close: Callable[[], None] = _nothing) -> Opened:
        """The cards of a library, each by itself: one that can't be opened costs itself. `make` gives None for what is none."""
        found: list[Card] = []
        problems: list[ProbeProblem] = []
        for index in indices:
            try:
                made = make(index)
            except (Unavailable, ProbeError) as error:
                problems.append(self.problem(f"{self.name}:{index}", str(error), cards.LOST_FIX))
            else:
                found += [made] if made is not None else []
        return Opened(cards=found, problems=tuple(problems), close=close)

    def problem(self, subject: str, problem: str, fix: str) -> ProbeProblem:
        return ProbeProblem(probe=self.name, subject=subject, problem=problem, fix=fix)

    # ------------------------------------------------------------------------------------------------------------------

    def _board(self, uid: str) -> Board:
        board = self._state.boards.get(uid)
        if board is None:
            raise ProbeError(f"the {self.name} probe has no device {uid!r}")
        return board

    def _open(self, way: Way, why: list[str], problems: list[ProbeProblem]) -> Sequence[Card]:
        try:
            opened = way()
        except (Unavailable, ProbeError) as error:
            why.append(str(error))
            return []
        self._state.closers.append(opened.close)
        problems.extend(opened.problems)
        return opened.cards

    def _wants_tool(self, boards: Sequence[Board]) -> bool:
        if not boards:
            return self.sign() is not None
        silent = [board for board in boards if cards.lacks(board, ("power_w",))]
        measured = {id(board) for group in self.groups(boards) if any(b not in silent for b in group) for board in group}
        return any(id(board) not in measured for board in silent)

    def _lacking(self, boards: Sequence[Board], why: Sequence[str]) -> list[ProbeProblem]:
        """A way that does not lead there is nobody's problem while the others tell power and memory."""
        if not why:
            return []
        covered = {uid for board in boards for uid in board.info.covers}
        short = [b for b in boards if b.info.uid not in covered and cards.lacks(b, ("power_w", "memory_used_b"))]
        subject = ", ".join(board.info.uid for board in short)
        return [self.problem(subject, _because("power or memory can't be read", why), self.fix)] if short else []

    def _check_counters(self, boards: Sequence[Board]) -> list[ProbeProblem]:
        """Counters that don't fit the power are put aside."""
        sensors = {
            board.info.uid: (board.energy.get, board.power.get if board.power else None)
            for board in boards
            if board.energy is not None and (board.power is not None or not self.trusts_counter)
        }
        verdicts = counter_check.check(sensors, self.clock, self._check_s) if sensors else {}
        problems: list[ProbeProblem] = []
        for board in boards:
            verdict = verdicts.get(board.info.uid)
            if verdict is None:
                continue
            if verdict.refused:
                board.energy = None
                board.info = replace(board.info, energy=None, reasons={**board.info.reasons, "energy_j": verdict.refused})
            elif verdict.warning:
                fix = "the energy is checked again over each window; `bench devices selftest` compares for longer"
                problems.append(self.problem(board.info.uid, verdict.warning, fix))
        return problems

    def _look(self, uid: str, processes: Callable[[], Mapping[int, int | None]], now_ns: int) -> _Look:
        """Looked up once a second: a list of processes costs more than a reading."""
        look = self._state.looks.setdefault(uid, _Look())
        if now_ns >= look.due_ns:
            holds = attempt(processes)[0]
            look.foreign = None if holds is None else self._occupants.foreign(uid, holds)
            look.engine_b = None if holds is None else self._occupants.engine_bytes(holds)
            look.due_ns = now_ns + LOOK_EVERY_S * NS_PER_S
        return look


def _because(problem: str, why: Sequence[str]) -> str:
    return f"{problem}: {'; '.join(why)}" if why else problem
