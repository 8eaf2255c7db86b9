"""A few requests before any load: is the target there, does it let us in, and how does it count a prompt?"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
from msgspec.structs import replace

from bench.errors import TargetError
from bench.load.address import Address
from bench.load.dial import Dialer
from bench.load.inflate import Coding
from bench.load.keys import strike_out
from bench.load.messages import Job
from bench.load.parse import ParsedRequest, parse_request
from bench.load.prompts import Calibration, PromptPool
from bench.load.protocols import WireProtocol
from bench.load.spill import End
from bench.load.wire import Connection
from bench.records import MISSING, Case, DataSpec, IntArray, LengthSpec, Outcome, Target

_TRIES = 3
_OUTPUT_TOKENS = 2
_TRANSIENT = (408, 425, 429)
_LARGEST_REPLY_B = 16 << 20
_GLANCE_S = 0.05
"""How often a reply's size is looked at while it comes."""
_PATIENCE_S = 60.0
_SLOWEST_PREFILL = 20.0
"""Prompt tokens a second below which nobody would measure: long prompts get more than `_PATIENCE_S`."""


@dataclass(slots=True)
class _Reply:
    """One answer, held in memory. Is its own sink."""

    body: bytearray = field(default_factory=bytearray)
    ends_b: list[int] = field(default_factory=list)
    stamps_ns: list[int] = field(default_factory=list)
    status: int = MISSING
    end_of: End | None = None
    error: str | None = None
    coding: Coding = Coding.IDENTITY

    def data(self, request: int, stamps_ns: array[int], ends_b: array[int], body: bytearray) -> None:
        self.stamps_ns.extend(stamps_ns)
        self.ends_b.extend(len(self.body) + end for end in ends_b)
        self.body += body

    def end(
        self, request: int, opened_ns: int, closed_ns: int, end: End, *, status: int, error: str | None, coding: Coding
    ) -> None:
        self.end_of, self.status, self.error, self.coding = end, status or MISSING, error, coding


class _Asker:
    """Owner of a single request."""

    def __init__(self) -> None:
        self.sink = _Reply()
        self.over = asyncio.Event()

    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None:
        self.over.set()

    def unanswered(self, connection: Connection) -> None:
        raise AssertionError("a fresh connection has no earlier request")

    def first_content(self, connection: Connection) -> None:
        """Nothing waits for it here."""


def plain(case: Case, input_tokens: int) -> Case:
    """A case of synthetic prompts of one length, whatever its data are."""
    return replace(
        case, data=DataSpec(), input_tokens=LengthSpec(mean=input_tokens), output_tokens=LengthSpec(mean=_OUTPUT_TOKENS)
    )


