"""NVIDIA boards through NVML. NVML numbers all boards in PCI order and ignores `CUDA_VISIBLE_DEVICES`: join on the UUID."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes.nvidia import nvml
from bench.probes.nvidia.board import Board, open_board
from bench.probes.occupants import Occupants
from bench.probes.presence import NVML_LIBRARY, Roots, card, library
from bench.probes.values import Unavailable, attempt
from bench.probes.wire import RawValue
from bench.records import ProbeProblem, Reading
from bench.units import NS_PER_S

NAME = "nvidia"
LOOK_EVERY_S = 1
"""Seconds between two looks at who uses a board."""
_DRIVER_NOT_LOADED, _NO_PERMISSION, _LIBRARY_NOT_FOUND, _VERSION_MISMATCH = 9, 4, 12, 18


class NvidiaProbe:
    """One device a board; two on Grace Hopper, where the energy counter covers the whole module."""

    name = NAME

    def __init__(self, roots: Roots | None = None, clock: Clock = SYSTEM, harness_pid: int | None = None) -> None:
        self._roots = roots or Roots.of(os.environ)
        self._clock = clock
        self._lib: Any = None
        self._boards: dict[str, Board] = {}
        self._occupants = Occupants(self._roots, harness_pid)
        self._foreign: dict[str, float | None] = {}
        self._look_due_ns: dict[str, int] = {}

    def discover(self) -> Discovery:
        sign = card(self._roots, NAME)
        try:
            lib = nvml.load_binding()
        except ImportError as error:
            return _problems(_no_binding(sign, error))
        if self._lib is None:
            try:
                lib.nvmlInit()
            except lib.NVMLError as error:
                return _problems(_no_driver(sign, error.value, str(error)))
            self._lib = lib
        self._boards.clear()
        return self._open_all(nvml.Nvml(lib), sign)

    def watch(self, pids: Iterable[int]) -> Discovery:
        """Adds no device, but tells the engine's processes from others on the boards."""
        self._occupants.watch(pids)
        self._look_due_ns.clear()
        return Discovery()

    def sample(self, uid: str) -> Reading:
        board = self._board(uid)
        reading = board.sample(self._clock)
        if board.pids is None:
            return reading
        return replace(reading, foreign_processes=self._foreign_on(board, reading.after_ns))

    def quick(self, uid: str) -> Reading:
        """Power and energy only: what is worth reading ten times a second. Raises: ProbeError."""
        return self._board(uid).quick(self._clock)

    def raw(self, uid: str) -> tuple[RawValue, ...]:
        """Power and energy of a board in the driver's own units. Raises: ProbeError."""
        return self._board(uid).raw()

    def _board(self, uid: str) -> Board:
        board = self._boards.get(uid)
        if board is None:
            raise ProbeError(f"the nvidia probe has no device {uid!r}")
        return board

    def _foreign_on(self, board: Board, now_ns: int) -> float | None:
        """Looked up once a second: a list of processes costs more than a reading."""
        uid = board.info.uid
        if now_ns >= self._look_due_ns.get(uid, 0):
            pids = attempt(board.pids)[0] if board.pids else None
            self._foreign[uid] = None if pids is None else self._occupants.foreign(uid, pids)
            self._look_due_ns[uid] = now_ns + LOOK_EVERY_S * NS_PER_S
        return self._foreign[uid]

    def close(self) -> None:
        if self._lib is not None:
            self._boards.clear()
            lib, self._lib = self._lib, None
            try:
                lib.nvmlShutdown()
            except lib.NVMLError:
                return  # the driver went away first: nothing is left to let go of

    def _open_all(self, api: nvml.Nvml, sign: str | None) -> Discovery:
        problems: list[ProbeProblem] = []
        try:
            driver, _, _ = attempt(lambda: nvml.text(api.call("SystemGetDriverVersion")))
            count = api.call("DeviceGetCount")
        except (ProbeError, Unavailable) as error:
            return _problems(_problem("the NVIDIA driver", str(error), "nvidia-smi tells more"))
        for index in range(count):
            try:
                boards = open_board(api, index, driver, self._roots)
            except (ProbeError, Unavailable) as error:
                fix = getattr(error, "hint", None) or "nvidia-smi -q tells more; the other boards are measured"
                problems.append(_problem(f"nvidia:{index}", str(error), fix))
                continue
            self._boards.update({board.info.uid: board for board in boards})
        if count == 0 and sign:
            fix = "in a container start it with --gpus all; else look for Xid lines in dmesg"
            problems.append(_problem(sign, "the driver shows no GPU", fix))
        return Discovery(devices=tuple(board.info for board in self._boards.values()), problems=tuple(problems))


def _problem(subject: str, problem: str, fix: str) -> ProbeProblem:
    return ProbeProblem(probe=NAME, subject=subject, problem=problem, fix=fix)


def _problems(problem: ProbeProblem | None) -> Discovery:
    return Discovery(problems=(problem,) if problem else ())


def _no_binding(sign: str | None, error: ImportError) -> ProbeProblem | None:
    """Only where there is a card to read: everywhere else a missing binding is nobody's problem."""
    if sign is None and library(os.environ, NAME) is None:
        return None
    if "deprecated" in str(error):
        return _problem(sign or NVML_LIBRARY, str(error), "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py")
    return _problem(sign or NVML_LIBRARY, "nvidia-ml-py, the binding, is not installed", "pip install 'tokjoule[nvidia]'")


def _no_driver(sign: str | None, code: int, text: str) -> ProbeProblem | None:
    if code == _LIBRARY_NOT_FOUND:
        if sign is None:
            return None
        fix = "install the NVIDIA driver; in a container start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return _problem(sign, f"{NVML_LIBRARY} can't be loaded", fix)
    fixes = {
        _DRIVER_NOT_LOADED: "sudo modprobe nvidia; in a container start it with --gpus all",
        _NO_PERMISSION: "give this user read and write access to /dev/nvidiactl and /dev/nvidia* (group video on most systems)",
        _VERSION_MISMATCH: "the driver was updated while loaded: reboot, or reload its kernel modules",
    }
    subject = sign or library(os.environ, NAME) or NVML_LIBRARY
    return _problem(subject, f"nvmlInit: {text}", fixes.get(code, "nvidia-smi tells more"))
