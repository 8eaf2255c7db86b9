"""The mock engine's own account of a window. Pure arithmetic over arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.mock.ledger import Column, Rows
from bench.records import FloatArray, IntArray
from bench.units import NS_PER_MS, NS_PER_S

SATURATED_LAG_MS = 2.0
"""A schedule lag p99 above this makes the window useless as a reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A distribution [ms]: linear percentiles, None where there is no sample."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What was really sent, over `[from_ns, to_ns)` on the monotonic clock of the host.

    Requests that *arrived* in the window: `requests` of them, `requests_unfinished` not complete when asked;
    `ttft_ms` first content chunk - arrival, `icl_ms` gaps between content chunks, `itl_ms` the same for each token of the
    later chunk, `e2e_ms` last content chunk - arrival of complete ones. `request_read_ms` is arrival - first byte read.
    Events *in* the window: `output_tok_per_s`, `requests_per_s` (completed), `lag_ms` = sent - due of each content chunk.
    """

    from_ns: int
    to_ns: int
    seconds: float
    requests: int
    requests_unfinished: int
    ttft_ms: Spread
    icl_ms: Spread
    itl_ms: Spread
    e2e_ms: Spread
    request_read_ms: Spread
    requests_completed: int
    requests_per_s: float
    input_tokens: int
    output_tokens: int
    output_chunks: int
    output_tok_per_s: float
    lag_ms: Spread
    server_saturated: bool


def truth_over(rows: Rows, from_ns: int, to_ns: int) -> Truth:
    """The account of `[from_ns, to_ns)`. Raises: ValueError for an empty window."""
    if to_ns <= from_ns:
        raise ValueError(f"the window [{from_ns}, {to_ns}) is empty")
    table, counts = rows.requests, rows.requests[:, Column.CHUNKS]
    starts = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(table)), counts)
    tokens = _chunk_tokens(table, owner, starts)
    arrived_in = _inside(table[:, Column.ARRIVED], from_ns, to_ns)
    complete, streamed = table[:, Column.COMPLETE] == 1, table[:, Column.STREAMED] == 1
    ended = int((complete & _inside(table[:, Column.ENDED], from_ns, to_ns)).sum())
    sent_in = _inside(rows.sent_ns, from_ns, to_ns)
    gaps_ms, gap_tokens = _gaps(rows, owner, tokens, arrived_in)
    lag = _spread((rows.sent_ns[sent_in] - rows.due_ns[sent_in]) / NS_PER_MS)
    some = counts > 0
    first_ns, last_ns = rows.sent_ns[starts[some]], rows.sent_ns[starts[some] + counts[some] - 1]
    arrival_ns = table[some, Column.ARRIVED]
    seconds, output_tokens = (to_ns - from_ns) / NS_PER_S, int(tokens[sent_in].sum())
    return Truth(
        from_ns=from_ns,
        to_ns=to_ns,
        seconds=seconds,
        requests=int(arrived_in.sum()),
        requests_unfinished=int((arrived_in & ~complete).sum()),
        ttft_ms=_spread(((first_ns - arrival_ns) / NS_PER_MS)[(arrived_in & streamed)[some]]),
        icl_ms=_spread(gaps_ms),
        itl_ms=_spread(np.repeat(gaps_ms / gap_tokens, gap_tokens)),
        e2e_ms=_spread(((last_ns - arrival_ns) / NS_PER_MS)[(arrived_in & complete)[some]]),
        request_read_ms=_spread((table[arrived_in, Column.ARRIVED] - table[arrived_in, Column.OPENED]) / NS_PER_MS),
        requests_completed=ended,
        requests_per_s=ended / seconds,
        input_tokens=int(table[some, Column.PROMPT_TOKENS][_inside(first_ns, from_ns, to_ns)].sum()),
        output_tokens=output_tokens,
        output_chunks=int(sent_in.sum()),
        output_tok_per_s=output_tokens / seconds,
        lag_ms=lag,
        server_saturated=lag.p99 is not None and lag.p99 > SATURATED_LAG_MS,
    )


def _inside(stamps_ns: IntArray, from_ns: int, to_ns: int) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (stamps_ns >= from_ns) & (stamps_ns < to_ns)
    return inside


def _chunk_tokens(table: IntArray, owner: IntArray, starts: IntArray) -> IntArray:
    """Tokens in each chunk: the last of a reply may hold fewer."""
    step = table[owner, Column.TOKENS_PER_CHUNK]
    before = (np.arange(len(owner)) - starts[owner]) * step
    tokens: IntArray = np.minimum(step, table[owner, Column.TOKENS] - before)
    return tokens


def _gaps(rows: Rows, owner: IntArray, tokens: IntArray, arrived_in: NDArray[np.bool_]) -> tuple[FloatArray, IntArray]:
    """Gaps between consecutive chunks of one request [ms], and the tokens of the later chunk."""
    inside = (owner[1:] == owner[:-1]) & arrived_in[owner[1:]]
    return np.diff(rows.sent_ns)[inside] / NS_PER_MS, tokens[1:][inside]


def _spread(values_ms: FloatArray) -> Spread:
    if not len(values_ms):
        return Spread(n=0)
    p50, p90, p99 = (float(value) for value in np.percentile(values_ms, (50, 90, 99)))
    return Spread(n=len(values_ms), mean=float(values_ms.mean()), p50=p50, p90=p90, p99=p99, max=float(values_ms.max()))
