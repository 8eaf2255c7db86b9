"""The ways in which the mock engine can misbehave: one table, one parser.

Each quirk is a name with or without a value (`--quirk cached=32`). They compose, but for the pairs in `EXCLUSIVE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from bench.errors import UsageError
from bench.units import NS_PER_MS

Parse = Callable[[str], Any]


def _count(low: int) -> Parse:
    def parse(text: str) -> int:
        value = int(text)
        if value < low:
            raise ValueError(f"must be at least {low}")
        return value

    return parse


def _number(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("must be a number of at least 0")
    return value


def _status(text: str) -> tuple[int, float]:
    code, _, share = text.partition(":")
    status, chance = int(code), float(share or 1)
    if not 400 <= status <= 599:
        raise ValueError("must be a status from 400 to 599")
    if not 0 <= chance <= 1:
        raise ValueError("its share must be from 0 to 1")
    return status, chance


def _stall(text: str) -> tuple[int, float]:
    every, colon, pause_ms = text.partition(":")
    if not colon:
        raise ValueError("must be EVERY:MS, for example 10:200")
    return _count(1)(every), _number(pause_ms)


def _split(text: str) -> str:
    if text not in {"bytes", "random"}:
        raise ValueError("must be bytes or random")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class QuirkSpec:
    """One row of the table. `form` is how the value is written, empty for a flag; a `default` makes it optional."""

    name: str
    text: str
    form: str = ""
    parse: Parse | None = None
    default: Any = None


def _flag(name: str, text: str) -> QuirkSpec:
    return QuirkSpec(name=name, text=text)


def _valued(name: str, form: str, parse: Parse, text: str, default: Any = None) -> QuirkSpec:
    return QuirkSpec(name=name, form=form, parse=parse, text=text, default=default)


TABLE = (
    # what the stream carries
    _flag("role-before-prefill", "role delta on arrival, content after the TTFT (this is the default)"),
    _flag("role-with-first", "role delta only just before the first content chunk"),
    _flag("role-null", 'role delta with "content": null'),
    _flag("role-empty", 'role delta with "content": "" (this is the default)'),
    _flag("no-role", "no role delta at all"),
    _valued("reasoning", "[=K]", _count(1), "the first K tokens (default: half) come as `reasoning`", 0),
    _valued("reasoning-content", "[=K]", _count(1), "the first K tokens (default: half) come as `reasoning_content`", 0),
    _flag("tool-calls", "tokens come as the arguments of one tool call"),
    _flag("refusal", "tokens come as `refusal`"),
    _valued("multi-token", "=K", _count(1), "K tokens in each chunk (speculative decoding); beats --tokens-per-chunk"),
    _valued("big-events", "=BYTES", _count(1), "the text of each chunk is padded to BYTES bytes"),
    _valued("eos", "=K", _count(1), "stops after K tokens unless the request has ignore_eos"),
    _flag("empty-reply", "a complete reply without any token"),
    _flag("wrong-output", "says other tokens than its model would, and finds every text less likely"),
    # usage
    _flag("usage-every-chunk", "cumulative usage in every content chunk"),
    _valued("usage-late", "=MS", _number, "the usage chunk comes MS after the finish chunk"),
    _flag("no-usage", "never reports usage"),
    _flag("wrong-usage", "reports 7 output tokens more than it sent"),
    _valued("cached", "=K", _count(0), "reports (up to) K prompt tokens as cached, and they cost no prefill"),
    # framing
    _flag("comments", "an SSE comment half-way between chunks"),
    _flag("crlf", "SSE lines end in CR LF"),
    _valued("split-bytes", "[=bytes|random]", _split, "each write goes byte by byte, or cut at random places", "bytes"),
    _valued("coalesce", "=N", _count(2), "N events in one write, at the last one's time"),
    _flag("http10", "HTTP/1.0, the body ends when the connection closes"),
    _flag("content-length-close", "a stream with Content-Length and Connection: close, not chunked"),
    _flag("gzip", "Content-Encoding: gzip, flushed at each event"),
    _flag("trailers", "chunked trailers after the body"),
    _flag("continue-100", "an interim 100 Continue before each reply"),
    # failures
    _valued("error-in-stream", "[=K]", _count(0), "HTTP 200, and after K chunks (default 1) an error event, then [DONE]", 1),
    _valued("truncate", "=K", _count(0), "closes the connection after K chunks, without a finish"),
    _valued("reset", "=K", _count(0), "resets the connection (RST) after K chunks"),
    _flag("hang", "takes requests and never answers"),
    _valued("hang-after", "=K", _count(0), "goes silent after K chunks, connection open"),
    _valued(
        "status", "=CODE[:SHARE]", _status, "answers SHARE (default all) of the requests with CODE; 429 and 503 with Retry-After"
    ),
    _flag("unauthorized", "answers 401 to every request"),
    _flag("model-404", "does not know any model"),
    _flag("redirect", "answers 307 once: the Location is served"),
    # timing
    _valued("slow-headers", "=MS", _number, "response headers leave MS after the request came"),
    _valued("gap-jitter", "=SIGMA", _number, "each gap is multiplied by a lognormal factor of mean 1 and this sigma"),
    _valued("stall", "=EVERY:MS", _stall, "a pause of MS after every EVERY chunks"),
    # the process
    _valued("die-after", "=N", _count(1), "the process ends abruptly once N generations were answered"),
    _valued("slow-start", "=SECONDS", _number, "answers 503 to everything for the first SECONDS"),
    _valued("late-listen", "=SECONDS", _number, "opens its port only after SECONDS"),
    _flag("fail-start", "prints an error and exits 3 at once"),
    _flag("ignore-sigterm", "does not end on SIGTERM"),
    _valued(
        "fork-child", "[=SECONDS]", _number, "leaves a process in a session of its own that sleeps SECONDS (default 600)", 600.0
    ),
)
SPECS = {spec.name: spec for spec in TABLE}

EXCLUSIVE = (
    frozenset({"role-before-prefill", "role-with-first", "no-role"}),
    frozenset({"role-null", "role-empty", "no-role"}),
    frozenset({"reasoning", "reasoning-content", "tool-calls", "refusal"}),
    frozenset({"no-usage", "usage-every-chunk"}),
    frozenset({"no-usage", "usage-late"}),
    frozenset({"no-usage", "wrong-usage"}),
    frozenset({"http10", "content-length-close", "trailers"}),
    frozenset({"http10", "continue-100"}),
    frozenset({"error-in-stream", "truncate", "reset", "hang-after", "hang"}),
)
"""Of each set at most one makes sense."""


@dataclass(frozen=True, slots=True)
class Quirks:
    """Parsed quirks: `name in quirks`, and the value of those that have one."""

    values: dict[str, Any] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        assert name in SPECS, name
        return name in self.values

    def count(self, name: str) -> int | None:
        """A count, None when the quirk is off."""
        assert name in SPECS, name
        value = self.values.get(name)
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        """A number (seconds, ms, sigma), None when the quirk is off."""
        assert name in SPECS, name
        value = self.values.get(name)
        return None if value is None else float(value)

    def ms_ns(self, name: str) -> int:
        """A duration given in ms [ns], 0 when the quirk is off."""
        return round((self.number(name) or 0.0) * NS_PER_MS)

    def text(self, name: str) -> str | None:
        """A word, None when the quirk is off."""
        value = self.values.get(name)
        return None if value is None else str(value)

    @property
    def status(self) -> tuple[int, float] | None:
        """(HTTP status, share of the requests)."""
        value: tuple[int, float] | None = self.values.get("status")
        return value

    @property
    def stall(self) -> tuple[int, int] | None:
        """(every so many chunks, pause [ns])."""
        value = self.values.get("stall")
        return None if value is None else (value[0], round(value[1] * NS_PER_MS))


def parse_quirks(texts: Iterable[str]) -> Quirks:
    """Quirks from `NAME` and `NAME=VALUE`. Raises: UsageError with the nearest name, or with what the value must be."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, raw = text.partition("=")
        spec = SPECS.get(name)
        if spec is None:
            near = get_close_matches(name, SPECS, n=1)
            did_you_mean = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"unknown quirk {name!r}.{did_you_mean}", hint="bench mock-server --list-quirks prints them all")
        values[name] = _value(spec, raw if equals else None)
    for group in EXCLUSIVE:
        clash = [name for name in values if name in group]
        if len(clash) > 1:
            raise UsageError(f"quirks {clash[0]!r} and {clash[1]!r} exclude each other", hint="keep one of them")
    return Quirks(values)


def _value(spec: QuirkSpec, raw: str | None) -> Any:
    usage = f"write --quirk {spec.name}{spec.form}"
    if spec.parse is None:
        if raw is not None:
            raise UsageError(f"quirk {spec.name!r} takes no value, got {raw!r}", hint=usage)
        return True
    if raw is None:
        if spec.default is None:
            raise UsageError(f"quirk {spec.name!r} needs a value", hint=usage)
        return spec.default
    try:
        return spec.parse(raw)
    except ValueError as error:
        raise UsageError(f"quirk {spec.name!r}: {raw!r} {_reason(error)}", hint=usage) from None


def _reason(error: ValueError) -> str:
    text = str(error)
    return text if text.startswith(("must", "its")) else "is not a number"


def list_quirks() -> list[tuple[str, str]]:
    """(how to write it, what it does) for every quirk."""
    return [(spec.name + spec.form, spec.text) for spec in TABLE]
