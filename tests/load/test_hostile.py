"""Hostile streams over real connections: the mock engine misbehaves in every way it knows, and each gives right numbers or the
right error.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from bench.errors import TargetError
from bench.load import WireLoad
from bench.mock.render import token_text
from bench.records import MISSING, ChunkKind, LengthSpec, LoadResult, LoadSpec, Outcome
from tests.load.scripted import (
    DONE,
    HEAD,
    Exchange,
    ScriptedServer,
    answer,
    chat,
    chunked,
    drive,
    frame,
    make_target,
    sized,
    usage,
)
from tests.mock.wire import LocalMock

TTFT_MS, GAP_MS, TOKENS, REQUESTS = 20, 4, 6, 2
MS = 1_000_000
SIZES_B = [len(token_text(index).encode()) for index in range(TOKENS)]


def run(folder: Path, *quirks: str, options: dict[str, Any] | None = None, **case: Any) -> LoadResult:
    """Two requests of six tokens, one at a time."""
    wanted: dict[str, Any] = {
        "load": LoadSpec(kind="closed", batch_size=1, num_prompts=REQUESTS),
        "output_tokens": LengthSpec(mean=TOKENS),
        **case,
    }
    with LocalMock(quirks=quirks, ttft_ms=TTFT_MS, gap_ms=GAP_MS, **(options or {})) as server:
        return drive(
            f"http://127.0.0.1:{server.port}",
            folder,
            target=make_target(f"http://127.0.0.1:{server.port}", model="mock"),
            **wanted,
        )


def first_and_last(result: LoadResult) -> tuple[Any, Any]:
    """Indices of the first and the last chunk of each request."""
    counts = np.bincount(result.log.chunk_request, minlength=len(result.log))
    ends = np.cumsum(counts)
    return ends - counts, ends - 1


@dataclass(frozen=True, kw_only=True)
class Good:
    """What a quirk must leave as it is, or change."""

    chunks: int = TOKENS
    kinds: tuple[ChunkKind, ...] = (ChunkKind.CONTENT,) * TOKENS
    tokens: int = TOKENS
    per_chunk: int = MISSING
    sizes_b: list[int] | None = None
    reads: range = range(1, TOKENS + 1)
    """How many distinct stamps a request's chunks may have."""


REASONING, REFUSAL, TOOL = ChunkKind.REASONING, ChunkKind.REFUSAL, ChunkKind.TOOL
HALF = (REASONING,) * 3 + (ChunkKind.CONTENT,) * 3
GOOD = {
    (): Good(),
    ("role-null",): Good(),
    ("role-empty",): Good(),
    ("no-role",): Good(),
    ("role-before-prefill",): Good(),
    ("role-with-first",): Good(),
    ("reasoning",): Good(kinds=HALF),
    ("reasoning-content",): Good(kinds=HALF),
    ("tool-calls",): Good(kinds=(TOOL,) * TOKENS),
    ("refusal",): Good(kinds=(REFUSAL,) * TOKENS),
    ("multi-token=3",): Good(chunks=2, kinds=(ChunkKind.CONTENT,) * 2, sizes_b=[sum(SIZES_B[:3]), sum(SIZES_B[3:])]),
    ("usage-every-chunk",): Good(per_chunk=1),
    ("usage-every-chunk", "multi-token=2"): Good(
        chunks=3, kinds=(ChunkKind.CONTENT,) * 3, per_chunk=2, sizes_b=[sum(SIZES_B[i : i + 2]) for i in (0, 2, 4)]
    ),
    ("no-usage",): Good(tokens=MISSING),
    ("comments",): Good(),
    ("crlf",): Good(),
    ("split-bytes",): Good(),
    ("split-bytes=random",): Good(),
    ("split-bytes", "crlf", "gzip", "trailers"): Good(),
    ("coalesce=3",): Good(reads=range(1, 3)),
    ("gzip",): Good(),
    ("big-events=1000000",): Good(sizes_b=[1_000_000] * TOKENS),
    ("trailers",): Good(),
    ("http10",): Good(),
    ("content-length-close",): Good(),
    ("continue-100",): Good(),
    ("continue-100", "gzip", "comments", "crlf"): Good(),
}


