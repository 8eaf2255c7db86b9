"""A scripted HTTP endpoint in this process."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Page = tuple[int, bytes, dict[str, str]]


def page(body: Any, status: int = 200, **headers: str) -> Page:
    """An answer: `body` as JSON, or as it is when it is bytes."""
    return status, body if isinstance(body, bytes) else json.dumps(body).encode(), headers


def models(*names: str, **fields: Any) -> Page:
    """An OpenAI model list."""
    return page({"object": "list", "data": [{"id": name, "object": "model", **fields} for name in names]})


class Endpoint:
    """Serves `pages` (path -> answer, or answers one after the other) on a port, or on a socket file; the rest is 404. Keeps what
    it was asked.
    """

    def __init__(self, pages: Mapping[str, Page | list[Page]], *, socket_path: Path | None = None) -> None:
        self.asked: list[tuple[str, str | None]] = []
        waiting = {path: list(found) if isinstance(found, list) else [found] for path, found in pages.items()}
        asked = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers.get("Authorization")))
                answers = waiting.get(self.path) or waiting.get(self.path.partition("?")[0]) or [page({}, 404)]
                status, body, headers = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server: socketserver.BaseServer
        if socket_path is not None:
            self._server = socketserver.ThreadingUnixStreamServer(str(socket_path), Handler)
            self.url = f"unix:{socket_path}"
        else:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
