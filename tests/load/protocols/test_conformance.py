"""Every wire protocol against what its servers send: right chunks, right counts, however the bytes come.

A new protocol joins with a line in `TRANSCRIPTS` for each file, and one in `ASKED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from msgspec.structs import replace

from bench.identity import workload_id
from bench.load.inflate import Coding
from bench.load.parse import ParsedRequest, parse_request
from bench.load.protocols import PROTOCOLS, wire_protocol
from bench.load.spill import End
from bench.load.sse import split_events
from bench.records import MISSING, TOKEN_ID_PROTOCOLS, LengthSpec, LoadSpec, Outcome, ProtocolName, Sampling, Telemetry
from bench.timing.trial import measure
from tests.load.scripted import Exchange, ScriptedServer, asked_tokens, chunked, drive, make_case, make_target, sized

FOLDER = Path(__file__).parent / "transcripts"


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """What must be read out of a file. `tokens` per chunk, `MISSING` where the protocol doesn't tell."""

    protocol: str
    tokens: list[int]
    bytes_: list[int]
    prompt: int | None
    completion: int | None
    finish: str | None
    cached: int | None = None


ONE = MISSING
TRANSCRIPTS = {
    "openai_chat.sse": Transcript(
        protocol="openai-chat", tokens=[ONE] * 6, bytes_=[1, 2, 5, 4, 3, 9], prompt=32, completion=6, finish="length", cached=0
    ),
    "openai_completions.sse": Transcript(
        protocol="openai-completions",
        tokens=[ONE] * 6,
        bytes_=[3, 3, 1, 6, 3, 2],
        prompt=3,
        completion=6,
        finish="length",
        cached=0,
    ),
    "vllm_completions.sse": Transcript(
        protocol="vllm-completions", tokens=[1, 2, 2, 1], bytes_=[4, 12, 3, 4], prompt=3, completion=6, finish="length"
    ),
    "sglang_generate.sse": Transcript(
        protocol="sglang-generate", tokens=[2, 2, 1], bytes_=[4, 12, 4], prompt=5, completion=5, finish="length", cached=2
    ),
    "sglang_generate_incremental.sse": Transcript(
        protocol="sglang-generate", tokens=[1, 1, 1], bytes_=[4, 6, 6], prompt=5, completion=4, finish="stop", cached=0
    ),
    "llamacpp_completion.sse": Transcript(
        protocol="llamacpp-completion",
        tokens=[1] * 6,
        bytes_=[1, 1, 1, 3, 9, 5],
        prompt=5,
        completion=6,
        finish="length",
        cached=0,
    ),
    "kserve_generate.sse": Transcript(
        protocol="kserve-generate", tokens=[1, 2, 2], bytes_=[4, 12, 4], prompt=5, completion=5, finish="length"
    ),
    "kserve_generate_bare.sse": Transcript(
        protocol="kserve-generate", tokens=[ONE] * 3, bytes_=[4, 6, 4], prompt=None, completion=None, finish=None
    ),
    "openai_chat.json": Transcript(
        protocol="openai-chat", tokens=[], bytes_=[], prompt=11, completion=7, finish="stop", cached=3
    ),
    "openai_completions.json": Transcript(
        protocol="openai-completions", tokens=[], bytes_=[], prompt=4, completion=2, finish="length"
    ),
    "vllm_completions.json": Transcript(
        protocol="vllm-completions", tokens=[], bytes_=[], prompt=3, completion=2, finish="length"
    ),
    "sglang_generate.json": Transcript(
        protocol="sglang-generate", tokens=[], bytes_=[], prompt=5, completion=2, finish="length", cached=0
    ),
    "llamacpp_completion.json": Transcript(
        protocol="llamacpp-completion", tokens=[], bytes_=[], prompt=5, completion=6, finish="length", cached=0
    ),
    "kserve_generate.json": Transcript(protocol="kserve-generate", tokens=[], bytes_=[], prompt=5, completion=2, finish="length"),
}
STREAMED = [name for name in TRANSCRIPTS if name.endswith(".sse")]
WHOLE = [name for name in TRANSCRIPTS if name.endswith(".json")]


