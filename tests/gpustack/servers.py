"""A GPUStack server as a benchmark sees it: takes progress, tells results. Scripted, over real sockets."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(slots=True)
class Patch:
    """A report of progress that arrived."""

    path: str
    authorization: str | None
    body: Any


@dataclass(slots=True)
class GpuStack:
    """`status` answers PATCH, with `location` where that is a redirect; `pages` answers GET by path and query."""

    status: int = 200
    location: str | None = None
    pages: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    tls: ssl.SSLContext | None = None
    hold: threading.Event | None = None
    """Where it is there, no answer to a PATCH comes before it is set."""
    patches: list[Patch] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"{'https' if self.tls else 'http'}://localhost:{self._server.server_port}"

    @property
    def state_url(self) -> str:
        return f"{self.url}/v2/benchmarks/7/state"

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("localhost", 0), _handler(self))
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()


def _handler(stack: GpuStack) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            stack.patches.append(Patch(self.path, self.headers["Authorization"], json.loads(body)))
            stack.arrived.set()
            if stack.hold is not None:
                stack.hold.wait(30)
            self._answer(stack.status, {})

        def do_GET(self) -> None:
            if stack.key is not None and self.headers["Authorization"] != f"Bearer {stack.key}":
                self._answer(401, {"message": "Invalid authentication credentials"})
            elif self.path in stack.pages:
                self._answer(200, stack.pages[self.path])
            else:
                self._answer(404, {"message": "not found"})

        def _answer(self, status: int, document: Any) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            if stack.location is not None:
                self.send_header("Location", stack.location)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
