"""The OpenAI protocol for engines that are libraries: completions and chat, streamed with one event a token or whole.

Standard library only, Python 3.10 and newer: it stands beside the engine's own shim and runs in the engine's own environment. The
engine fills `Engine`; each request gets its tokens through a queue, at the moment they are there.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

PATHS = ("/v1/completions", "/v1/chat/completions")
REFUSED = ("best_of", "frequency_penalty", "logit_bias", "presence_penalty", "stop", "tools")
"""Fields that would change the answer and that are not served: ignoring them would be a lie."""
MOST_SCORED_TOKENS = 1024
"""Of a prompt that is echoed with its logprobs: each has a number for every word of the vocabulary while it is looked at."""
MOST_LOGPROBS = 20
Score = tuple[float, list[tuple[int, float]]]
"""ln of the probability of a token, and the best tokens in its place with theirs."""
UNFINISHED = "\ufffd"
"""What an incomplete character decodes to."""


class RefusedError(Exception):
    """A request that can't be served: HTTP 400."""


@dataclass(eq=False)
class Request:
    """One prompt, and how it is to be continued. `events` gets (token, finish reason or None), the last with a reason.

    `logprobs`: so many of the best tokens are wanted with each. `scores` then has one for each token, before its event comes,
    and with `echo` `prompt_scores` one for each of the prompt's but the first.
    """

    ids: list[int]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    echo: bool = False
    scores: list[Score] = field(default_factory=list)
    prompt_scores: list[Score] = field(default_factory=list)
    made: int = 0
    cancelled: bool = False
    events: queue.SimpleQueue[tuple[int, str | None]] = field(default_factory=queue.SimpleQueue)


class Engine(Protocol):
    """What is served. `info` is None until the model is loaded. One whose stepper fills in scores has a true `gives_logprobs`."""

    name: str
    info: dict[str, Any] | None
    context: int
    vocabulary: int

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...

    def submit(self, request: Request) -> None: ...

    def counters(self) -> dict[str, float]: ...