def body_of(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def parse(name: str, body: bytes, cuts: list[int], end: End = End.COMPLETE) -> ParsedRequest:
    """As if the body had come in pieces: piece i at (i + 1) * 10 ns."""
    ends = np.array([*cuts, len(body)], dtype=np.int64)
    stamps = (np.arange(len(ends)) + 1) * 10
    return parse_request(wire_protocol(TRANSCRIPTS[name].protocol), body, stamps, ends, end=end, status=200)


def check(parsed: ParsedRequest, wanted: Transcript) -> None:
    assert (parsed.outcome, parsed.error) == (Outcome.OK, None)
    assert parsed.chunk_tokens.tolist() == wanted.tokens
    assert parsed.chunk_bytes.tolist() == wanted.bytes_
    assert parsed.finish_reason == wanted.finish
    usage = parsed.usage
    assert (usage.prompt_tokens if usage else None, usage.completion_tokens if usage else None) == (
        wanted.prompt,
        wanted.completion,
    )
    details = usage.prompt_tokens_details if usage else None
    assert (details.cached_tokens if details else None) == wanted.cached


def test_every_protocol_is_here() -> None:
    assert set(PROTOCOLS) == set(get_args(ProtocolName))
    assert {t.protocol for t in TRANSCRIPTS.values()} == set(PROTOCOLS) == set(ASKED)
    assert {p for p in PROTOCOLS if wire_protocol(p).takes_token_ids} == TOKEN_ID_PROTOCOLS
    assert {path.name for path in FOLDER.iterdir()} == {*TRANSCRIPTS, "README.md"}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcripts_are_read(name: str) -> None:
    check(parse(name, body_of(name), []), TRANSCRIPTS[name])


@pytest.mark.parametrize("name", STREAMED)
def test_a_read_that_ends_anywhere_changes_only_stamps(name: str) -> None:
    body = body_of(name)
    for cut in range(1, len(body)):
        parsed = parse(name, body, [cut])
        check(parsed, TRANSCRIPTS[name])
        stamps = parsed.chunk_ns.tolist()
        assert stamps == sorted(stamps)
        assert set(stamps) <= {10, 20}


@pytest.mark.parametrize("name", STREAMED)
def test_lines_may_end_in_cr_lf(name: str) -> None:
    check(parse(name, body_of(name).replace(b"\n", b"\r\n"), []), TRANSCRIPTS[name])


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_cut_off_is_a_failure_that_keeps_its_chunks(name: str) -> None:
    body = body_of(name)
    second = body.index(b"data:", body.index(b"data:") + 5)
    third = body.index(b"data:", second + 5)
    parsed = parse(name, body[:third], [], End.BROKEN)
    assert parsed.outcome is Outcome.TRUNCATED
    assert 1 <= len(parsed.chunk_ns) <= 2


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("error", [b'{"error":{"message":"out of memory","code":500}}', b'{"error":"out of memory"}'])
def test_an_error_inside_a_200_is_a_failure(name: str, error: bytes) -> None:
    body = body_of(name)
    third = body.index(b"data:", body.index(b"data:", 5) + 5)
    parsed = parse(name, body[:third] + b"data: " + error + b"\n\n", [])
    assert (parsed.outcome, parsed.error) == (Outcome.STREAM_ERROR, "out of memory")
    assert len(parsed.chunk_ns) >= 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("payload", [b"{}", b"[]", b"3", b"null", b'"x"', b"{broken", b"\xff\xfe", b""])
def test_nonsense_never_raises_and_never_is_content(protocol: str, payload: bytes) -> None:
    answer = wire_protocol(protocol).read([payload, b"[DONE]"])
    assert answer.events == []
    assert wire_protocol(protocol).whole(payload).events == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("around", ["%s", '{"x": %s}', '{"error": %s}', '{"usage": {"x": %s}}', '{"choices": [{"x": %s}]}'])
@pytest.mark.parametrize("level", ["[]", '{"a":}'])
def test_json_of_any_depth_never_raises_and_never_is_content(protocol: str, around: str, level: str) -> None:
    deep = around % (level[:-1] * 5000 + "1" + level[-1] * 5000)
    for payload in (deep.encode(), deep[:-5000].encode()):
        answer = wire_protocol(protocol).read([payload, b"[DONE]"])
        assert answer.events == []
        assert answer.malformed
        assert wire_protocol(protocol).whole(payload).events == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_reply_without_any_token_is_a_failure(protocol: str) -> None:
    bodies = [b"data: {}\n\ndata: [DONE]\n\n", b"{}"]
    for body in bodies:
        ends = np.array([len(body)])
        parsed = parse_request(wire_protocol(protocol), body, ends, ends, end=End.COMPLETE, status=200)
        assert parsed.outcome is Outcome.EMPTY


MODEL = "org/tiny"
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/v1/chat/completions", {"stream_options": {"include_usage": True}}),
    "openai-completions": ("/v1/completions", {"stream_options": {"include_usage": True}}),
    "vllm-completions": ("/v1/completions", {"return_token_ids": True}),
    "sglang-generate": ("/generate", {"stream": True}),
    "llamacpp-completion": ("/completion", {"return_tokens": True}),
    "kserve-generate": ("/v2/models/org%2Ftiny/generate_stream", {}),
}
"""Path, and what a streamed request must hold beside prompt and length."""


