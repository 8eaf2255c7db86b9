"""The mock engine as a process: sockets, signals, and the quirks that concern the process itself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.errors import EngineStartError, UsageError
from bench.mock.connection import Connection
from bench.mock.engine import MockEngine
from bench.mock.listener import Listener, listen_tcp, listen_unix
from bench.mock.options import MockOptions, check_options, socket_path
from bench.mock.quirks import Quirks, parse_quirks

BACKLOG = 4096
EXIT_FAIL_START = 3
YOUNG_OBJECTS = 50_000
"""Allocations between garbage collections: rare, and with everything of the start frozen, short."""

Announce = Callable[[str], None]


def serve(options: MockOptions, announce: Announce) -> int:
    """Serve until SIGTERM or SIGINT, or until stdin ends where asked; returns the exit code. `announce` gets lines for a person
    (stderr).

    Raises: UsageError, EngineStartError (port taken).
    """
    check_options(options)
    quirks = parse_quirks(options.quirks)
    api_key = _api_key(options.api_key_env)
    if "fail-start" in quirks:
        announce("mock: error: no memory left for the weights (this is the quirk fail-start)")
        return EXIT_FAIL_START
    child_s = quirks.number("fork-child")
    if child_s is not None:
        announce(f"mock: left process {_leave_child(child_s)} behind")
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(options, quirks, api_key, announce))
    return 0


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env names {variable}, which is not set", hint=f"export {variable}=...")
    return key


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(options: MockOptions, quirks: Quirks, api_key: str | None, announce: Announce) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if "ignore-sigterm" in quirks:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.until_stdin_ends:
        loop.add_reader(sys.stdin.fileno(), stop.set)  # nobody writes to it: it is readable when its other end is gone
    late_s = quirks.number("late-listen")
    if late_s is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), late_s)
            return
    engine = MockEngine(options, loop, api_key)
    listening = _listen(options)
    server = Listener(loop, listening, lambda: Connection(engine))
    url = _url(options.host, listening)
    if options.port_file is not None:
        _write_port_file(options.port_file, url)
    announce(f"listening on {url}")
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
    await stop.wait()
    server.close()
    engine.close()
    if (path := socket_path(options.host)) is not None:
        Path(path).unlink(missing_ok=True)


def _listen(options: MockOptions) -> socket.socket:
    path = socket_path(options.host)
    try:
        if path is not None:
            return listen_unix(path, backlog=BACKLOG)
        return listen_tcp(options.host, options.port, backlog=BACKLOG)
    except OSError as error:
        where = path or f"{options.host} port {options.port}"
        hint = "name a short path in a folder of yours" if path else "take another --port, or --port 0 for any free one"
        raise EngineStartError(f"the mock engine can't listen on {where}: {error.strerror or error}", hint=hint) from error


def _url(host: str, listening: socket.socket) -> str:
    if listening.family == socket.AF_UNIX:
        return host
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _write_port_file(path: Path, url: str) -> None:
    """Readers see the whole URL or no file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(url + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise EngineStartError(
            f"the port file {path} can't be written: {error.strerror}", hint="name a writable folder"
        ) from error


def _leave_child(seconds: float) -> int:
    """A process that is no child of ours, in a session of its own: what double-forking engines leave. Returns its pid."""
    script = f"sleep {seconds:.3f} >/dev/null 2>&1 </dev/null & echo $!"
    done = subprocess.run(["/bin/sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def _raise_file_limit() -> None:
    """A thousand streams are a thousand sockets."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20 if hard == resource.RLIM_INFINITY else hard, hard))