class Text:
    """Tokens as text, each with the characters that it completes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ids: list[int] = []
        self._start = 0
        self._read = 0

    def add(self, token: int, *, last: bool) -> str:
        """The text that is new with `token`; empty while a character is incomplete."""
        self._ids.append(token)
        before = self._engine.decode(self._ids[self._start : self._read])
        now = self._engine.decode(self._ids[self._start :])
        if len(now) <= len(before) or (now.endswith(UNFINISHED) and not last):
            return ""
        self._start, self._read = self._read, len(self._ids)
        return now[len(before) :]


def request_of(engine: Engine, body: dict[str, Any], *, chat: bool) -> Request:
    """What a body asks for. Raises: RefusedError."""
    wanted = [name for name in REFUSED if body.get(name)] + (["n"] if body.get("n") not in (None, 1) else [])
    if wanted:
        raise RefusedError(f"not served here: {', '.join(wanted)}")
    ids = engine.encode_chat(body["messages"]) if chat else _prompt_ids(engine, body["prompt"])
    room = engine.context - len(ids)
    asked = body.get("max_completion_tokens") or body.get("max_tokens") or (room if chat else 16)
    if not ids or room < asked or asked < 1:
        raise RefusedError(f"{len(ids)} prompt tokens and {asked} to be made do not fit a context of {engine.context}")
    logprobs = _logprobs(engine, body, chat=chat)
    if body.get("echo") and len(ids) > MOST_SCORED_TOKENS:
        raise RefusedError(f"echo of {len(ids)} tokens: at most {MOST_SCORED_TOKENS}")
    return Request(
        ids=ids,
        max_tokens=int(asked),
        temperature=float(body.get("temperature", 1.0)),
        top_p=float(body.get("top_p", 1.0)),
        seed=body.get("seed"),
        ignore_eos=bool(body.get("ignore_eos", False)),
        min_tokens=int(body.get("min_tokens", 0)),
        logprobs=logprobs,
        echo=bool(body.get("echo")),
    )


def _logprobs(engine: Engine, body: dict[str, Any], *, chat: bool) -> int | None:
    """How many of the best tokens are to be told with each; None: no logprobs. Raises: RefusedError."""
    wanted = body.get("logprobs")
    named = [name for name in ("logprobs", "echo") if body.get(name)]
    if not named:
        return None
    if chat or body.get("stream") or not getattr(engine, "gives_logprobs", False):
        raise RefusedError(f"not served here: {', '.join(named)} (whole completions may have them, of engines that tell)")
    if type(wanted) is not int or not 1 <= wanted <= MOST_LOGPROBS:
        raise RefusedError(f"logprobs must be from 1 to {MOST_LOGPROBS}, with echo too")
    return wanted


def _prompt_ids(engine: Engine, prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return engine.encode(prompt)
    if isinstance(prompt, list) and all(type(token) is int and 0 <= token < engine.vocabulary for token in prompt):
        return prompt
    raise RefusedError(f"prompt must be a text or a list of token ids below {engine.vocabulary}")


class Handler(BaseHTTPRequestHandler):
    """One connection, kept alive."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine

    def do_GET(self) -> None:
        """Health, what is served, what it did."""
        info = self.engine.info
        if info is None:
            self._reply(503, {"error": {"message": "the model is not loaded yet"}})
        elif self.path == "/health":
            self._reply(200, {"status": "ok"})
        elif self.path == "/info":
            self._reply(200, info)
        elif self.path == "/v1/models":
            entry = {"id": self.engine.name, "object": "model", "owned_by": info["engine"], "max_model_len": self.engine.context}
            self._reply(200, {"object": "list", "data": [{**entry, "meta": {"n_vocab": self.engine.vocabulary}}]})
        elif self.path == "/metrics":
            lines = (f"{info['engine']}:{name} {value:g}\n" for name, value in self.engine.counters().items())
            self._send(200, "".join(lines).encode(), "text/plain; version=0.0.4")
        else:
            self._reply(404, {"error": {"message": f"no page {self.path}"}})

    def do_POST(self) -> None:
        """Tokens."""
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chat = self.path == PATHS[1]
        if self.path not in PATHS or self.engine.info is None:
            status = 404 if self.path not in PATHS else 503
            self._reply(status, {"error": {"message": "no such page" if status == 404 else "the model is not loaded yet"}})
            return
        try:
            body = json.loads(data)
            request = request_of(self.engine, body, chat=chat)
        except (RefusedError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._reply(400, {"error": {"message": f"{type(error).__name__}: {error}", "type": "invalid_request_error"}})
            return
        self.engine.submit(request)
        try:
            self._stream(request, body, chat=chat) if body.get("stream") else self._whole(request, chat=chat)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            request.cancelled = True

    def _whole(self, request: Request, *, chat: bool) -> None:
        pieces = list(self._pieces(request))
        text = "".join(piece for _, piece, _ in pieces)
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        if request.logprobs is not None:
            told = logprobs_of(self.engine, request, [(token, piece) for token, piece, _ in pieces])
            content = {"text": "".join(told["tokens"]), "logprobs": told}
        choice = {"index": 0, "finish_reason": pieces[-1][2], "token_ids": [token for token, _, _ in pieces], **content}
        self._reply(200, {**self._head(chat=chat, chunk=False), "choices": [choice], "usage": _usage(request)})

    def _stream(self, request: Request, body: dict[str, Any], *, chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = self._head(chat=chat, chunk=True)
        role = {"role": "assistant"}
        for token, text, reason in self._pieces(request):
            content: dict[str, Any] = {"delta": {**role, "content": text}} if chat else {"text": text}
            role = {}
            choice = {"index": 0, "finish_reason": reason, "token_ids": [token], **content}
            self._event({**head, "choices": [choice]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event({**head, "choices": [], "usage": _usage(request)})
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _pieces(self, request: Request) -> Iterator[tuple[int, str, str | None]]:
        """Each token as it comes, the text that it completes, and the finish reason with the last."""
        text, reason = Text(self.engine), None
        while reason is None:
            token, reason = request.events.get()
            yield token, text.add(token, last=reason is not None), reason

    def _head(self, *, chat: bool, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if chat else "text_completion"
        return {"id": f"cmpl-{time.monotonic_ns()}", "object": kind, "created": int(time.time()), "model": self.engine.name}

    def _event(self, event: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _reply(self, status: int, document: dict[str, Any]) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """A line for each request would be written while it is measured."""


def logprobs_of(engine: Engine, request: Request, made: list[tuple[int, str]]) -> dict[str, Any]:
    """OpenAI's object of the tokens of an answer, with `echo` after those of the prompt, whose first has no probability."""
    scores: list[Score | None] = []
    tokens: list[str] = []
    if request.echo:
        text = Text(engine)
        tokens = [text.add(token, last=token_is_last) for token, token_is_last in _marked(request.ids)]
        scores = [None, *request.prompt_scores]
    scores += request.scores[: len(made)]
    tokens += [piece for _, piece in made]
    offsets = [0]
    for token in tokens[:-1]:
        offsets.append(offsets[-1] + len(token))
    return {
        "tokens": tokens,
        "token_logprobs": [score and score[0] for score in scores],
        "top_logprobs": [score and _best(engine, score[1]) for score in scores],
        "text_offset": offsets,
    }


def _marked(ids: list[int]) -> Iterator[tuple[int, bool]]:
    return ((token, number == len(ids)) for number, token in enumerate(ids, 1))


def _best(engine: Engine, best: list[tuple[int, float]]) -> dict[str, float]:
    """By text; of two tokens with the same text the likelier."""
    found: dict[str, float] = {}
    for token, logprob in best:
        found.setdefault(engine.decode([token]), logprob)
    return found


def _usage(request: Request) -> dict[str, int]:
    prompt = len(request.ids)
    return {"prompt_tokens": prompt, "completion_tokens": request.made, "total_tokens": prompt + request.made}


class Server(ThreadingHTTPServer):
    """A thread for each connection; as many may knock at once as a load has."""

    daemon_threads = True
    request_queue_size = 1024


def listen(engine: Engine, port: int, host: str = "127.0.0.1") -> Server:
    """Serve `engine` from threads of its own. Raises: OSError (the port is taken)."""
    server = Server((host, port), type("Bound", (Handler,), {"engine": engine}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
