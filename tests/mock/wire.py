"""A raw client that shows what was on the wire, and the mock engine on a thread of the test process."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httptools
import uvloop

from bench.mock.connection import Connection
from bench.mock.engine import MockEngine
from bench.mock.options import MockOptions, check_options

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class LocalMock:
    """The mock engine on a thread of this process: ready in milliseconds."""

    def __init__(self, *, api_key: str | None = None, loop: asyncio.AbstractEventLoop | None = None, **options: Any) -> None:
        self._options = MockOptions(**{"ttft_ms": 20.0, "gap_ms": 4.0, **options})
        check_options(self._options)
        self._api_key = api_key
        self._loop = loop or uvloop.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def _run(self) -> None:
        self._loop.run_until_complete(self._open())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _open(self) -> None:
        self._engine = MockEngine(self._options, self._loop, self._api_key)
        self._server = await self._loop.create_server(lambda: Connection(self._engine), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._engine.close()
        await asyncio.sleep(0)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def truth(self, from_ns: int | None = None, to_ns: int | None = None) -> dict[str, Any]:
        given = {"from_ns": from_ns, "to_ns": to_ns}
        query = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        answer = ask(self.port, path=f"/truth?{query}", method="GET")
        assert answer.status == 200, answer.body
        told: dict[str, Any] = json.loads(answer.body)
        return told

    def metrics(self) -> dict[str, float]:
        text = ask(self.port, path="/metrics", method="GET").body.decode()
        found = re.findall(r"^mock:(\w+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}


@dataclass
class Answer:
    """What came back. `ended`: whole, eof, reset or silent (nothing more within the time)."""

    status: int = 0
    version: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes = b""
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    sent_ns: int = 0
    ended: str = ""
    interim: int = 0

    @property
    def text(self) -> str:
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()

    @property
    def events(self) -> list[str]:
        """The data of each server-sent event; comments and blank lines left out."""
        return [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [choice["delta"] for found in self.objects for choice in found.get("choices", ()) if "delta" in choice]

    def texts(self, key: str = "content") -> list[str]:
        """Non-empty texts of the deltas, one for each content chunk."""
        return [delta[key] for delta in self.deltas if delta.get(key)]

    @property
    def usage(self) -> dict[str, Any] | None:
        usages = [found["usage"] for found in self.objects if found.get("usage")]
        return usages[-1] if usages else None

    @property
    def finish_reason(self) -> str | None:
        reasons = [choice["finish_reason"] for found in self.objects for choice in found.get("choices", ())]
        return next((reason for reason in reasons if reason), None)


class _Parser:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.whole = False
        self.http = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self.answer.status = self.http.get_status_code()
        self.answer.version = self.http.get_http_version()

    def on_body(self, data: bytes) -> None:
        self.answer.body += data

    def on_message_complete(self) -> None:
        if self.answer.status == 100:
            self.answer.interim += 1
            self.answer.headers.clear()
        else:
            self.whole = True


def request_bytes(path: str, body: bytes, *, method: str = "POST", headers: dict[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: mock", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chat_body(tokens: int = 6, *, prompt: str = "one two three", stream: bool = True, **more: Any) -> bytes:
    body: dict[str, Any] = {"model": "mock", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body | more).encode()


def text_body(prompt: str | list[int] | list[str], tokens: int = 6, *, stream: bool = True, **more: Any) -> bytes:
    body: dict[str, Any] = {"model": "mock", "prompt": prompt, "max_tokens": tokens}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body | more).encode()


def ask(
    port: int,
    body: bytes = b"",
    *,
    path: str = CHAT,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    patience_s: float = 20.0,
) -> Answer:
    """One request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
        return exchange(connection, request_bytes(path, body, method=method, headers=headers), patience_s=patience_s)


def exchange(connection: socket.socket, request: bytes, *, patience_s: float = 20.0) -> Answer:
    """Send `request` on an open connection and read until the answer is whole, cut, or silent for `patience_s`."""
    answer = Answer()
    parser = _Parser(answer)
    connection.settimeout(patience_s)
    answer.sent_ns = time.perf_counter_ns()
    connection.sendall(request)
    while not parser.whole:
        try:
            data = connection.recv(1 << 18)
        except ConnectionResetError:
            answer.ended = "reset"
            return answer
        except TimeoutError:
            answer.ended = "silent"
            return answer
        if not data:
            answer.ended = "eof"
            return answer
        answer.reads.append((time.perf_counter_ns(), data))
        answer.raw += data
        parser.http.feed_data(data)
    answer.ended = "whole"
    return answer
