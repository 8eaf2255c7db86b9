"""A small program that stands between the harness and an engine, so that no engine outlives the harness.

Started by `bench.runners.process` as `python -I -S warden.py`; it needs nothing but the standard library, and imports nothing
of `bench`: it must still work when everything else is broken. That is also why it asks `time` itself, and is one file.

stdin   one JSON line that says what to start, then `{"stop": grace_s}` when the harness wants an end. Only the harness holds
        the other end: when it closes, for whatever reason (`kill -9` too), the engine's whole tree is ended.
stdout  JSON lines: started, failed, exited, log_error, not_removed, unkillable, clean.

On Linux it is a subreaper: whatever the engine starts, however often it forks and changes session, has the warden as an
ancestor. Elsewhere, and as a second net, every process of an engine carries a marker in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MARKER = "BENCH_ENGINE_ID"
"""Variable that every process of an engine inherits; its value is unique to one start."""
HEAD_B = 1 << 20
TAIL_B = 2 << 20
"""Bytes [B] of log kept from the start, and from the end when the middle is cut out at twice that: 5 MiB at most."""
SETTLE_S = 2.0
"""Seconds that leftovers of an ended engine get between SIGTERM and SIGKILL [s]."""
KILL_LIMIT_S = 30.0
"""Seconds after which a process that survives SIGKILL (stuck in a driver) is given up on, and named [s]."""
REMOVAL_LIMIT_S = 60.0
"""Seconds that the removal of a container may take; its processes are killed at once [s]."""

_LINUX = sys.platform.startswith("linux")
_READ_B = 1 << 20
_F_SETPIPE_SZ = 1031
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class BoundedLog:
    """One file with the first `HEAD_B` bytes of a stream and its last 2 to 4 MiB, whatever its length.

    The file is whole at any moment, for a reader as well as after a `kill -9`: it is cut by writing a new one over it.
    """

    def __init__(self, path: Path) -> None:
        self.cut_b = 0
        self.error: str | None = None
        self._path = path
        self._file = path.open("wb", buffering=0)
        self._size_b = 0

    def write(self, data: bytes) -> None:
        """Append `data`, and forget the middle when there is too much. A full disk ends the log, never the engine."""
        view = memoryview(data)
        try:
            while view and self.error is None:
                done = self._file.write(view) or 0
                self._size_b += done
                view = view[done:]
                if self._size_b >= HEAD_B + 2 * TAIL_B:
                    self._cut()
        except OSError as error:
            self.error = str(error)

    def _cut(self) -> None:
        part = self._path.with_name(self._path.name + ".part")
        with self._path.open("rb") as old:
            head = old.read(HEAD_B)
            old.seek(-TAIL_B, os.SEEK_END)
            tail = old.read(TAIL_B)
        self.cut_b += self._size_b - HEAD_B - TAIL_B
        mark = f"\n[... {self.cut_b} bytes of the engine's log left out here ...]\n".encode()
        part.write_bytes(head + mark + tail)
        part.replace(self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)
        self._size_b = HEAD_B + TAIL_B  # the mark is not counted: it is not the engine's

    def close(self) -> None:
        """No more is to come."""
        self._file.close()


def descendants(root: int, parents: Mapping[int, int]) -> set[int]:
    """Every pid below `root` in a table of pid -> parent pid."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            if pid not in found and pid != root:
                found.add(pid)
                todo.append(pid)
    return found


def proc_parents(proc: Path = Path("/proc")) -> dict[int, int]:
    """pid -> parent pid of every process that still runs (no zombies), from /proc."""
    parents = {}
    for name in os.listdir(proc):  # noqa: PTH208 - os.listdir is what stays cheap with thousands of processes
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            # the command in parentheses may hold spaces and parentheses itself: fields begin after the last one
            state, parent = (proc / name / "stat").read_text("latin-1").rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):
                parents[int(name)] = int(parent)
    return parents


def ps_parents(listing: str) -> dict[int, int]:
    """pid -> parent pid of every process that still runs, from the output of `ps -axo pid=,ppid=,stat=`."""
    parents = {}
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) == 3 and not fields[2].startswith("Z"):
            parents[int(fields[0])] = int(fields[1])
    return parents


def proc_marked(marker: str, proc: Path = Path("/proc")) -> set[int]:
    """Processes that were started with `marker` in their environment, from /proc."""
    wanted = f"{MARKER}={marker}".encode()
    found = set()
    for name in os.listdir(proc):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (proc / name / "environ").read_bytes().split(b"\0"):
                    found.add(int(name))
    return found


def ps_marked(marker: str, listing: str) -> set[int]:
    """Processes whose environment holds `marker`, from the output of `ps -axEww -o pid=,command=`."""
    wanted = f"{MARKER}={marker}"
    lines = (line.split() for line in listing.splitlines())
    return {int(fields[0]) for fields in lines if wanted in fields[1:]}