class Preflight:
    """Asks one target."""

    def __init__(self, job: Job, protocol: WireProtocol, address: Address, key: str | None) -> None:
        self._job, self._protocol, self._address, self._key = job, protocol, address, key
        self._wanted = job.case.data.prefix_tokens + job.case.input_tokens.mean
        self._pool = PromptPool(
            case=plain(job.case, self._wanted), target=job.target, protocol=protocol, address=address, key=key,
            salt=job.salt + "/preflight", calibration=Calibration(), wanted=1,
        )  # fmt: skip
        self._asked = 0

    async def run(self) -> Calibration:
        """How to build prompts of the lengths that are asked for.

        Raises: TargetError if the target can't be reached, lets nobody in, or refuses the request.
        """
        wanted = self._wanted
        first = await self._count(wanted)
        if self._pool.ids is not None or first is None or first == wanted:
            return Calibration()
        other = max(1, wanted // 2) if wanted >= 8 else wanted * 2
        second = await self._count(other)
        if second is None or second == first:
            return Calibration()  # a server that doesn't count
        slope = (first - second) / (wanted - other)
        if not 0.5 <= slope <= 8:
            return Calibration()
        fit = Calibration(overhead_tokens=first - slope * wanted, tokens_per_word=slope)
        check = await self._count(fit.words(wanted))
        if check is None:
            return fit
        return Calibration(overhead_tokens=fit.overhead_tokens + check - wanted, tokens_per_word=slope)

    async def _count(self, words: int) -> int | None:
        """Prompt tokens that the server counts for a prompt of `words` words; None if it doesn't say."""
        parsed = None
        for attempt in range(_TRIES):
            status, parsed = await self._ask(words)
            if status == 200 or (400 <= status < 500 and status not in _TRANSIENT):
                break
            if attempt + 1 < _TRIES:
                await asyncio.sleep(0.1 * 2**attempt)
        assert parsed is not None
        if parsed.outcome is Outcome.HTTP:
            self._refuse(status, parsed.error or "")
        return parsed.usage.prompt_tokens if parsed.usage is not None else None

    async def _ask(self, words: int) -> tuple[int, ParsedRequest]:
        asker = _Asker()
        try:
            connection = await Dialer(self._address, asker).connect()
        except OSError as error:
            problem = error.strerror or str(error) or "no answer in time"
            raise TargetError(
                strike_out(f"can't connect to {self._job.target.base_url}: {problem}", self._key),
                hint="is the server up, and is that its address and port?",
            ) from error
        template = self._pool.template(words, _OUTPUT_TOKENS)
        payload = template.before + self._pool.lead(self._asked, template.lead_tokens) + template.after
        self._asked += 1
        connection.send(0, payload, MISSING)
        try:
            await self._answer(asker, connection, words)
        finally:
            connection.close()
        return asker.sink.status, self._parse(asker.sink)

    async def _answer(self, asker: _Asker, connection: Connection, words: int) -> None:
        """Wait for the answer, within bounds of time and size. Raises: TargetError."""
        url = self._job.target.base_url
        patience_s = min(self._job.case.request_timeout_s, _PATIENCE_S + words / _SLOWEST_PREFILL)
        deadline = monotonic() + patience_s
        while not asker.over.is_set() and monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asker.over.wait(), min(_GLANCE_S, max(0.0, deadline - monotonic())))
            if not asker.over.is_set():
                connection.flush()
            if len(asker.sink.body) > _LARGEST_REPLY_B:
                raise TargetError(
                    f"{url} sent more than {_LARGEST_REPLY_B >> 20} MiB for an answer of {_OUTPUT_TOKENS} tokens",
                    hint="is that the address of a model server?",
                )
        if not asker.over.is_set():
            did = "sent no answer" if connection.status == MISSING else "did not finish its answer"
            raise TargetError(
                f"{url} accepted the request and {did} within {patience_s:g} s",
                hint="is the server busy or stuck? Try one request by hand; a slow one needs a longer request_timeout",
            )

    def _parse(self, reply: _Reply) -> ParsedRequest:
        stamps: IntArray = np.array(reply.stamps_ns, dtype=np.int64)
        ends: IntArray = np.array(reply.ends_b, dtype=np.int64)
        body = bytes(reply.body)
        return parse_request(
            self._protocol, body, stamps, ends,
            end=reply.end_of, status=reply.status, error=reply.error, coding=reply.coding,
        )  # fmt: skip

    def _refuse(self, status: int, error: str) -> None:
        """Raise for answers that no amount of load will change; let the others (5xx, 429) be counted by the load itself."""
        if not 300 <= status < 500 or status in _TRANSIENT:
            return
        path = self._protocol.path(self._job.target, stream=self._job.case.stream)
        url = f"{self._job.target.base_url} ({self._address.path}{path})"
        raise TargetError(
            f"{url} refuses: {strike_out(error, self._key)}", hint=refusal_hint(status, self._job.target, bool(self._key))
        )


def refusal_hint(status: int, target: Target, has_key: bool) -> str:
    """The next step after an HTTP status. Names the variable of the key, never the key."""
    if status in (401, 403):
        if target.api_key_env is None:
            return "it wants an API key: name the variable that holds it with --api-key-env"
        return (
            f"the key in {target.api_key_env} was not accepted"
            if has_key
            else f"{target.api_key_env} is not set: put the key there"
        )
    if status in (404, 405):
        return f"is {target.model!r} a model that it serves, and does it speak {target.protocol}?"
    if status == 407:
        return "the proxy wants credentials: http://USER:PASSWORD@HOST:PORT in http_proxy, or the target's name in no_proxy"
    if 300 <= status < 400:
        return "it redirects elsewhere: use the final URL as base_url"
    return (
        "it does not take one of the request's fields; sampling: {ignore_eos: false} leaves out the one that not all servers know"
    )
