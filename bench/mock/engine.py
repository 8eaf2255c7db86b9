"""The mock engine: takes requests, lays out replies, sends them on schedule and keeps account."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import parse_qs

import msgspec
import numpy as np

from bench import __version__, codec
from bench.clock import SYSTEM
from bench.mock.api import ApiError, Ask, parse_chat, parse_completion
from bench.mock.connection import Connection, Request
from bench.mock.emission import Emission
from bench.mock.ledger import Ledger, Record
from bench.mock.options import MockOptions
from bench.mock.plan import Ending, Planner
from bench.mock.quirks import parse_quirks
from bench.mock.render import RETRY_AFTER_S, Renderer, plain_response
from bench.mock.schedule import Schedule, new_alarm, now_ns
from bench.mock.stream import Stream
from bench.mock.truth import truth_over
from bench.units import NS_PER_S

SLICE_NS = 200_000
"""Longest time spent on new requests before streams get their turn [ns]."""
EXIT_DIED = 70
RETRIED = frozenset({429, 503})
REDIRECTED = "redirected=1"


class MockEngine:
    """Answers OpenAI requests. One event loop, one thread."""

    def __init__(self, options: MockOptions, loop: asyncio.AbstractEventLoop, api_key: str | None) -> None:
        self._options = options
        self._loop = loop
        self._expected = None if api_key is None else f"Bearer {api_key}"
        self._quirks = parse_quirks(options.quirks)
        self._rng = np.random.default_rng(options.seed)
        self._created_s = SYSTEM.wall_ns() // NS_PER_S
        renderer = Renderer(model=options.model, created_s=self._created_s, quirks=self._quirks)
        self._planner = Planner(options, self._quirks, renderer, self._rng)
        self._schedule = Schedule(lambda ring: new_alarm(loop, ring))
        self._ledger = Ledger(options.truth_chunks)
        self._connections: set[Connection] = set()
        self._inbox: deque[tuple[Connection, bytes, int]] = deque()
        self._reading = False
        self._waiting: deque[Stream] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = self._answered = self._failed = 0
        self.buffered = 0
        self.emission = None if options.emission_file is None else Emission(options.emission_file, loop)
        self._prompt_tokens = self._cached_tokens = self._output_tokens = 0
        self._started_ns = now_ns()
        self._ready_ns = self._started_ns + round((self._quirks.number("slow-start") or 0.0) * NS_PER_S)
        self._pages: dict[str, Callable[[], tuple[bytes, str]]] = {
            "/v1/models": self._models,
            "/health": lambda: (b"{}", "application/json"),
            "/version": lambda: (msgspec.json.encode({"version": f"mock-{__version__}"}), "application/json"),
            "/metrics": self._metrics,
        }
        self._parsers = {"/v1/chat/completions": parse_chat, "/v1/completions": parse_completion}

    def close(self) -> None:
        """Cut all connections."""
        self._schedule.close()
        if self.emission is not None:
            self.emission.close()
        for connection in tuple(self._connections):
            connection.abort()

    # --- new requests -------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        self._connections.add(connection)

    def gone(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def received(self, connection: Connection, data: bytes) -> None:
        """Only stamp: when a thousand requests come at once, the last must not wait for the work on the others."""
        self._inbox.append((connection, data, now_ns()))
        if not self._reading:
            self._reading = True
            self._loop.call_soon(self._read_inbox)

    def _read_inbox(self) -> None:
        until_ns = now_ns() + SLICE_NS
        inbox = self._inbox
        try:
            while inbox:
                connection, data, read_ns = inbox.popleft()
                connection.feed(data, read_ns)
                if now_ns() > until_ns:
                    break
        finally:
            self._reading = bool(inbox)
            if inbox:
                self._loop.call_soon(self._read_inbox)

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer one request: a page, a generation, or an error."""
        try:
            if request.path == "/truth":
                self._answer_truth(connection, request)
                return
            self._check(request)
            if request.path in self._parsers:
                self._generate(connection, request)
                return
            body, content_type = self._pages.get(request.path, lambda: _not_found(request.path))()
            self._respond(connection, request, 200, body, content_type=content_type)
        except ApiError as error:
            self._fail(connection, request, error)

    def _check(self, request: Request) -> None:
        if now_ns() < self._ready_ns:
            raise ApiError(503, "mock: still loading the model", kind="service_unavailable")
        if not request.path.startswith("/v1/"):
            return
        if "unauthorized" in self._quirks or self._expected not in {None, request.authorization}:
            raise ApiError(401, "incorrect API key", kind="authentication_error", code="invalid_api_key")

    def _respond(
        self,
        connection: Connection,
        request: Request,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        close = not request.keep_alive
        connection.send(plain_response(status, body, content_type=content_type, headers=headers, close=close))
        connection.answered(close=close)

    def _fail(self, connection: Connection, request: Request, error: ApiError) -> None:
        if request.path in self._parsers:
            self._failed += 1
        headers: tuple[tuple[str, str], ...] = ()
        if error.status in RETRIED:
            headers = (("retry-after", str(RETRY_AFTER_S)),)
        elif error.status == 307:
            headers = (("location", f"{request.path}?{REDIRECTED}"),)
        self._respond(connection, request, error.status, error.body(), headers=headers)

    # --- generation ---------------------------------------------------------------------------------------------------

    def _generate(self, connection: Connection, request: Request) -> None:
        if request.method != "POST":
            raise ApiError(405, f"{request.path} takes POST, not {request.method}")
        self._misbehave(request)
        ask = self._parsers[request.path](request.body)
        self._check_model(ask)
        reply = self._planner.plan(ask)
        record = Record(
            opened_ns=request.opened_ns,
            arrived_ns=request.arrived_ns,
            streamed=ask.stream,
            tokens=reply.tokens,
            tokens_per_chunk=reply.tokens_per_chunk,
            prompt_tokens=ask.prompt_tokens,
        )
        stream = Stream(self, connection, reply, record, close_after=not request.keep_alive)
        self._ledger.open(record)
        self._prompt_tokens += ask.prompt_tokens
        self._cached_tokens += reply.cached_tokens
        limit = self._options.max_in_flight
        if limit is not None and self._running >= limit:
            connection.on_lost = lambda: self._left_queue(stream)
            self._waiting.append(stream)
        else:
            self._admit(stream, request.arrived_ns)

    def _misbehave(self, request: Request) -> None:
        status = self._quirks.status
        if status is not None and self._rng.random() < status[1]:
            raise ApiError(status[0], f"mock: answers {status[0]}", kind="mock_error")
        if "redirect" in self._quirks and request.query != REDIRECTED:
            raise ApiError(307, "mock: look elsewhere")

    def _check_model(self, ask: Ask) -> None:
        known = () if "model-404" in self._quirks else (self._options.model,)
        if ask.model not in known and not (ask.model is None and known):
            raise ApiError(404, f"the model {ask.model!r} does not exist", kind="NotFoundError", code="model_not_found")

    def _admit(self, stream: Stream, admitted_ns: int) -> None:
        self._running += 1
        stream.connection.on_lost = lambda: self._lost(stream)
        if "hang" in self._quirks:
            return
        due_ns = stream.start(admitted_ns)
        if due_ns is not None:
            self._schedule.add(due_ns, stream)

    def sent_all(self, stream: Stream) -> None:
        """The last byte of a reply was written."""
        ending, connection = stream.reply.ending, stream.connection
        if ending is Ending.SILENT:
            return
        self._end(stream, complete=stream.reply.complete)
        if ending is Ending.RESET:
            connection.on_lost = None
            connection.reset()
        else:
            connection.answered(close=ending is Ending.CLOSE or stream.close_after)
        self._answered += 1
        limit = self._quirks.count("die-after")
        if limit is not None and self._answered >= limit:
            _die()

    def _lost(self, stream: Stream) -> None:
        self._end(stream, complete=False)

    def _left_queue(self, stream: Stream) -> None:
        self._waiting.remove(stream)
        self._close_record(stream, complete=False)

    def _end(self, stream: Stream, *, complete: bool) -> None:
        self._close_record(stream, complete=complete)
        self._running -= 1
        limit = self._options.max_in_flight
        while self._waiting and limit is not None and self._running < limit:
            self._admit(self._waiting.popleft(), now_ns())

    def _close_record(self, stream: Stream, *, complete: bool) -> None:
        record = stream.record
        record.ended_ns = now_ns()
        record.complete = complete
        self._output_tokens += record.tokens_sent()
        self._failed += not complete
        self._ledger.close(record)

    # --- pages --------------------------------------------------------------------------------------------------------

    def _models(self) -> tuple[bytes, str]:
        known = [] if "model-404" in self._quirks else [self._options.model]
        models = [{"id": name, "object": "model", "created": self._created_s, "owned_by": "tokjoule"} for name in known]
        return msgspec.json.encode({"object": "list", "data": models}), "application/json"

    def _metrics(self) -> tuple[bytes, str]:
        rows = (
            ("prompt_tokens_total", "counter", self._prompt_tokens),
            ("prompt_tokens_cached_total", "counter", self._cached_tokens),
            ("generation_tokens_total", "counter", self._output_tokens + self._ledger.running_tokens()),
            ("requests_failed_total", "counter", self._failed),
            ("chunks_buffered_total", "counter", self.buffered),
            ("requests_running", "gauge", self._running),
            ("requests_waiting", "gauge", len(self._waiting)),
        )
        label = f"{{model_name={msgspec.json.encode(self._options.model).decode()}}}"
        lines = [f"# TYPE mock:{name} {kind}\nmock:{name}{label} {value}\n" for name, kind, value in rows]
        return "".join(lines).encode(), "text/plain; version=0.0.4; charset=utf-8"

    def _answer_truth(self, connection: Connection, request: Request) -> None:
        from_ns, to_ns = self._window(request.query)
        if self._ledger.forgotten_ns >= from_ns:
            raise ApiError(410, f"stamps up to {self._ledger.forgotten_ns} were let go: ask earlier, or raise --truth-chunks")
        rows = self._ledger.since(from_ns)

        async def compute() -> None:
            # in a thread: streams that still run are not held up by the sorting
            truth = await self._loop.run_in_executor(None, truth_over, rows, from_ns, to_ns)
            self._respond(connection, request, 200, codec.encode(truth))

        task = self._loop.create_task(compute())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _window(self, query: str) -> tuple[int, int]:
        fields = parse_qs(query)
        try:
            from_ns = int(fields.get("from_ns", [str(self._started_ns)])[0])
            to_ns = int(fields.get("to_ns", [str(now_ns())])[0])
        except ValueError as error:
            raise ApiError(400, f"from_ns and to_ns are monotonic nanoseconds: {error}") from None
        if to_ns <= from_ns:
            raise ApiError(400, f"the window [{from_ns}, {to_ns}) is empty")
        return from_ns, to_ns


def _not_found(path: str) -> NoReturn:
    raise ApiError(404, f"{path} is not served here", code="not_found")


def _die() -> NoReturn:
    os._exit(EXIT_DIED)