@pytest.mark.parametrize("quirks", GOOD, ids=lambda quirks: "+".join(quirks) or "none")
def test_quirks_that_change_no_number(quirks: tuple[str, ...], tmp_path: Path) -> None:
    result, wanted = run(tmp_path, *quirks), GOOD[quirks]
    log = result.log
    assert log.outcome.tolist() == [Outcome.OK] * REQUESTS
    assert log.chunk_kind.tolist() == list(wanted.kinds) * REQUESTS
    assert log.chunk_bytes.tolist() == (wanted.sizes_b or SIZES_B) * REQUESTS
    assert log.chunk_tokens.tolist() == [wanted.per_chunk] * wanted.chunks * REQUESTS
    assert log.output_tokens.tolist() == [wanted.tokens] * REQUESTS
    first, last = first_and_last(result)
    # Neither a role delta nor a 100 Continue is a first token. The mock may send up to 0.25 ms early, with what is due then.
    assert np.all(log.chunk_ns[first] - log.sent_ns >= (TTFT_MS - 0.5) * MS)
    assert np.all(log.chunk_ns[last] <= log.closed_ns)
    stamps = log.chunk_ns.reshape(REQUESTS, -1)
    assert all(len(set(row)) in wanted.reads for row in stamps.tolist())


def test_usage_that_comes_late_is_no_part_of_a_reply(tmp_path: Path) -> None:
    result = run(tmp_path, "usage-late=500")
    log, (_, last) = result.log, first_and_last(result)
    assert log.outcome.tolist() == [Outcome.OK] * REQUESTS
    assert log.output_tokens.tolist() == [TOKENS] * REQUESTS
    assert np.all(log.closed_ns - log.chunk_ns[last] >= 400 * MS)


def test_slow_headers_are_seen_in_the_headers_stamp(tmp_path: Path) -> None:
    log = run(tmp_path, "slow-headers=100").log
    assert log.outcome.tolist() == [Outcome.OK] * REQUESTS
    assert np.all(log.opened_ns - log.sent_ns >= 100 * MS)


def test_a_stall_is_one_long_gap(tmp_path: Path) -> None:
    log = run(tmp_path, "stall=3:100").log
    gaps = np.diff(log.chunk_ns.reshape(REQUESTS, TOKENS))
    assert np.all(gaps[:, 2] >= 100 * MS)


@dataclass(frozen=True, kw_only=True)
class Bad:
    """How requests fail, in what words, and with how many chunks before."""

    outcome: Outcome
    words: str
    chunks: int = 0
    status: int = 200


BAD = {
    "error-in-stream=3": Bad(outcome=Outcome.STREAM_ERROR, words="the engine failed in mid-stream", chunks=3),
    "truncate=3": Bad(outcome=Outcome.TRUNCATED, words="", chunks=3),
    "reset=3": Bad(outcome=Outcome.TRUNCATED, words="mid-answer", chunks=3),
    "empty-reply": Bad(outcome=Outcome.EMPTY, words="no token"),
    "status=500": Bad(outcome=Outcome.HTTP, words="HTTP 500", status=500),
}


@pytest.mark.parametrize("quirk", BAD)
def test_quirks_that_are_failures(quirk: str, tmp_path: Path) -> None:
    wanted = BAD[quirk]
    log = run(tmp_path, quirk).log
    assert log.outcome.tolist() == [wanted.outcome] * REQUESTS
    assert all(wanted.words in (error or "") for error in log.error)
    assert log.http_status.tolist() == [wanted.status] * REQUESTS
    assert len(log.chunk_ns) == wanted.chunks * REQUESTS
    assert np.all(log.closed_ns > log.sent_ns)


