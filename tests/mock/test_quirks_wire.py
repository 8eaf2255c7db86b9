"""What each quirk puts on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.mock.quirks import SPECS
from bench.mock.render import token_text
from tests.mock.wire import CHAT, TEXT, Answer, LocalMock, ask, chat_body, text_body

TOKENS = [token_text(index) for index in range(6)]


def chat(*quirks: str, tokens: int = 6, options: dict[str, Any] | None = None, patience_s: float = 20.0, **more: Any) -> Answer:
    with LocalMock(quirks=quirks, **(options or {})) as server:
        return ask(server.port, chat_body(tokens, **more), patience_s=patience_s)


def ns_of(answer: Answer, needle: bytes) -> int:
    """When the read came that completed `needle`."""
    seen = b""
    for at_ns, data in answer.reads:
        seen += data
        if needle in seen:
            return at_ns
    raise AssertionError(f"{needle!r} never came")


# --- what the stream carries ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quirk", "first"),
    [
        ("role-before-prefill", {"role": "assistant", "content": ""}),
        ("role-empty", {"role": "assistant", "content": ""}),
        ("role-null", {"role": "assistant", "content": None}),
        ("role-with-first", {"role": "assistant", "content": ""}),
        ("no-role", {"content": TOKENS[0]}),
    ],
)
def test_role_deltas(quirk: str, first: dict[str, Any]) -> None:
    answer = chat(quirk)
    assert answer.deltas[0] == first
    assert sum("role" in delta for delta in answer.deltas) == (quirk != "no-role")
    assert answer.texts() == TOKENS


@pytest.mark.parametrize("early", [True, False])
def test_the_role_delta_comes_before_the_prefill_or_with_the_first_token(early: bool) -> None:
    answer = chat("role-before-prefill" if early else "role-with-first", options={"ttft_ms": 250.0})
    wait_ms = (ns_of(answer, b"tok0") - ns_of(answer, b'"role"')) / 1e6
    assert (wait_ms > 50) is early


@pytest.mark.parametrize(("quirk", "key"), [("reasoning", "reasoning"), ("reasoning-content", "reasoning_content")])
@pytest.mark.parametrize(("value", "thought"), [("", 3), ("=2", 2), ("=9", 6)])
def test_reasoning_comes_first_under_its_name(quirk: str, key: str, value: str, thought: int) -> None:
    answer = chat(quirk + value)
    assert answer.texts(key) == TOKENS[:thought]
    assert answer.texts() == TOKENS[thought:]


def test_tool_calls_name_the_function_once() -> None:
    answer = chat("tool-calls")
    calls = [delta["tool_calls"][0] for delta in answer.deltas if "tool_calls" in delta]
    assert [call["function"]["arguments"] for call in calls] == TOKENS
    assert [call["function"].get("name") for call in calls] == ["mock", *[None] * 5]
    assert answer.finish_reason == "tool_calls"
    assert answer.texts() == []


def test_refusals() -> None:
    answer = chat("refusal")
    assert answer.texts("refusal") == TOKENS
    assert answer.texts() == []


@pytest.mark.parametrize(("step", "chunks"), [(1, 6), (4, 2), (6, 1), (9, 1)])
def test_several_tokens_in_a_chunk(step: int, chunks: int) -> None:
    answer = chat(f"multi-token={step}")
    assert len(answer.texts()) == chunks
    assert "".join(answer.texts()) == "".join(TOKENS)
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 6


def test_tokens_per_chunk_can_be_an_option_and_the_account_knows_it() -> None:
    with LocalMock(tokens_per_chunk=4) as server:
        assert len(ask(server.port, chat_body(10)).texts()) == 3
        truth = server.truth()
    assert (truth["output_chunks"], truth["output_tokens"]) == (3, 10)


def test_big_events() -> None:
    answer = chat("big-events=100000", tokens=3)
    assert [len(text.encode()) for text in answer.texts()] == [100_000] * 3


def test_eos_is_obeyed_unless_ignored() -> None:
    stopped, ignored = chat("eos=2"), chat("eos=2", ignore_eos=True)
    assert (len(stopped.texts()), stopped.finish_reason) == (2, "stop")
    assert (len(ignored.texts()), ignored.finish_reason) == (6, "length")
    assert stopped.usage is not None
    assert stopped.usage["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [True, False])
def test_empty_replies_are_complete(stream: bool) -> None:
    with LocalMock(quirks=("empty-reply",)) as server:
        answer = ask(server.port, chat_body(6, stream=stream))
        truth = server.truth()
    assert (answer.status, answer.ended) == (200, "whole")
    assert truth["output_tokens"] == 0
    assert truth["requests_completed"] == 1
    if stream:
        assert (answer.texts(), answer.finish_reason, answer.events[-1]) == ([], "stop", "[DONE]")


@pytest.mark.parametrize("stream", [True, False])
def test_wrong_output_is_other_tokens_in_the_same_number(stream: bool) -> None:
    with LocalMock(quirks=("wrong-output",), ttft_ms=0.0, gap_ms=0.0) as server:
        wrong = ask(server.port, chat_body(3, stream=stream)).body.decode()
    with LocalMock(ttft_ms=0.0, gap_ms=0.0) as server:
        right = ask(server.port, chat_body(3, stream=stream)).body.decode()
    assert [word in right for word in ("tok0", "joule1", "watt2", "volt3")] == [True, True, True, False]
    assert [word in wrong for word in ("tok0", "joule1", "watt2", "volt3")] == [False, True, True, True]


# --- usage ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked_by", ["quirk", "request"])
def test_cumulative_usage_in_every_chunk(asked_by: str) -> None:
    if asked_by == "quirk":
        answer = chat("usage-every-chunk", "multi-token=4")
    else:
        answer = chat("multi-token=4", stream_options={"include_usage": True, "continuous_usage_stats": True})
    cumulative = [found["usage"]["completion_tokens"] for found in answer.objects if "usage" in found and found["choices"]]
    assert cumulative == [4, 6]
    assert answer.objects[-1]["usage"]["completion_tokens"] == 6


def test_late_usage_comes_after_the_finish_by_that_much() -> None:
    answer = chat("usage-late=400")
    late_ms = (ns_of(answer, b'"usage"') - ns_of(answer, b'"finish_reason":"length"')) / 1e6
    assert late_ms > 100
    assert answer.events[-1] == "[DONE]"


@pytest.mark.parametrize("stream", [True, False])
def test_no_usage(stream: bool) -> None:
    assert b'"usage"' not in chat("no-usage", stream=stream).raw


def test_wrong_usage_is_seven_too_many() -> None:
    answer = chat("wrong-usage")
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 13
    assert len(answer.texts()) == 6


@pytest.mark.parametrize(("cached", "told"), [(2, 2), (0, 0), (99, 3)])
def test_cached_tokens_are_at_most_the_prompt(cached: int, told: int) -> None:
    answer = chat(f"cached={cached}")
    assert answer.usage is not None
    assert answer.usage["prompt_tokens_details"] == {"cached_tokens": told}


# --- framing: the same content whatever the bytes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quirks",
    [
        ("comments",),
        ("crlf",),
        ("split-bytes",),
        ("split-bytes=random",),
        ("coalesce=3",),
        ("http10",),
        ("content-length-close",),
        ("gzip",),
        ("trailers",),
        ("continue-100",),
        ("gap-jitter=0.3",),
        ("crlf", "comments", "split-bytes=random", "trailers", "usage-every-chunk", "role-null"),
        ("gzip", "coalesce=4", "multi-token=2", "slow-headers=5"),
        ("gzip", "content-length-close", "comments"),
        ("http10", "gzip", "split-bytes=random"),
    ],
    ids="+".join,
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_framing_never_changes_what_is_said(quirks: tuple[str, ...], path: str) -> None:
    with LocalMock(quirks=quirks) as server:
        answer = ask(server.port, chat_body(6) if path == CHAT else text_body("a b c", 6), path=path)
        truth = server.truth()
    if path == CHAT:
        said = "".join(answer.texts())
    else:
        said = "".join(choice["text"] for found in answer.objects for choice in found["choices"])
    assert said == "".join(TOKENS)
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 6
    assert (answer.finish_reason, answer.events[-1]) == ("length", "[DONE]")
    assert answer.ended == ("eof" if "http10" in quirks else "whole")
    assert truth["output_tokens"] == 6
    assert truth["requests_completed"] == 1


def test_comments_stand_between_chunks() -> None:
    assert chat("comments").text.count(": keep-alive\n\n") >= 6


def test_crlf_ends_lines() -> None:
    text = chat("crlf").text
    assert text.count("\r\n\r\n") == len(TOKENS) + 4
    assert "\n\n" not in text


@pytest.mark.parametrize("quirk", ["split-bytes", "split-bytes=random"])
def test_split_events_come_in_more_reads_than_events(quirk: str) -> None:
    answer = chat(quirk, options={"ttft_ms": 60.0, "gap_ms": 30.0})
    assert len(answer.reads) > len(TOKENS) + 2


def test_coalesced_events_leave_together_and_count_one_by_one() -> None:
    with LocalMock(quirks=("coalesce=3",), ttft_ms=10.0, gap_ms=20.0) as server:
        answer = ask(server.port, chat_body(6))
        truth = server.truth()
    assert ns_of(answer, b"tok0") == ns_of(answer, b"watt2")
    assert truth["output_chunks"] == 6
    assert truth["icl_ms"]["p50"] == 0
    assert truth["icl_ms"]["max"] >= 60 - truth["lag_ms"]["max"]


def test_http10_is_delimited_by_the_close() -> None:
    answer = chat("http10")
    assert answer.version == "1.0"
    assert "transfer-encoding" not in answer.headers
    assert "content-length" not in answer.headers


def test_content_length_close_tells_the_length() -> None:
    answer = chat("content-length-close")
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.headers["connection"] == "close"


def test_gzip_is_flushed_at_each_event() -> None:
    answer = chat("gzip", options={"ttft_ms": 10.0, "gap_ms": 15.0})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.reads) >= len(TOKENS)


def test_gzip_of_a_reply_that_is_not_streamed() -> None:
    assert json.loads(chat("gzip", stream=False).text)["usage"]["completion_tokens"] == 6


def test_trailers_follow_the_body() -> None:
    answer = chat("trailers")
    assert answer.raw.endswith(b"0\r\nx-mock-trailer: end\r\n\r\n")


def test_an_interim_reply_comes_first() -> None:
    answer = chat("continue-100")
    assert answer.interim == 1
    assert answer.raw.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


# --- failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quirk", "before"), [("error-in-stream", 1), ("error-in-stream=0", 0), ("error-in-stream=4", 4)])
def test_an_error_inside_a_stream(quirk: str, before: int) -> None:
    answer = chat(quirk)
    assert (answer.status, answer.ended) == (200, "whole")
    assert answer.texts() == TOKENS[:before]
    assert "error" in answer.objects[-1]
    assert (answer.finish_reason, answer.events[-1]) == (None, "[DONE]")


@pytest.mark.parametrize(("quirk", "ended"), [("truncate", "eof"), ("reset", "reset"), ("hang-after", "silent")])
@pytest.mark.parametrize("after", [0, 2])
def test_streams_that_are_cut(quirk: str, ended: str, after: int) -> None:
    with LocalMock(quirks=(f"{quirk}={after}",)) as server:
        answer = ask(server.port, chat_body(6), patience_s=1.0 if quirk == "hang-after" else 20.0)
        truth = server.truth()
    assert answer.status == 200
    assert answer.ended == ended
    assert answer.texts() == TOKENS[:after]
    assert "[DONE]" not in answer.events
    assert truth["output_tokens"] == after
    assert truth["requests_completed"] == 0


def test_a_hang_says_nothing_at_all() -> None:
    answer = chat("hang", patience_s=0.3)
    assert (answer.ended, answer.raw) == ("silent", b"")


@pytest.mark.parametrize("quirk", ["truncate=2", "http10", "error-in-stream"])
def test_reshaped_replies_end_like_plain_ones(quirk: str) -> None:
    plain, reshaped = chat(quirk), chat(quirk, "comments")
    assert plain.texts() == reshaped.texts()
    assert plain.ended == reshaped.ended
    assert plain.events == reshaped.events


@pytest.mark.parametrize("status", [400, 429, 500, 503, 529])
def test_error_statuses(status: int) -> None:
    answer = chat(f"status={status}")
    assert answer.status == status
    assert json.loads(answer.body)["error"]["message"]
    assert ("retry-after" in answer.headers) is (status in {429, 503})


def test_a_share_of_the_requests_fails_and_a_seed_decides_which() -> None:
    def statuses(seed: int) -> list[int]:
        with LocalMock(quirks=("status=500:0.4",), seed=seed, ttft_ms=0.0, gap_ms=0.0) as server:
            return [ask(server.port, chat_body(1)).status for _ in range(60)]

    first = statuses(1)
    assert 10 <= first.count(500) <= 40
    assert set(first) == {200, 500}
    assert statuses(1) == first
    assert statuses(2) != first


def test_unauthorized_and_unknown_models() -> None:
    assert chat("unauthorized").status == 401
    assert chat("model-404").status == 404
    with LocalMock(quirks=("model-404",)) as server:
        assert json.loads(ask(server.port, path="/v1/models", method="GET").body)["data"] == []


def test_a_redirect_keeps_the_method_and_its_target_serves() -> None:
    with LocalMock(quirks=("redirect",)) as server:
        sent_away = ask(server.port, chat_body(2))
        assert sent_away.status == 307
        assert len(ask(server.port, chat_body(2), path=sent_away.headers["location"]).texts()) == 2


# --- timing ---------------------------------------------------------------------------------------------------------------


def test_slow_headers() -> None:
    with LocalMock(quirks=("slow-headers=120",), ttft_ms=10.0) as server:
        answer = ask(server.port, chat_body(2))
        truth = server.truth()
    assert (answer.reads[0][0] - answer.sent_ns) / 1e6 >= 119
    assert truth["ttft_ms"]["p50"] >= 119
    assert truth["ttft_ms"]["p50"] - truth["lag_ms"]["max"] > 60  # the delay is planned: no lag


def test_stalls_come_after_every_so_many_chunks() -> None:
    with LocalMock(quirks=("stall=2:80",), ttft_ms=5.0, gap_ms=1.0) as server:
        ask(server.port, chat_body(6))
        truth = server.truth()
    assert truth["e2e_ms"]["p50"] >= 5 + 5 + 2 * 80
    assert truth["icl_ms"]["max"] >= 80 - truth["lag_ms"]["max"]


def test_jittered_gaps_differ_and_follow_the_seed() -> None:
    def gaps(seed: int) -> float:
        with LocalMock(quirks=("gap-jitter=0.5",), seed=seed, ttft_ms=0.0, gap_ms=4.0) as server:
            ask(server.port, chat_body(40))
            truth = server.truth()
        assert truth["icl_ms"]["p90"] > 1.3 * truth["icl_ms"]["p50"]
        return float(truth["icl_ms"]["mean"])

    assert gaps(3) != gaps(4)


def test_slow_start_answers_503_first() -> None:
    with LocalMock(quirks=("slow-start=600",)) as server:
        assert ask(server.port, path="/health", method="GET").status == 503
        assert ask(server.port, chat_body(1)).status == 503
    with LocalMock(quirks=("slow-start=0",)) as server:
        assert ask(server.port, chat_body(1)).status == 200


def test_every_quirk_has_a_test() -> None:
    folder = Path(__file__).parent
    tests = "".join((folder / name).read_text(encoding="utf-8") for name in ("test_quirks_wire.py", "test_process.py"))
    assert [name for name in SPECS if tests.count(f'"{name}') == 0] == []
