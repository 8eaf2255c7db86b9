"""Output tokens counted by a tokenizer of the user's, where the server tells none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.errors import MissingError, UsageError
from bench.load.parse import ParsedRequest, parse_request
from bench.load.protocols import wire_protocol
from bench.load.retokenize import Retokenizer
from bench.load.spill import End
from bench.records import MISSING, Outcome
from tests.conftest import BenchCommand
from tests.load.scripted import DONE, ScriptedServer, answer, chat, chunked, drive, event, make_target, usage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer that cuts text at spaces, which stay with the word behind them: ` to`, `he` and `ll` are tokens, and so is
    every other byte.
    """
    place = tmp_path_factory.mktemp("model")
    bytes_ = [chr(code) for code in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    bytes_ += [chr(256 + index) for index in range(256 - len(bytes_))]
    merges = [["\u0120", "t"], ["\u0120t", "o"], ["h", "e"], ["l", "l"]]
    vocabulary = [*bytes_, *("".join(pair) for pair in merges)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    model = {"type": "BPE", "vocab": {piece: number for number, piece in enumerate(vocabulary)}, "merges": merges}
    (place / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model})
    )
    return place


@pytest.fixture(scope="module")
def counter(folder: Path) -> Retokenizer:
    return Retokenizer(str(folder))


@pytest.mark.parametrize(
    ("texts", "counts"),
    [
        ([" to", " to"], [1, 1]),
        ([" to to"], [2]),
        ([" t", "o", " to"], [0, 1, 1]),  # the token ends in the second chunk
        (["he", "ll", "o"], [1, 1, 1]),
        (["h", "e"], [0, 1]),
        (["\u00e9"], [2]),  # two bytes, two tokens
        (["a", "\u00e9b"], [1, 3]),
        (["\ud83d", "\ude00"], [1, 1]),  # halves of a character, which some servers send
        ([""], [0]),
    ],
)
def test_a_token_belongs_to_the_chunk_that_brought_its_end(counter: Retokenizer, texts: list[str], counts: list[int]) -> None:
    assert counter.per_chunk(texts) == counts


def test_a_file_and_its_folder_are_the_same(folder: Path) -> None:
    assert Retokenizer(str(folder / "tokenizer.json")).per_chunk([" to"]) == Retokenizer(str(folder)).per_chunk([" to"])


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UsageError, match="can't be read") as caught:
        Retokenizer(str(tmp_path))
    assert "--tokenizer" in str(caught.value.hint)


def parsed(body: bytes, counter: Retokenizer | None, *, protocol: str = "openai-chat", end: End = End.COMPLETE) -> ParsedRequest:
    stamps, ends = np.array([10], dtype=np.int64), np.array([len(body)], dtype=np.int64)
    return parse_request(wire_protocol(protocol), body, stamps, ends, end=end, status=200, retokenizer=counter)


UNCOUNTED = chat({"reasoning": " to"}) + chat({"content": " to to"}) + chat({}, "length") + DONE


def test_an_answer_without_any_count_is_counted(counter: Retokenizer) -> None:
    found = parsed(UNCOUNTED, counter)
    assert (found.retokenized, found.chunk_tokens.tolist()) == (3, [1, 2])
    assert parsed(UNCOUNTED, None).retokenized == MISSING
    assert parsed(UNCOUNTED, None).chunk_tokens.tolist() == [MISSING, MISSING]


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("openai-chat", chat({"content": " to to"}) + usage(5, 9) + DONE),
        ("openai-completions", event({"choices": [{"index": 0, "text": " to to", "token_ids": [7]}]}) + DONE),
        ("kserve-generate", event({"text_output": " to to", "num_output_tokens": 9})),
    ],
)
def test_the_servers_own_count_always_comes_first(counter: Retokenizer, protocol: str, body: bytes) -> None:
    with_us, alone = parsed(body, counter, protocol=protocol), parsed(body, None, protocol=protocol)
    assert with_us.outcome is Outcome.OK
    assert with_us.retokenized == MISSING
    assert with_us.chunk_tokens.tolist() == alone.chunk_tokens.tolist()


@pytest.mark.parametrize(
    ("protocol", "body", "count"),
    [
        ("kserve-generate", event({"text_output": " to"}) + event({"text_output": " to to"}), 3),
        ("sglang-generate", event({"text": " to"}) + event({"text": " to to", "meta_info": {"finish_reason": "stop"}}) + DONE, 2),
        ("openai-completions", event({"choices": [{"index": 0, "text": " to", "finish_reason": "stop"}]}) + DONE, 1),
        ("openai-chat", b'{"choices":[{"index":0,"message":{"content":" to to"},"finish_reason":"stop"}]}', 2),
        (
            "openai-chat",
            chat({"tool_calls": [{"function": {"arguments": " to"}}, {"function": {"arguments": " to"}}]}, "tool_calls") + DONE,
            2,
        ),
    ],
)
def test_every_kind_of_answer_is_counted(counter: Retokenizer, protocol: str, body: bytes, count: int) -> None:
    assert parsed(body, counter, protocol=protocol).retokenized == count


@pytest.mark.parametrize("end", [End.BROKEN, End.TIMEOUT, End.CANCELLED])
def test_an_answer_that_was_cut_off_is_not_counted(counter: Retokenizer, end: End) -> None:
    assert parsed(chat({"content": " to to"}), counter, end=end).retokenized == MISSING


def test_a_load_whose_server_tells_nothing(folder: Path, tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(chunked(UNCOUNTED)), preflight=lambda x: x.send(chunked(UNCOUNTED))) as server:
        result = drive(server.url, tmp_path, tokenizer=str(folder))
    assert result.log.output_retokenized is not None
    assert result.log.output_retokenized.tolist() == [3, 3, 3]
    assert result.log.output_tokens.tolist() == [MISSING] * 3
    assert result.log.chunk_tokens.tolist() == [1, 2] * 3


def test_a_load_whose_server_counts_needs_nobody(folder: Path, tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(chunked(answer(2)))) as server:
        result = drive(server.url, tmp_path, tokenizer=str(folder))
    assert result.log.output_retokenized is None


def test_a_tokenizer_that_cant_be_read_ends_it_before_any_request(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(chunked(answer(2)))) as server, pytest.raises(UsageError, match="can't be read"):
        drive(server.url, tmp_path, target=make_target(server.url), tokenizer=str(tmp_path / "none"))
    assert not server.preflights


def test_the_package_that_is_missing_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingError, match="needs the package tokenizers") as caught:
        Retokenizer(str(folder))
    assert "tokjoule[tokenizer]" in str(caught.value.hint)


def test_a_whole_run_says_where_its_counts_come_from(bench_here: BenchCommand, folder: Path) -> None:
    command = (
        *("run", "--engine", "mock", "--engine-arg", "quirk=no-usage", "--batch-size", "2", "--num-prompts", "6"),
        *("--output-tokens", "8", "--repeats", "1", "--json"),
    )
    trial = json.loads(bench_here(*command, "--tokenizer", str(folder)).stdout)["trials"][0]
    found = trial["metrics"]["output_tokens"]
    assert found["source"] == "retokenized"
    assert found["n"] == 6
    assert trial["metrics"]["output_tok_per_s"]["value"] > 0
    unread = bench_here(*command, "--tokenizer", str(folder / "none"))
    assert "can't be read" in unread.stderr
    assert "Traceback" not in unread.stderr