@pytest.mark.parametrize("chunks", [0, 3])
def test_a_server_that_hangs_under_load(chunks: int, tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        if chunks:
            x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + frame(b"".join(chat({"content": "a"}) for _ in range(chunks))))
        x.server.release.wait(30)

    load = LoadSpec(kind="closed", batch_size=1, num_prompts=REQUESTS)
    with ScriptedServer(reply) as server:
        log = drive(server.url, tmp_path, load=load, request_timeout_s=0.4).log
    assert log.outcome.tolist() == [Outcome.TIMEOUT] * REQUESTS
    assert log.http_status.tolist() == [200 if chunks else MISSING] * REQUESTS
    assert len(log.chunk_ns) == chunks * REQUESTS
    assert all("request_timeout" in (error or "") for error in log.error)


def test_failures_mixed_in_touch_no_other_request(tmp_path: Path) -> None:
    load = LoadSpec(kind="closed", batch_size=4, num_prompts=40)
    log = run(tmp_path, "status=500:0.4", load=load, options={"seed": 3}).log
    failed = log.outcome == Outcome.HTTP
    assert 5 <= failed.sum() <= 35
    assert set(log.outcome[~failed]) == {Outcome.OK}
    assert np.bincount(log.chunk_request, minlength=40).tolist() == [0 if f else TOKENS for f in failed]


def test_retry_after_is_honoured_by_the_slot_that_was_told(tmp_path: Path) -> None:
    """One of two slots is told to wait for a second: it does, the other goes on."""

    def reply(x: Exchange) -> None:
        if x.number == 1:
            x.send(sized(b"slow down", "429 Too Many Requests", b"Retry-After: 1\r\n"))
        else:
            x.server.release.wait(0.01)
            x.send(chunked(answer(2)))

    load = LoadSpec(kind="closed", batch_size=2, num_prompts=30)
    with ScriptedServer(reply) as server:
        log = drive(server.url, tmp_path, load=load).log
    limited = int(np.flatnonzero(log.outcome == Outcome.HTTP)[0])
    meanwhile = (log.sent_ns > log.closed_ns[limited]) & (log.sent_ns < log.closed_ns[limited] + 900 * MS)
    alive = np.array([int(np.sum((log.sent_ns <= at) & (log.closed_ns > at))) for at in log.sent_ns[meanwhile]])
    assert set(log.outcome.tolist()) == {Outcome.OK, Outcome.HTTP}
    assert meanwhile.sum() >= 10
    assert set(alive.tolist()) == {1}  # only the other slot
    assert log.error[limited] == "HTTP 429: slow down"


def test_retry_after_has_a_bound_and_a_date_is_no_pause(tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        dated = b"Retry-After: Wed, 21 Oct 2099 07:28:00 GMT\r\n"
        x.send(sized(b"busy", "503 Busy", dated) if x.number == 0 else chunked(answer(2)))

    begun = perf_counter_ns()
    with ScriptedServer(reply) as server:
        log = drive(server.url, tmp_path).log
    assert log.outcome.tolist() == [Outcome.HTTP, Outcome.OK, Outcome.OK]
    assert perf_counter_ns() - begun < 25e9


def test_redirects_are_refused_with_where_to(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"307: it redirects to /\S+") as caught:
        run(tmp_path, "redirect")
    assert "final URL" in (caught.value.hint or "")


def test_a_redirect_in_mid_load_is_a_failure_and_keeps_queries_to_itself(tmp_path: Path) -> None:
    location = b"Location: https://elsewhere.example/v1?token=sk-secret\r\n"
    with ScriptedServer(lambda x: x.send(sized(b"", "302 Found", location))) as server:
        log = drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1, num_prompts=1)).log
    assert log.outcome.tolist() == [Outcome.HTTP]
    assert log.error == ("HTTP 302: it redirects to https://elsewhere.example/v1",)


def deflated(body: bytes, window: int) -> bytes:
    engine = zlib.compressobj(wbits=window)
    return engine.compress(body) + engine.flush()