def _ps(*flags: str) -> str:
    return subprocess.run(["ps", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


def engine_tree(marker: str) -> set[int]:
    """Every living process of the engine below this process, or anywhere with its marker."""
    if _LINUX:
        parents = proc_parents()
        marked = proc_marked(marker)
    else:
        parents = ps_parents(_ps("-axo", "pid=,ppid=,stat="))
        marked = ps_marked(marker, _ps("-axEww", "-o", "pid=,command="))
    mine = os.getpid()
    return (descendants(mine, parents) | (marked & parents.keys())) - {mine}


class Warden:
    """One engine: starts it, copies its output, and ends it when told to or when the harness is gone."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._harness = os.getppid()
        self._log = BoundedLog(Path(spec["log"]))
        self._selector = selectors.DefaultSelector()
        self._engine = -1
        self._status: int | None = None
        self._stop_grace_s: float | None = None
        self._control = b""
        self._log_fd = -1

    def run(self) -> None:
        """Everything, from start to a tree of which nothing is left."""
        self._take_signals()
        if not self._start():
            return
        while self._stop_grace_s is None:
            self._turn(1.0)
            if os.getppid() != self._harness:  # seen even if someone else still holds the harness's end of the pipe
                self._stop_grace_s = self._spec["grace_s"]
        stuck = self._end_tree(self._stop_grace_s)
        self._remove()
        self._turn(0.0)
        self._log.close()
        say("unkillable" if stuck else "clean", pids=sorted(stuck), log_cut_b=self._log.cut_b)

    def _take_signals(self) -> None:
        # handlers, not SIG_IGN: an ignored signal would stay ignored in the engine
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._ask_stop(self._spec["grace_s"]))
        self._selector.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 4096))
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ, self._read_control)

    def _ask_stop(self, grace_s: float) -> None:
        if self._stop_grace_s is None:
            self._stop_grace_s = grace_s

    def _start(self) -> bool:
        if _LINUX:
            prctl(_PR_SET_CHILD_SUBREAPER, 1)
        log_read, log_write = os.pipe()
        if _LINUX:
            with contextlib.suppress(OSError):  # a small pipe only costs more turns
                fcntl.fcntl(log_write, _F_SETPIPE_SZ, _READ_B)
        mine = os.getpid()
        try:
            child = subprocess.Popen(
                self._spec["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                cwd=self._spec["cwd"],
                env={**os.environ, MARKER: self._spec["marker"]},
                start_new_session=True,
                preexec_fn=lambda: _die_with(mine),  # noqa: PLW1509 - this process has one thread
            )
        except OSError as error:
            say("failed", message=str(error), errno=error.errno)
            self._log.close()
            return False
        finally:
            os.close(log_write)
        self._engine = child.pid
        child.returncode = 0  # we reap it ourselves, with everything else that is re-parented to us
        os.set_blocking(log_read, False)
        self._log_fd = log_read
        self._selector.register(log_read, selectors.EVENT_READ, self._read_log)
        say("started", pid=child.pid)
        return True

    def _turn(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data()
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, raw = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._engine and self._status is None:
                self._status = os.waitstatus_to_exitcode(raw)
                self._read_log()  # its last words are on disk before its end is known
                say("exited", status=self._status)

    def _read_log(self) -> None:
        if self._log_fd < 0:
            return
        try:
            data = os.read(self._log_fd, _READ_B)  # never less than the whole pipe holds
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(self._log_fd)
            os.close(self._log_fd)
            self._log_fd = -1
            return
        told = self._log.error
        self._log.write(data)
        if self._log.error != told:
            say("log_error", message=self._log.error)

    def _read_control(self) -> None:
        try:
            data = os.read(0, 4096)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(0)
            self._ask_stop(self._spec["grace_s"])
            return
        self._control += data
        *lines, self._control = self._control.split(b"\n")
        for line in lines:
            self._ask_stop(float(json.loads(line)["stop"]))

    def _end_tree(self, grace_s: float) -> set[int]:
        """SIGTERM to the engine, then to what it left, then SIGKILL until nothing is left. Returns what can't be killed."""
        marker = self._spec["marker"]
        if self._status is None:
            send(self._engine, signal.SIGTERM)
            self._until(lambda: self._status is not None, grace_s)
        for pid in engine_tree(marker):
            send(pid, signal.SIGTERM)
        self._until(lambda: not engine_tree(marker), min(grace_s, SETTLE_S) if self._status is not None else 0.0)
        self._until(lambda: not self._kill_all(marker), KILL_LIMIT_S)
        return engine_tree(marker)

    def _remove(self) -> None:
        """What the engine ran in is a daemon's child, not ours: it goes by a command. One that is not there is gone."""
        if not self._spec.get("removal"):
            return
        try:
            done = subprocess.run(
                self._spec["removal"], stdin=subprocess.DEVNULL, capture_output=True, timeout=REMOVAL_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            say("not_removed", message=str(error))
            return
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode != 0 and "no such container" not in said.lower():
            say("not_removed", message=said)

    def _kill_all(self, marker: str) -> set[int]:
        left = engine_tree(marker)
        for pid in left:
            send(pid, signal.SIGKILL)
        return left

    def _until(self, done: Callable[[], bool], limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while not done() and time.monotonic() < end:
            self._turn(0.02)


def say(event: str, **fields: Any) -> None:
    """One line to the harness, if it still listens."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may just have gone."""
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def prctl(option: int, value: int) -> None:
    """Linux's prctl(2)."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with(warden: int) -> None:
    """In the engine, before it begins: usual signals, and SIGKILL for it the moment the warden dies."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if _LINUX:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != warden:  # it died before the line above
            os._exit(1)


def main() -> None:
    """Read the order from stdin, byte by byte so as not to eat what follows it, and carry it out."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return  # the harness went before it had said anything
        line += byte
    try:
        Warden(json.loads(line)).run()
    except Exception as error:  # the border of this process: the reason must reach the harness
        say("failed", message=f"the warden itself failed: {type(error).__name__}: {error}", errno=None)
        raise


if __name__ == "__main__":
    main()
