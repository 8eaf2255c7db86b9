"""NVIDIA boards through NVML. NVML numbers all boards in PCI order and ignores `CUDA_VISIBLE_DEVICES`: join on the UUID."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes import nvml
from bench.probes.nvidia_board import Board, open_board
from bench.probes.presence import NVML_LIBRARY, Roots, nvidia_card, nvidia_library
from bench.records import ProbeProblem, Reading

NAME = "nvidia"
_DRIVER_NOT_LOADED, _NO_PERMISSION, _LIBRARY_NOT_FOUND, _VERSION_MISMATCH = 9, 4, 12, 18


class NvidiaProbe:
    """One device a board; two on Grace Hopper, where the energy counter covers the whole module."""

    name = NAME

    def __init__(self, roots: Roots | None = None, clock: Clock = SYSTEM) -> None:
        self._roots = roots or Roots.of(os.environ)
        self._clock = clock
        self._lib: Any = None
        self._boards: dict[str, Board] = {}

    def discover(self) -> Discovery:
        card = nvidia_card(self._roots)
        try:
            lib = nvml.load_binding()
        except ImportError as error:
            return _problems(_no_binding(card, error))
        if self._lib is None:
            try:
                lib.nvmlInit()
            except lib.NVMLError as error:
                return _problems(_no_driver(card, error.value, str(error)))
            self._lib = lib
        self._boards.clear()
        return self._open_all(nvml.Nvml(lib), card)

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery()

    def sample(self, uid: str) -> Reading:
        board = self._boards.get(uid)
        if board is None:
            raise ProbeError(f"the nvidia probe has no device {uid!r}")
        return board.sample(self._clock)

    def close(self) -> None:
        if self._lib is not None:
            self._boards.clear()
            lib, self._lib = self._lib, None
            try:
                lib.nvmlShutdown()
            except lib.NVMLError:
                return  # the driver went away first: nothing is left to let go of

    def _open_all(self, api: nvml.Nvml, card: str | None) -> Discovery:
        problems: list[ProbeProblem] = []
        try:
            driver, _, _ = nvml.attempt(lambda: nvml.text(api.call("SystemGetDriverVersion")))
            count = api.call("DeviceGetCount")
        except (ProbeError, nvml.Unavailable) as error:
            return _problems(_problem("the NVIDIA driver", str(error), "nvidia-smi tells more"))
        for index in range(count):
            try:
                boards = open_board(api, index, driver, self._roots)
            except (ProbeError, nvml.Unavailable) as error:
                fix = getattr(error, "hint", None) or "nvidia-smi -q tells more; the other boards are measured"
                problems.append(_problem(f"nvidia:{index}", str(error), fix))
                continue
            self._boards.update({board.info.uid: board for board in boards})
        if count == 0 and card:
            fix = "in a container start it with --gpus all; else look for Xid lines in dmesg"
            problems.append(_problem(card, "the driver shows no GPU", fix))
        return Discovery(devices=tuple(board.info for board in self._boards.values()), problems=tuple(problems))


def _problem(subject: str, problem: str, fix: str) -> ProbeProblem:
    return ProbeProblem(probe=NAME, subject=subject, problem=problem, fix=fix)


def _problems(problem: ProbeProblem | None) -> Discovery:
    return Discovery(problems=(problem,) if problem else ())


def _no_binding(card: str | None, error: ImportError) -> ProbeProblem | None:
    """Only where there is a card to read: everywhere else a missing binding is nobody's problem."""
    if card is None and nvidia_library(os.environ) is None:
        return None
    if "deprecated" in str(error):
        return _problem(card or NVML_LIBRARY, str(error), "pip uninstall pynvml && pip install --force-reinstall nvidia-ml-py")
    return _problem(card or NVML_LIBRARY, "nvidia-ml-py, the binding, is not installed", "pip install 'tokjoule[nvidia]'")


def _no_driver(card: str | None, code: int, text: str) -> ProbeProblem | None:
    if code == _LIBRARY_NOT_FOUND:
        if card is None:
            return None
        fix = "install the NVIDIA driver; in a container start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return _problem(card, f"{NVML_LIBRARY} can't be loaded", fix)
    fixes = {
        _DRIVER_NOT_LOADED: "sudo modprobe nvidia; in a container start it with --gpus all",
        _NO_PERMISSION: "give this user read and write access to /dev/nvidiactl and /dev/nvidia* (group video on most systems)",
        _VERSION_MISMATCH: "the driver was updated while loaded: reboot, or reload its kernel modules",
    }
    subject = card or nvidia_library(os.environ) or NVML_LIBRARY
    return _problem(subject, f"nvmlInit: {text}", fixes.get(code, "nvidia-smi tells more"))
