"""An engine's process, seen from the harness: started through the warden, watched, and ended with everything below it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from bench.clock import SYSTEM, Clock
from bench.errors import EngineStartError
from bench.runners import warden
from bench.runners.box import Box
from bench.runners.diagnosis import Diagnosis, Words, describe_exit, diagnose

GRACE_S = 10.0
"""Seconds that an engine gets between SIGTERM and SIGKILL [s]."""
_SPAWN_LIMIT_S = 30.0
_SWEEP_LIMIT_S = 10.0
_TAIL_BLOCK_B = 256 << 10


class PortTakenError(EngineStartError):
    """Another process took the port between our choice and the engine's bind: worth another try."""


class EngineProcess:
    """One engine process and its tree. Made by `start`; `stop` may be called any number of times, from any thread."""

    def __init__(
        self,
        warden_process: subprocess.Popen[bytes],
        *,
        marker: str,
        name: str,
        log_path: Path,
        clock: Clock,
        own_words: Sequence[Words],
        box: Box | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self.box = box
        self.removal_error: str | None = None
        """Why what the engine ran in could not be removed."""
        self.log_error: str | None = None
        self.leftovers: tuple[int, ...] = ()
        """Pids that survived even SIGKILL (stuck in a driver): named, because nothing more can be done."""
        self._warden = warden_process
        self._marker = marker
        self._clock = clock
        self._own_words = own_words
        self._lock = threading.RLock()
        self._unread = b""
        self._engine_pid: int | None = None
        self._refusal: str | None = None
        self._status: int | None = None
        self._warden_gone = False
        self._stopped_by_us = False
        self._closed = False

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        name: str,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_s: float = GRACE_S,
        own_words: Sequence[Words] = (),
        box: Box | None = None,
        clock: Clock = SYSTEM,
    ) -> Self:
        """Start `argv` with `env` added to this process's environment; its output goes to `log_path`, bounded.

        `grace_s` is what the engine gets if the harness dies; `own_words` tell why it failed; `box` is what `argv` makes and runs
        the engine in.

        Raises: EngineStartError (not found, not executable).
        """
        marker = uuid.uuid4().hex
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(warden.__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        process = cls(child, marker=marker, name=name, log_path=log_path, clock=clock, own_words=own_words, box=box)
        try:
            order = {
                "argv": list(argv),
                "cwd": None if cwd is None else str(cwd),
                "log": str(log_path.resolve()),
                "marker": marker,
                "grace_s": grace_s,
                "removal": list(box.removal) if box else None,
            }
            process._await_start(order)
        except BaseException:
            process.stop(0.0)
            raise
        return process

    @property
    def pids(self) -> tuple[int, ...]:
        """The root of the engine's process tree; the warden is not part of it, nor is the client of a container."""
        if self.box is not None:
            return self.box.pids()
        return () if self._engine_pid is None else (self._engine_pid,)

    @property
    def exit_status(self) -> int | None:
        """The engine's exit status, negative for a signal; None while it runs, or where it can't be known any more."""
        self._listen()
        return self._status

    def diagnosis(self) -> Diagnosis | None:
        """The likely cause of its end or silence, from the log and the exit status."""
        status = self.exit_status
        known = self.box.cause() if self.box and status is not None else None
        return known or diagnose(self.log_tail(200), status, self._own_words)

    def failure(self) -> str | None:
        """None while it runs; else how it ended, with the likely cause where the log or the signal tells it."""
        self._listen()
        if self._stopped_by_us:
            left = f", and its container is still there: {self.removal_error}" if self.removal_error else ""
            return f"{self.name} was stopped{left}"
        if self._status is None:
            return f"the warden of {self.name} was killed, and the engine with it" if self._warden_gone else None
        known = self.diagnosis()
        return f"{self.name} ended with {describe_exit(self._status)}" + (f": {known.cause}" if known else "")

    def log_tail(self, lines: int = 40) -> str:
        """The last `lines` lines that the engine wrote."""
        if lines <= 0:
            return ""
        return "\n".join(_end_of(self.log_path).decode("utf-8", "replace").splitlines()[-lines:])

    def stop(self, grace_s: float = GRACE_S) -> None:
        """End the engine and all that it started: SIGTERM, `grace_s` seconds [s], SIGKILL, until nothing is left."""
        with self._lock:
            if self._closed:
                return
            self._read_events()
            self._stopped_by_us = self._status is None and not self._warden_gone
            limit_s = grace_s + warden.SETTLE_S + warden.KILL_LIMIT_S + (warden.REMOVAL_LIMIT_S if self.box else 0.0) + 5.0
            try:
                self._order({"stop": grace_s})
                self._listen(until=lambda: self._warden_gone, limit_s=limit_s)
            finally:  # Ctrl-C again while we wait: the closed pipe makes the warden go on without us
                self._closed = True
                self._close()

    def _close(self) -> None:
        assert self._warden.stdin is not None
        assert self._warden.stdout is not None
        with contextlib.suppress(OSError):
            self._warden.stdin.close()
        if not self._warden_gone:
            self._listen(until=lambda: self._warden_gone, limit_s=1.0)
        self._warden.stdout.close()
        if self._warden_gone:
            self._warden.wait()
            if self._warden.returncode != 0 and (self._engine_pid is not None or self.box is not None):
                self._after_lost_warden()

    def _await_start(self, order: Mapping[str, Any]) -> None:
        assert self._warden.stdout is not None
        os.set_blocking(self._warden.stdout.fileno(), False)
        self._order(order)
        self._listen(until=lambda: self._engine_pid is not None or self._warden_gone, limit_s=_SPAWN_LIMIT_S)
        if self._engine_pid is None:
            reason = self._refusal or "its warden did not start"
            raise EngineStartError(f"{self.name} could not be started: {reason}", hint=f"the command was: {order['argv'][0]}")

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._warden.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the warden has gone: `_listen` will say so
            self._warden.stdin.write(json.dumps(order).encode() + b"\n")
            self._warden.stdin.flush()

    def _listen(self, until: Callable[[], bool] = lambda: True, limit_s: float = 0.0) -> None:
        """Take in what the warden has said; with `until`, wait for it up to `limit_s`."""
        end_ns = self._clock.monotonic_ns() + round(limit_s * 1e9)
        while True:
            with self._lock:
                self._read_events()
                if until() or self._clock.monotonic_ns() >= end_ns:
                    return
            self._clock.sleep(0.01)

    def _read_events(self) -> None:
        pipe = self._warden.stdout
        while pipe is not None and not pipe.closed and not self._warden_gone:
            try:
                data = os.read(pipe.fileno(), 65536)
            except BlockingIOError:
                return
            self._warden_gone = not data
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "started":
                self._engine_pid = event["pid"]
            case "failed":
                self._refusal = event["message"]
            case "exited":
                self._status = self.box.ended(event["status"]) if self.box else event["status"]
            case "log_error":
                self.log_error = event["message"]
            case "unkillable":
                self.leftovers = tuple(event["pids"])
            case "not_removed":
                self.removal_error = event["message"]

    def _after_lost_warden(self) -> None:
        """The warden itself was killed: the kernel ended the engine, or the client of its container, which we then remove. What
        the engine had started is found by its marker.
        """
        if self.box is not None:
            self.removal_error = self.box.remove()
        end_ns = self._clock.monotonic_ns() + round(_SWEEP_LIMIT_S * 1e9)
        while left := marked_processes(self._marker):
            self.leftovers = tuple(process.pid for process in left)
            if self._clock.monotonic_ns() >= end_ns:
                return
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            self._clock.sleep(0.02)
        self.leftovers = ()


@contextlib.contextmanager
def stopped_on_error(process: EngineProcess) -> Iterator[None]:
    """Whatever fails within, Ctrl-C included, leaves no engine behind."""
    try:
        yield
    except BaseException:
        process.stop()
        raise


def marked_processes(marker: str) -> list[psutil.Process]:
    """Every living process of this user whose environment holds the engine's marker."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(warden.MARKER) == marker and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def listens(pids: Sequence[int], port: int) -> bool | None:
    """Whether one of these process trees listens on TCP `port`; None where the system does not let us see."""
    known = False
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    sockets = process.net_connections(kind="tcp")
                    known = True
                    if any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets):
                        return True
    return False if known else None


def free_port() -> int:
    """A TCP port that nothing listens on at 127.0.0.1 right now; another process may still take it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _TAIL_BLOCK_B))
            return log.read()
    except FileNotFoundError:  # not written yet
        return b""
