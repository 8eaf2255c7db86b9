"""A reply laid out in advance: which bytes leave when. No clock and no socket here."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import numpy as np

from bench.mock.api import Ask
from bench.mock.options import MockOptions
from bench.mock.quirks import Quirks
from bench.mock.render import Renderer, usage_json
from bench.units import NS_PER_MS

SPLIT_STEP_NS = 20_000
"""Time between the pieces of a split write, shorter where the gap is too small for it [ns]."""
MAX_PIECES = 6
EVENT_CACHE_B = 64 << 20
"""Memory that rendered events may take, about [bytes]."""
EVENT_B = 400
RESHAPING = ("content-length-close", "gzip", "split-bytes", "coalesce", "comments", "slow-headers")
"""Quirks that need the bytes of the whole reply at once: those replies are laid out for each request."""
WRONG_USAGE_EXCESS = 7


class Ending(Enum):
    """What happens to the connection once everything was written."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that leave `offset_ns` after the due time of the first content chunk and complete `chunks` content chunks."""

    offset_ns: int
    data: bytes
    chunks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`opening` leaves at once, then `writes[i]` at `offsets_ns[i]` after the first content chunk's due time, completing
    `chunks[i]` content chunks of `tokens_per_chunk` tokens each (the last may hold fewer; `tokens` in all).
    """

    opening: bytes
    writes: Sequence[bytes]
    offsets_ns: Sequence[int]
    chunks: Sequence[int]
    ttft_ns: int
    tokens: int
    tokens_per_chunk: int
    cached_tokens: int
    ending: Ending
    complete: bool


Tail = tuple[tuple[int, bytes], ...]
"""(delay after the last content chunk [ns], bytes) of what ends a stream."""


@dataclass(frozen=True, slots=True)
class _Cut:
    after: int
    ending: Ending
    tail: Tail


class Planner:
    """Turns what was asked into a `Reply`. `rng` feeds the random quirks only."""

    def __init__(self, options: MockOptions, quirks: Quirks, renderer: Renderer, rng: np.random.Generator) -> None:
        self._quirks = quirks
        self._render = renderer
        self._rng = rng
        self._ttft_ns = round(options.ttft_ms * NS_PER_MS)
        self._gap_ns = round(options.gap_ms * NS_PER_MS)
        self._prefill_ns = options.prefill_us_per_token * 1000.0
        self._tokens_per_chunk = quirks.count("multi-token") or options.tokens_per_chunk
        self._plain = not any(name in quirks for name in RESHAPING)
        events = max(64, EVENT_CACHE_B // (EVENT_B + (quirks.count("big-events") or 0)))
        self._event = lru_cache(maxsize=events)(self._render_event)
        self._body = lru_cache(maxsize=4 if "big-events" in quirks else 1024)(self._render_body)
        self._tail = lru_cache(maxsize=4096)(self._render_tail)
        fixed = self._plain and not ("gap-jitter" in quirks or "big-events" in quirks)
        self.plan: Callable[[Ask], Reply] = lru_cache(maxsize=2048)(self._lay_out) if fixed else self._lay_out
        """The reply to what was asked; the same object for the same question where nothing in it is random."""
        self._opening = {chat: self._render_opening(chat=chat) for chat in (False, True)}

    def _lay_out(self, ask: Ask) -> Reply:
        tokens, reason = self._tokens(ask)
        cached = min(self._quirks.count("cached") or 0, ask.prompt_tokens)
        ttft_ns = self._ttft_ns + round(self._prefill_ns * (ask.prompt_tokens - cached))
        if not ask.stream:
            return self._whole(ask, tokens, reason, ttft_ns)
        every = ask.usage_every_chunk or "usage-every-chunk" in self._quirks
        usage_prompt = ask.prompt_tokens if every and "no-usage" not in self._quirks else None
        body = self._body(ask.chat, tokens, usage_prompt)
        cut = self._cut(body)
        body = body if cut is None else body[: cut.after]
        tail = self._tail(ask.chat, tokens, ask.prompt_tokens, reason, ask.include_usage) if cut is None else cut.tail
        offsets = self._offsets(len(body))
        end_ns = offsets[-1] if body else 0
        ending = Ending.KEEP if cut is None else cut.ending
        reply = Reply(
            opening=self._opening[ask.chat],
            writes=body + tuple(data for _, data in tail),
            offsets_ns=offsets + tuple(end_ns + delay_ns for delay_ns, _ in tail),
            chunks=(1,) * len(body) + (0,) * len(tail),
            ttft_ns=ttft_ns,
            tokens=tokens,
            tokens_per_chunk=self._tokens_per_chunk,
            cached_tokens=cached,
            ending=Ending.CLOSE if ending is Ending.KEEP and not self._render.chunked else ending,
            complete=cut is None,
        )
        return reply if self._plain else self._reshaped(reply, whole_body=bool(tail))

    # --- the stream, event by event -----------------------------------------------------------------------------------

    def _tokens(self, ask: Ask) -> tuple[int, str]:
        if "empty-reply" in self._quirks:
            return 0, "stop"
        stop_at = self._quirks.count("eos")
        if stop_at is not None and stop_at < ask.max_tokens and not ask.ignore_eos:
            return stop_at, "stop"
        return ask.max_tokens, "tool_calls" if "tool-calls" in self._quirks and ask.chat else "length"

    def _render_opening(self, *, chat: bool) -> bytes:
        wants_role = chat and not ("no-role" in self._quirks or "role-with-first" in self._quirks)
        role = self._render.role() if wants_role else b""
        return self._render.head() + self._render.frame(role) if self._plain else role

    def _render_body(self, chat: bool, tokens: int, usage_prompt: int | None) -> tuple[bytes, ...]:
        step = self._tokens_per_chunk
        thinking = self._render.thinking_tokens(tokens)
        return tuple(
            self._event(chat, first, min(step, tokens - first), first < thinking, usage_prompt)
            for first in range(0, tokens, step)
        )

    def _render_event(self, chat: bool, first: int, count: int, thinking: bool, usage_prompt: int | None) -> bytes:
        usage = None if usage_prompt is None else self._usage(usage_prompt, first + count)
        event = self._render.content(chat=chat, first=first, count=count, thinking=thinking, usage=usage)
        if first == 0 and chat and "role-with-first" in self._quirks:
            event = self._render.role() + event
        return self._render.frame(event) if self._plain else event

    def _render_tail(self, chat: bool, tokens: int, prompt_tokens: int, reason: str, include_usage: bool) -> Tail:
        finish, usage = self._render.finish(chat=chat, reason=reason), b""
        if include_usage and "no-usage" not in self._quirks:
            usage = self._render.usage(chat=chat, usage=self._usage(prompt_tokens, tokens))
        late_ns = self._quirks.ms_ns("usage-late")
        if late_ns:
            return self._closed((0, finish), (late_ns, usage + self._render.done()))
        return self._closed((0, finish + usage + self._render.done()))

    def _closed(self, *tail: tuple[int, bytes]) -> Tail:
        """`tail` framed, with the end of the HTTP body; reshaped replies are framed later."""
        if not self._plain:
            return tail
        framed = [(delay_ns, self._render.frame(data)) for delay_ns, data in tail]
        last_delay_ns, last = framed.pop()
        return (*framed, (last_delay_ns, last + self._render.last_frame()))

    def _usage(self, prompt_tokens: int, output_tokens: int) -> bytes:
        cached = self._quirks.count("cached")
        wrong = WRONG_USAGE_EXCESS if "wrong-usage" in self._quirks else 0
        return usage_json(prompt_tokens, output_tokens + wrong, None if cached is None else min(cached, prompt_tokens))

    def _cut(self, body: tuple[bytes, ...]) -> _Cut | None:
        """Where a quirk ends the body early, and how; None for a complete reply."""
        for name, ending in (("truncate", Ending.CLOSE), ("reset", Ending.RESET), ("hang-after", Ending.SILENT)):
            after = self._quirks.count(name)
            if after is not None:
                return _Cut(min(after, len(body)), ending, ())
        after = self._quirks.count("error-in-stream")
        if after is not None:
            return _Cut(min(after, len(body)), Ending.KEEP, self._closed((0, self._render.error())))
        return None

    def _offsets(self, count: int) -> tuple[int, ...]:
        sigma, stall = self._quirks.number("gap-jitter"), self._quirks.stall
        if sigma is None and stall is None:
            return _even_offsets(count, self._gap_ns)
        gaps = np.full(max(0, count - 1), float(self._gap_ns))
        if sigma is not None:
            gaps *= np.exp(self._rng.normal(-sigma * sigma / 2, sigma, len(gaps)))
        if stall is not None:
            every, pause_ns = stall
            gaps[every - 1 :: every] += pause_ns
        return (0, *np.cumsum(np.rint(gaps)).astype(np.int64).tolist())[:count]

    # --- the way to the wire ------------------------------------------------------------------------------------------

    def _reshaped(self, reply: Reply, *, whole_body: bool) -> Reply:
        """Every write goes through the quirks that change the bytes on the wire."""
        plan = [Write(*row) for row in zip(reply.offsets_ns, reply.writes, reply.chunks, strict=True)]
        if "comments" in self._quirks:
            plan = self._with_comments(plan)
        plan = self._coalesced(plan)
        plan = [Write(-reply.ttft_ns + self._quirks.ms_ns("slow-headers"), reply.opening), *plan]
        if "gzip" in self._quirks:
            plan = _gzipped(plan)
        length = sum(len(write.data) for write in plan) if "content-length-close" in self._quirks else None
        plan = [replace(write, data=self._render.frame(write.data)) for write in plan]
        plan[0] = replace(plan[0], data=self._render.head(length=length) + plan[0].data)
        if whole_body:
            plan[-1] = replace(plan[-1], data=plan[-1].data + self._render.last_frame())
        return self._scheduled(reply, plan)

    def _with_comments(self, plan: list[Write]) -> list[Write]:
        spoken: list[Write] = []
        for write in plan:
            before = spoken[-1].offset_ns if spoken else write.offset_ns - self._gap_ns
            spoken.append(Write((before + write.offset_ns) // 2, self._render.comment()))
            spoken.append(write)
        return spoken

    def _coalesced(self, plan: list[Write]) -> list[Write]:
        size = self._quirks.count("coalesce") or 1
        groups = [plan[at : at + size] for at in range(0, len(plan), size)]
        return [
            Write(group[-1].offset_ns, b"".join(write.data for write in group), sum(write.chunks for write in group))
            for group in groups
        ]

    def _scheduled(self, reply: Reply, plan: list[Write]) -> Reply:
        """`plan` in columns, times never falling, split into pieces where a quirk asks for it."""
        for at in range(1, len(plan)):
            if plan[at].offset_ns < plan[at - 1].offset_ns:
                plan[at] = replace(plan[at], offset_ns=plan[at - 1].offset_ns)
        split = self._quirks.text("split-bytes")
        if split is not None:
            plan = self._pieces(plan, at_random=split == "random")
        return replace(
            reply,
            opening=b"",
            writes=tuple(write.data for write in plan),
            offsets_ns=tuple(write.offset_ns for write in plan),
            chunks=tuple(write.chunks for write in plan),
        )

    def _pieces(self, plan: list[Write], *, at_random: bool) -> list[Write]:
        """Each write in pieces. The last piece leaves when the whole was due and the others shortly before, but for the
        opening, which starts at its time.
        """
        plan = [write for write in plan if write.data]
        pieces: list[Write] = []
        for at, write in enumerate(plan):
            cuts = self._cuts(len(write.data), at_random=at_random)
            room_ns = write.offset_ns - plan[at - 1].offset_ns if at else plan[1].offset_ns - write.offset_ns
            step_ns = min(SPLIT_STEP_NS, room_ns // 2 // len(cuts))
            begin_ns = write.offset_ns - step_ns * (len(cuts) - 1) if at else write.offset_ns
            start = 0
            for number, end in enumerate(cuts):
                chunks = write.chunks if end == len(write.data) else 0
                pieces.append(Write(begin_ns + step_ns * number, write.data[start:end], chunks))
                start = end
        return pieces

    def _cuts(self, size: int, *, at_random: bool) -> list[int]:
        if not at_random:
            return list(range(1, size + 1))
        count = min(size - 1, int(self._rng.integers(1, MAX_PIECES)))
        inner: list[int] = self._rng.choice(size - 1, size=count, replace=False).tolist() if count else []
        return [*sorted(cut + 1 for cut in inner), size]

    # --- replies that are not streamed --------------------------------------------------------------------------------

    def _whole(self, ask: Ask, tokens: int, reason: str, ttft_ns: int) -> Reply:
        usage = None if "no-usage" in self._quirks else self._usage(ask.prompt_tokens, tokens)
        body = self._render.whole(ask, tokens=tokens, reason=reason, usage=usage)
        if "gzip" in self._quirks:
            body = gzip.compress(body)
        head = self._render.head(content_type="application/json", length=len(body))
        steps = max(0, -(-tokens // self._tokens_per_chunk) - 1)
        return Reply(
            opening=b"",
            writes=(head + body,),
            offsets_ns=(steps * self._gap_ns,),
            chunks=(1 if tokens else 0,),
            ttft_ns=ttft_ns,
            tokens=tokens,
            tokens_per_chunk=max(1, tokens),
            cached_tokens=min(self._quirks.count("cached") or 0, ask.prompt_tokens),
            ending=Ending.KEEP if self._render.chunked else Ending.CLOSE,
            complete=True,
        )


@lru_cache(maxsize=1024)
def _even_offsets(count: int, gap_ns: int) -> tuple[int, ...]:
    return tuple(range(0, count * gap_ns, gap_ns)) if gap_ns else (0,) * count


def _gzipped(plan: list[Write]) -> list[Write]:
    packer = zlib.compressobj(wbits=31)
    packed = []
    for at, write in enumerate(plan):
        flush = zlib.Z_FINISH if at == len(plan) - 1 else zlib.Z_SYNC_FLUSH
        packed.append(replace(write, data=packer.compress(write.data) + packer.flush(flush)))
    return packed
