"""The mock engine in a process of its own, for tests and for calibration."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from bench import codec
from bench.clock import SYSTEM
from bench.errors import BenchError, EngineStartError
from bench.mock.options import MockOptions, check_options, command_line
from bench.mock.truth import Truth
from bench.units import NS_PER_S
from bench.unix_http import UnixConnection
from bench.unix_url import parse_unix

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01
TRUTH_TIMEOUT_S = 120.0


class MockServer:
    """A running mock engine; leaving its `with` block stops it, and it ends with this process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log_path: Path, folder: contextlib.ExitStack) -> None:
        self._process = process
        self._log_path = log_path
        self._folder = folder
        self._log = ""
        self.url = url

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def log(self) -> str:
        """What it wrote to stderr so far."""
        if self._log_path.exists():
            self._log = self._log_path.read_text(encoding="utf-8", errors="replace")
        return self._log

    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Its exit status, once it has ended. Raises: BenchError when it does not end."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"the mock engine (pid {self.pid}) did not end within {timeout_s} s") from None

    def truth(self, from_ns: int | None = None, to_ns: int | None = None) -> Truth:
        """What it really sent in `[from_ns, to_ns)` (default: all so far). Raises: BenchError."""
        given = {"from_ns": from_ns, "to_ns": to_ns}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        status, body = self.get(f"/truth?{query}")
        if status != 200:
            raise BenchError(f"the mock engine does not tell its truth: HTTP {status} {body.decode(errors='replace')}")
        return codec.decode(body, Truth)

    def get(self, path: str) -> tuple[int, bytes]:
        """(status, body) of a GET."""
        connection = self._connection()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        unix = parse_unix(self.url)
        if unix is not None:
            return UnixConnection(unix.socket_path, timeout=TRUTH_TIMEOUT_S)
        place = urlsplit(self.url)
        return http.client.HTTPConnection(place.hostname or "", place.port, timeout=TRUTH_TIMEOUT_S)

    def stop(self) -> int:
        """End it (SIGTERM, then SIGKILL) and return its exit status."""
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
            try:
                return self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                return self._process.wait()
        finally:
            self.log()  # kept beyond the folder
            self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def start(*, env: Mapping[str, str] | None = None, **options: Any) -> MockServer:
    """A mock engine with these `MockOptions` in a process of its own, serving when this returns. `env` adds variables.

    Raises: UsageError (options), EngineStartError with what it said.
    """
    wanted = MockOptions(**options)
    check_options(wanted)
    folder = contextlib.ExitStack()
    place = Path(folder.enter_context(tempfile.TemporaryDirectory(prefix="bench-mock-")))
    port_file = wanted.port_file or place / "url"
    port_file.unlink(missing_ok=True)
    log_path = place / "log"
    served = dataclasses.replace(wanted, port_file=port_file, until_stdin_ends=True)
    command = [sys.executable, "-m", "bench", "mock-server", *command_line(served)]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, **(env or {})}
        )
    assert process.stdin is not None
    folder.enter_context(process.stdin)
    deadline_ns = SYSTEM.monotonic_ns() + START_TIMEOUT_S * NS_PER_S
    while not port_file.exists():
        if process.poll() is not None or SYSTEM.monotonic_ns() > deadline_ns:
            process.kill()
            code, said = process.wait(), log_path.read_text(encoding="utf-8", errors="replace")
            folder.close()
            raise EngineStartError(f"the mock engine did not start (exit status {code})", log_tail=said)
        SYSTEM.sleep(POLL_S)
    return MockServer(process, port_file.read_text(encoding="utf-8").strip(), log_path, folder)
