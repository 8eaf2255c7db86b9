"""One request's bytes to chunks, counts and outcome, without a network."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bench.load import ParsedRequest, parse_request
from bench.load.protocols import wire_protocol
from bench.load.spill import End
from bench.records import MISSING, ChunkKind, Outcome
from tests.load.scripted import DONE, answer, chat, event, text, usage


def parse(
    body: bytes,
    *,
    cuts: list[int] | None = None,
    protocol: str = "openai-chat",
    end: End | None = End.COMPLETE,
    status: int = 200,
) -> ParsedRequest:
    """The piece that ends at `cuts[i]` was read at 1000 * (i + 1)."""
    ends = [*(cuts or []), len(body)] if body else []
    stamps = np.array([1000 * (i + 1) for i in range(len(ends))], dtype=np.int64)
    return parse_request(wire_protocol(protocol), body, stamps, np.array(ends, dtype=np.int64), end=end, status=status)


def kinds(parsed: ParsedRequest) -> list[ChunkKind]:
    return [ChunkKind(k) for k in parsed.chunk_kind]


def test_plain_answer() -> None:
    parsed = parse(answer(3, prompt=11))
    assert parsed.outcome is Outcome.OK
    assert parsed.error is None
    assert kinds(parsed) == [ChunkKind.CONTENT] * 3
    assert parsed.chunk_bytes.tolist() == [3, 3, 3]
    assert parsed.chunk_tokens.tolist() == [MISSING] * 3
    assert parsed.finish_reason == "length"
    assert parsed.usage is not None
    assert (parsed.usage.prompt_tokens, parsed.usage.completion_tokens) == (11, 3)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_cut_anywhere_stamps_each_event_with_the_read_that_completed_it(line_end: bytes) -> None:
    body = (
        chat({"role": "assistant", "content": None}) + chat({"content": "héé"}) + chat({"content": "b"}, "stop") + DONE
    ).replace(b"\n", line_end)
    ends = [i + 2 * len(line_end) for i in range(len(body)) if body.startswith(2 * line_end, i)]
    for cut in range(1, len(body)):
        parsed = parse(body, cuts=[cut])
        assert parsed.outcome is Outcome.OK
        assert parsed.chunk_bytes.tolist() == [5, 1]
        assert parsed.chunk_ns.tolist() == [1000 if ends[i] <= cut else 2000 for i in (1, 2)]


def test_role_deltas_are_not_content_whatever_they_carry() -> None:
    roles: list[dict[str, Any]] = [{"role": "assistant", **more} for more in ({}, {"content": None}, {"content": ""})]
    body = b"".join(chat(role) for role in roles) + chat({"content": "x"}) + chat({}, "stop") + DONE
    parsed = parse(body, cuts=[len(chat(roles[0])), body.index(b'"x"')])
    assert parsed.chunk_ns.tolist() == [3000]


def test_role_delta_before_prefill_does_not_end_ttft() -> None:
    body = chat({"role": "assistant", "content": ""}) + b": keep-alive\n\n" + chat({"content": "x"}, "stop") + DONE
    parsed = parse(body, cuts=[body.index(b":"), body.index(b": keep"), body.index(b'"x"')])
    assert parsed.chunk_ns.tolist() == [4000]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_under_both_names(name: str) -> None:
    parsed = parse(chat({name: "hm", "content": None}) + chat({name: "", "content": "so"}) + chat({name: None}, "stop") + DONE)
    assert kinds(parsed) == [ChunkKind.REASONING, ChunkKind.CONTENT]


def test_refusals_and_tool_calls() -> None:
    call = {"tool_calls": [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}
    parsed = parse(chat({"refusal": "no"}) + chat(call) + chat(more) + chat({}, "tool_calls") + DONE)
    assert kinds(parsed) == [ChunkKind.REFUSAL, ChunkKind.TOOL]
    assert parsed.chunk_bytes.tolist() == [2, 4]


def test_cumulative_usage_gives_tokens_per_chunk() -> None:
    said: list[tuple[dict[str, Any], int]] = [
        ({"role": "assistant", "content": ""}, 0), ({"content": "ab"}, 2), ({"content": "c"}, 3), ({"content": "def"}, 7),
    ]  # fmt: skip
    body = b"".join(chat(delta, usage={"prompt_tokens": 5, "completion_tokens": total}) for delta, total in said)
    parsed = parse(body + chat({}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 8}) + DONE)
    assert parsed.chunk_tokens.tolist() == [2, 1, 4]
    assert parsed.usage is not None
    assert parsed.usage.completion_tokens == 8


def test_usage_on_some_chunks_only_gives_no_count_where_it_is_unknown() -> None:
    body = (
        chat({"content": "a"})
        + chat({"content": "b"}, usage={"completion_tokens": 4})
        + chat({"content": "c"}, usage={"completion_tokens": 5})
    )
    assert parse(body + chat({}, "stop") + DONE).chunk_tokens.tolist() == [MISSING, MISSING, 1]


def test_token_ids_count_tokens() -> None:
    body = event({"choices": [{"text": "abc", "token_ids": [1, 2, 3]}]}) + text("", "length") + DONE
    assert parse(body, protocol="openai-completions").chunk_tokens.tolist() == [3]


def test_details_of_usage() -> None:
    more = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}}
    parsed = parse(chat({"content": "a"}, "stop") + usage(9, 4, **more) + DONE)
    assert parsed.usage is not None
    assert parsed.usage.prompt_tokens_details is not None
    assert parsed.usage.prompt_tokens_details.cached_tokens == 3
    assert parsed.usage.completion_tokens_details is not None
    assert parsed.usage.completion_tokens_details.reasoning_tokens == 2


def test_null_details_are_missing() -> None:
    parsed = parse(chat({"content": "a"}, "stop") + usage(9, 4, prompt_tokens_details=None) + DONE)
    assert parsed.outcome is Outcome.OK


def test_llama_cpp_ends_with_a_textless_chunk() -> None:
    last = event(
        {
            "choices": [{"text": "", "finish_reason": "length"}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 2},
            "timings": {},
        }
    )
    parsed = parse(text("a") + text("b") + last + DONE, protocol="openai-completions")
    assert parsed.outcome is Outcome.OK
    assert len(parsed.chunk_ns) == 2


@pytest.mark.parametrize(
    "last",
    [
        event({"error": {"message": "out of memory", "code": 500}}),
        event({"error": "out of memory"}),
        event({"object": "error", "message": "out of memory"}),
        b'error: {"message": "out of memory"}\n\n',
        b'event: error\ndata: {"error": {"message": "out of memory"}}\n\n',
    ],
)
@pytest.mark.parametrize("end", [End.COMPLETE, End.BROKEN])
def test_an_error_inside_a_200_fails_and_keeps_what_came_before(last: bytes, end: End) -> None:
    parsed = parse(chat({"content": "a"}) + last, end=end)
    assert parsed.outcome is Outcome.STREAM_ERROR
    assert parsed.error == "out of memory"
    assert len(parsed.chunk_ns) == 1


def test_a_text_about_errors_is_no_error() -> None:
    parsed = parse(chat({"content": 'the "error" key'}) + chat({"content": "x"}, "stop", error=None) + DONE)
    assert parsed.outcome is Outcome.OK
    assert len(parsed.chunk_ns) == 2


def test_neither_finish_reason_nor_done_is_truncated() -> None:
    parsed = parse(chat({"content": "a"}))
    assert parsed.outcome is Outcome.TRUNCATED
    assert len(parsed.chunk_ns) == 1
    assert parse(chat({"content": "a"}) + DONE).outcome is Outcome.OK
    assert parse(chat({"content": "a"}, "stop")).outcome is Outcome.OK


def test_a_break_in_mid_answer_is_truncated_even_inside_an_event() -> None:
    whole = chat({"content": "a"}) + chat({"content": "b"})
    parsed = parse(whole[:-20], end=End.BROKEN)
    assert parsed.outcome is Outcome.TRUNCATED
    assert len(parsed.chunk_ns) == 1


def test_a_break_after_done_lost_nothing() -> None:
    assert parse(answer(), end=End.BROKEN).outcome is Outcome.OK


@pytest.mark.parametrize(
    "body",
    [
        b"",
        chat({"role": "assistant", "content": ""}) + chat({}, "stop") + DONE,
        DONE,
        chat({}, "stop") + usage(5, 0) + DONE,
        chat({}, "stop") + usage(5, 1) + DONE,
    ],
)
def test_an_answer_without_any_token_is_a_failure(body: bytes) -> None:
    parsed = parse(body)
    assert parsed.outcome is Outcome.EMPTY
    assert len(parsed.chunk_ns) == 0


def test_hidden_reasoning_is_counted_but_has_no_chunks() -> None:
    parsed = parse(chat({}, "length") + usage(5, 40, completion_tokens_details={"reasoning_tokens": 40}) + DONE)
    assert parsed.outcome is Outcome.OK
    assert len(parsed.chunk_ns) == 0


@pytest.mark.parametrize(
    "body", [b"data: {broken\n\n" + DONE, b"<html>hello</html>", event([1, 2]), event({"choices": 5}), b"\x1f\x8b\x08\x00abc"]
)
def test_what_is_not_the_protocol(body: bytes) -> None:
    parsed = parse(body)
    assert parsed.outcome is Outcome.PROTOCOL
    assert parsed.error


def test_chunks_before_a_broken_event_are_kept() -> None:
    parsed = parse(chat({"content": "a"}) + b"data: nonsense\n\n" + chat({"content": "b"}, "stop"))
    assert parsed.outcome is Outcome.PROTOCOL
    assert len(parsed.chunk_ns) == 1


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (End.TIMEOUT, Outcome.TIMEOUT),
        (End.CANCELLED, Outcome.CANCELLED),
        (None, Outcome.CANCELLED),
        (End.CONNECT, Outcome.CONNECT),
        (End.NOT_HTTP, Outcome.PROTOCOL),
    ],
)
def test_how_the_wire_ended(end: End | None, outcome: Outcome) -> None:
    assert parse(b"" if end is End.CONNECT else chat({"content": "a"}), end=end).outcome is outcome


def test_http_errors_carry_the_servers_words() -> None:
    parsed = parse(json.dumps({"error": {"message": "slow down", "type": "rate"}}).encode(), status=429)
    assert parsed.outcome is Outcome.HTTP
    assert parsed.error == "HTTP 429: slow down"
    assert parse(b"", status=503).error == "HTTP 503: empty body"
    assert parse(b"<h1>Bad gateway</h1>", status=502).error == "HTTP 502: <h1>Bad gateway</h1>"


def test_a_reply_that_was_not_streamed_has_no_chunks() -> None:
    reply = {
        "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    parsed = parse(json.dumps(reply).encode())
    assert parsed.outcome is Outcome.OK
    assert len(parsed.chunk_ns) == 0
    assert parsed.finish_reason == "stop"
    assert parse(b'{"error": {"message": "bad"}}').outcome is Outcome.STREAM_ERROR
    assert parse(b'{"choices": []}').outcome is Outcome.EMPTY
    assert parse(b'{"choices": [{"mess').outcome is Outcome.PROTOCOL


def test_unicode_split_between_reads() -> None:
    body = chat({"content": "日本🎉"}, "stop") + DONE
    for cut in range(1, len(body)):
        assert parse(body, cuts=[cut]).chunk_bytes.tolist() == [10]


def test_one_bad_surrogate_does_not_stop_the_count() -> None:
    body = b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n' + chat({"content": "b"}, "stop") + DONE
    assert parse(body).outcome in (Outcome.OK, Outcome.PROTOCOL)
