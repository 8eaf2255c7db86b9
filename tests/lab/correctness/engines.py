"""Engines that answer what a test wants, over HTTP, as vLLM, our own servers or llama.cpp word it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from bench.records import EngineHandle, Target, Window

Pages = dict[str, Callable[[dict[str, Any]], Any]]


class ServedEngine:
    """Fills `bench.ports.Engine` for an address."""

    def __init__(self, base_url: str, *, name: str = "vllm", own_weights: str | None = None) -> None:
        self.target = Target(base_url=base_url, protocol="openai-completions", model="mock")
        self.handle = EngineHandle(
            name=name,
            version="1",
            build=None,
            command=(),
            env={},
            pids=(),
            settings={},
            precision=None,
            start_s=None,
            log_path=None,
            own_weights=own_weights,
        )

    def failure(self) -> str | None:
        return None

    def log_tail(self, lines: int = 40) -> str:
        return ""

    def server_metrics(self, window: Window | None = None) -> dict[str, float]:
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


@contextmanager
def serving(pages: Pages) -> Iterator[str]:
    """A server whose pages answer a body with a document; what is no JSON object (bytes) goes out with status 400."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = pages[self.path](body) if self.path in pages else b"no such page"
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(400 if isinstance(answer, bytes) else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def completion(text: str, logprobs: Any = None, prompt_tokens: int = 3) -> dict[str, Any]:
    """What `/v1/completions` answers."""
    return {"choices": [{"index": 0, "text": text, "logprobs": logprobs}], "usage": {"prompt_tokens": prompt_tokens}}
