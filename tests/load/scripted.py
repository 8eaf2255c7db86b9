"""A server that sends exactly the bytes a test tells it to, on 127.0.0.1, one thread a connection."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.load import WireLoad
from bench.load.preflight import _OUTPUT_TOKENS as PREFLIGHT_TOKENS
from bench.ports import LoadPlan
from bench.records import Case, LengthSpec, LoadProgress, LoadResult, LoadSpec, Profile, Target

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chat(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more})


def text(piece: str, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "text": piece, "finish_reason": finish}], **more})


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}})


def answer(tokens: int = 4, prompt: int = 8) -> bytes:
    """A plain chat answer."""
    pieces = [chat({"role": "assistant", "content": ""})] + [chat({"content": f" w{i}"}) for i in range(tokens)]
    return b"".join(pieces) + chat({}, "length") + usage(prompt, tokens) + DONE


def frame(piece: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def chunked(body: bytes, *, size: int | None = None, trailer: bytes = b"") -> bytes:
    """A 200 answer in chunked framing, in HTTP chunks of `size` bytes."""
    pieces = [body] if size is None else [body[i : i + size] for i in range(0, len(body), size)]
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(frame, pieces)) + b"0\r\n" + trailer + b"\r\n"


def sized(body: bytes, status: str = "200 OK", extra: bytes = b"") -> bytes:
    """An answer with Content-Length."""
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n" % (status.encode(), len(body), extra) + body


def asked_tokens(body: dict[str, Any]) -> int:
    """The output length that a request of any protocol asks for."""
    places = (body, body.get("sampling_params", {}), body.get("parameters", {}))
    names = ("max_tokens", "n_predict", "max_new_tokens")
    return next(int(place[name]) for place in places for name in names if name in place)


class Exchange:
    """One request on one connection, and the means to answer it."""

    def __init__(self, number: int, head: bytes, body: bytes, sock: socket.socket, server: ScriptedServer) -> None:
        self.number, self.head, self.sock, self.server = number, head, sock, server
        self.body: dict[str, Any] = json.loads(body)
        self.preflight = asked_tokens(self.body) == PREFLIGHT_TOKENS
        self.open = True

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_bytewise(self, data: bytes) -> None:
        """Each byte in a segment of its own, as far as the kernel lets us."""
        for at in range(len(data)):
            self.sock.send(data[at : at + 1])

    def close(self) -> None:
        self.open = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        self.open = False
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def prompt_words(self) -> list[str]:
        content = self.body["messages"][0]["content"]
        assert isinstance(content, str)
        return content.split()


Script = Callable[[Exchange], None]


def _listen(host: str) -> socket.socket:
    """On 127.0.0.1, ::1, or a path."""
    if host.startswith("/"):
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(host)
        sock.listen(512)
        return sock
    return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512)


class ScriptedServer:
    """Calls `script` for each load request; preflight requests get a plain answer that counts the prompt's words."""

    def __init__(
        self, script: Script, *, preflight: Script | None = None, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self._script = script
        self._preflight = preflight or (
            lambda x: x.send(chunked(answer(prompt=len(x.prompt_words()) if "messages" in x.body else 8)))
        )
        self._tls = tls
        self._socket = _listen(host)
        self.port = 0 if host.startswith("/") else int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.exchanges: list[Exchange] = []
        self.preflights: list[Exchange] = []
        self.connections: list[socket.socket] = []
        self.release = threading.Event()
        self._lock = threading.Lock()
        self._closing = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release.set()
        self.stop()

    def stop(self) -> None:
        """Be gone: refuse new connections and reset the old ones."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for sock in self.connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            pending = b""
            while not self._closing:
                while b"\r\n\r\n" not in pending:
                    data = sock.recv(65536)
                    if not data:
                        return
                    pending += data
                head, _, pending = pending.partition(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                while len(pending) < size:
                    pending += sock.recv(65536)
                exchange = self._exchange(head, pending[:size], sock)
                pending = pending[size:]
                (self._preflight if exchange.preflight else self._script)(exchange)
                if not exchange.open:
                    return

    def _exchange(self, head: bytes, body: bytes, sock: socket.socket) -> Exchange:
        with self._lock:
            exchange = Exchange(len(self.exchanges), head, body, sock, self)
            (self.preflights if exchange.preflight else self.exchanges).append(exchange)
            return exchange


def make_case(**over: Any) -> Case:
    """Three requests, one at a time."""
    values: dict[str, Any] = {
        "name": "point",
        "suite": "tests",
        "model": "tiny",
        "model_source": None,
        "precision": None,
        "engine": "openai",
        "load": LoadSpec(kind="closed", batch_size=1, num_prompts=3),
        "input_tokens": LengthSpec(mean=8),
        "output_tokens": LengthSpec(mean=4),
        "duration_s": 0.4,
        "warmup_s": 0.1,
        "grace_s": 2.0,
        "request_timeout_s": 10.0,
        "idle_s": 0.0,
        "repeats": 1,
        "profile": Profile.SMOKE,
        "client_workers": 1,
    }
    return Case(**(values | over))


def make_target(url: str, **over: Any) -> Target:
    values: dict[str, Any] = {"base_url": url, "protocol": "openai-chat", "model": "tiny"}
    return Target(**(values | over))


def drive(
    url: str,
    folder: Path,
    *,
    on_progress: Callable[[LoadProgress], None] = lambda _: None,
    should_stop: Callable[[], str | None] = lambda: None,
    target: Target | None = None,
    generator: WireLoad | None = None,
    **case: Any,
) -> LoadResult:
    """One trial against `url`; the spill folder must be empty afterwards."""
    spill = folder / "spill"
    plan = LoadPlan(case=make_case(**case), target=target or make_target(url), salt="salt", spill_dir=spill)
    result = (generator or WireLoad()).run(plan, on_progress, should_stop)
    assert list(spill.iterdir()) == []
    return result