@pytest.mark.parametrize("window", [15, -15], ids=["zlib", "raw"])
def test_deflate_with_and_without_its_wrapper(window: int, tmp_path: Path) -> None:
    packed = sized(deflated(answer(3), window), extra=b"Content-Encoding: deflate\r\n")
    with ScriptedServer(lambda x: x.send(packed)) as server:
        log = drive(server.url, tmp_path).log
    assert log.outcome.tolist() == [Outcome.OK] * 3
    assert log.output_tokens.tolist() == [3] * 3


def test_identity_is_asked_for_and_what_nobody_asked_for_is_named(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(sized(b"\x1b\x02\x80", extra=b"Content-Encoding: br\r\n"))) as server:
        log = drive(server.url, tmp_path).log
    assert log.outcome.tolist() == [Outcome.PROTOCOL] * 3
    assert log.error[0] == "the answer is compressed as br, which nobody asked for"
    assert b"Accept-Encoding: identity" in server.exchanges[0].head


def test_broken_compression_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(sized(b"\x1f\x8bnot gzip at all", extra=b"Content-Encoding: gzip\r\n"))) as server:
        log = drive(server.url, tmp_path).log
    assert log.outcome.tolist() == [Outcome.PROTOCOL] * 3
    assert "decompressed" in (log.error[0] or "")


def test_compressed_error_bodies_are_read(tmp_path: Path) -> None:
    packed = sized(deflated(b'{"error":{"message":"no room"}}', 31), "500 Oops", b"Content-Encoding: gzip\r\n")
    with ScriptedServer(lambda x: x.send(packed)) as server:
        log = drive(server.url, tmp_path).log
    assert log.error == ("HTTP 500: no room",) * 3


def test_compressed_events_are_stamped_when_they_come(tmp_path: Path) -> None:
    """Not with the read that ends the body: each flush of the server lets its events be read."""
    events = [chat({"content": "a"}), chat({"content": "b"}), chat({"content": "c"}, "stop") + DONE]

    def reply(x: Exchange) -> None:
        engine = zlib.compressobj(wbits=31)
        x.send(HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in events:
            x.send(frame(engine.compress(event) + engine.flush(zlib.Z_SYNC_FLUSH)))
            x.server.release.wait(0.2)
        x.send(frame(engine.flush()) + frame(b""))

    with ScriptedServer(reply) as server:
        log = drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1, num_prompts=1)).log
    assert len(set(log.chunk_ns.tolist())) == 3


def test_several_slots_warm_up_on_compressed_streams(tmp_path: Path) -> None:
    """The warm-up reads first tokens as they come, through gzip too."""
    log = run(tmp_path, "gzip", load=LoadSpec(kind="closed", batch_size=3), warmup_s=0.2).log
    assert Outcome.OK in log.outcome
    assert set(log.outcome) <= {Outcome.OK, Outcome.CANCELLED}


def test_events_cut_inside_a_character_and_inside_the_framing(tmp_path: Path) -> None:
    """Every place where HTTP chunk and network read can end at once, for one event with characters of two, three, four bytes."""
    event = chat({"content": "é日🙂"})
    cut_at = iter(range(1, len(event)))

    def reply(x: Exchange) -> None:
        cut = next(cut_at, 1)
        x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + frame(event[:cut])[:-1])
        x.send(b"\n")
        x.send(frame(event[cut:]) + frame(chat({}, "stop") + usage(8, 1) + DONE) + frame(b""))

    load = LoadSpec(kind="closed", batch_size=1, num_prompts=len(event) - 1)
    with ScriptedServer(reply) as server:
        log = drive(server.url, tmp_path, load=load).log
    assert set(log.outcome) == {Outcome.OK}
    assert log.chunk_bytes.tolist() == [9] * (len(event) - 1)


def test_asyncio_reads_hostile_streams_as_well(tmp_path: Path) -> None:
    with LocalMock(quirks=("split-bytes", "gzip", "trailers", "comments"), ttft_ms=5, gap_ms=2) as server:
        url = f"http://127.0.0.1:{server.port}"
        log = drive(url, tmp_path, target=make_target(url, model="mock"), generator=WireLoad(loop="asyncio")).log
    assert log.outcome.tolist() == [Outcome.OK] * 3