@pytest.mark.parametrize("name", STREAMED)
def test_over_a_real_connection(name: str, tmp_path: Path) -> None:
    """Byte by byte in HTTP chunks of 7, so that every boundary falls everywhere."""
    wanted = TRANSCRIPTS[name]
    path, fields = ASKED[wanted.protocol]
    reply = chunked(body_of(name), size=7)
    with ScriptedServer(lambda x: x.send(reply), preflight=lambda x: x.send(reply)) as server:
        target = make_target(server.url, protocol=wanted.protocol, model=MODEL, token_ids=True, vocab_size=32000)
        load = LoadSpec(kind="closed", batch_size=1, num_prompts=2)
        log = drive(server.url, tmp_path, target=target, load=load, output_tokens=LengthSpec(mean=wanted.completion or 9)).log
    assert log.outcome.tolist() == [Outcome.OK] * 2
    assert log.chunk_bytes.tolist() == wanted.bytes_ * 2
    assert log.output_tokens.tolist() == [MISSING if wanted.completion is None else wanted.completion] * 2
    assert log.input_tokens.tolist() == [MISSING if wanted.prompt is None else wanted.prompt] * 2
    for exchange in server.exchanges:
        assert exchange.head.startswith(f"POST {path} HTTP/1.1\r\n".encode())
        assert asked_tokens(exchange.body) == (wanted.completion or 9)
        assert {key: exchange.body[key] for key in fields} == fields


@pytest.mark.parametrize("name", WHOLE)
def test_not_streamed(name: str, tmp_path: Path) -> None:
    """Nothing is known of a first token, and nothing made up; end-to-end latency and tokens per second are right."""
    wanted = TRANSCRIPTS[name]
    reply = sized(body_of(name))
    load = LoadSpec(kind="closed", batch_size=2)

    def send(x: Exchange) -> None:
        x.server.release.wait(0.01)
        x.send(reply)

    with ScriptedServer(send, preflight=send) as server:
        target = make_target(server.url, protocol=wanted.protocol, model=MODEL)
        result = drive(server.url, tmp_path, target=target, load=load, warmup_s=0.1, duration_s=0.5, stream=False)
    case = make_case(stream=False, protocol=wanted.protocol, load=load, warmup_s=0.1, duration_s=0.5)
    log, window = result.log, result.window
    assert window is not None
    assert set(log.outcome) <= {Outcome.OK, Outcome.CANCELLED}
    assert len(log.chunk_ns) == 0
    metrics = measure(case, result, Telemetry(), {}, {}).metrics
    for metric in ("ttft_ms", "ttfat_ms", "tpot_ms", "itl_ms", "icl_ms"):
        assert metrics[metric].value is metrics[metric].p50 is None
        assert metrics[metric].reason
    inside = (log.sent_ns >= window.t0_ns) & (log.sent_ns < window.t1_ns)
    assert metrics["e2e_ms"].p50 == pytest.approx(np.median((log.closed_ns - log.sent_ns)[inside]) / 1e6)
    done = (log.closed_ns >= window.t0_ns) & (log.closed_ns < window.t1_ns) & (log.outcome == Outcome.OK)
    assert metrics["output_tok_per_s"].value == pytest.approx(int(done.sum()) * (wanted.completion or 0) / window.seconds)
    assert not any(x.body.get("parameters", x.body)["stream"] for x in server.exchanges)
    assert all("stream_options" not in x.body for x in server.exchanges)


def test_token_ids_and_texts_go_where_the_protocol_wants_them() -> None:
    def sent(protocol: str, **target: Any) -> dict[str, Any]:
        where = make_target("http://127.0.0.1:1", protocol=protocol, **target)
        return wire_protocol(protocol).body(where, make_case(protocol=protocol), "P", 4, exact=True)

    assert sent("sglang-generate")["text"] == "P"
    assert sent("sglang-generate", token_ids=True)["input_ids"] == "P"
    assert sent("sglang-generate")["sampling_params"]["min_new_tokens"] == 4
    assert sent("llamacpp-completion", token_ids=True)["prompt"] == "P"
    assert sent("vllm-completions", token_ids=True)["prompt"] == "P"
    assert sent("vllm-completions")["min_tokens"] == 4
    assert sent("kserve-generate")["text_input"] == "P"
    assert sent("kserve-generate")["parameters"]["min_tokens"] == 4


def test_ignore_eos_is_left_out_where_it_is_not_wanted() -> None:
    case = make_case(sampling=Sampling(ignore_eos=False))
    target = make_target("http://127.0.0.1:1")
    for protocol in ("openai-chat", "openai-completions", "vllm-completions"):
        assert "ignore_eos" not in wire_protocol(protocol).body(target, case, "P", 4, exact=False)
    assert "ignore_eos" not in wire_protocol("kserve-generate").body(target, case, "P", 4, exact=False)["parameters"]


def test_streams_that_are_not_streamed_are_another_workload() -> None:
    case = make_case()
    assert workload_id(replace(case, stream=False)) != workload_id(case)


def test_a_first_token_is_seen_as_it_comes() -> None:
    """The warm-up waits for it: event by event, each protocol shows it no later than its first content event."""
    from bench.load.watch import ContentWatch

    for name in STREAMED:
        protocol = wire_protocol(TRANSCRIPTS[name].protocol)
        payloads, _ = split_events(body_of(name))
        watch, seen = ContentWatch(protocol), 0
        for payload in payloads:
            seen += 1
            if watch.feed(b"data: " + payload + b"\n\n", Coding.IDENTITY):
                break
        assert seen == protocol.read(payloads).events[0] + 1
