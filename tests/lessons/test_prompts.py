"""Prompts that were shorter, longer or better known than they seemed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.load import WireLoad
from bench.ports import LoadPlan
from bench.records import LengthSpec, LoadSpec
from tests.lessons.path import measured, middle, number, on_mock, one_at_a_time
from tests.load.scripted import Exchange, ScriptedServer, answer, chunked, make_case, make_target
from tests.mock.wire import LocalMock

BLOCK = 16
"""Words, or tokens, that a prefix cache keeps as one."""


class PrefixCache:
    """Remembers the first blocks of every prompt, as engines do, and counts what it knew."""

    def __init__(self) -> None:
        self.known: set[tuple[str, ...]] = set()
        self.hits = self.prompts = 0

    def reply(self, x: Exchange) -> None:
        words = x.prompt_words()
        first = tuple(words[:BLOCK])
        self.prompts += 1
        self.hits += first in self.known
        self.known.add(first)
        x.send(chunked(answer(4, prompt=len(words))))


def test_a_fixed_seed_does_not_benchmark_the_prefix_cache(tmp_path: Path) -> None:
    """The same case twice on one engine, as two repeats are. With the same prompts the second would be all cache: its TTFT was
    seen to fall 49-fold.
    """
    cache, lengths = PrefixCache(), []
    with ScriptedServer(cache.reply) as server:
        for repeat in (1, 2):
            case = make_case(input_tokens=LengthSpec(dist="uniform", mean=64, spread=0.5), load=one_at_a_time(20), seed=7)
            plan = LoadPlan(
                case=case, target=make_target(server.url), salt=f"workload:{repeat}:run", spill_dir=tmp_path / f"{repeat}"
            )
            lengths.append(WireLoad().run(plan, lambda _: None, lambda: None).log.input_requested.tolist())
    assert cache.prompts == 40
    assert cache.hits == 0
    assert lengths[0] == lengths[1]  # the seed still decides the lengths


def test_hits_that_come_all_the_same_are_said(tmp_path: Path) -> None:
    with LocalMock(ttft_ms=10.0, gap_ms=1.0, quirks=("cached=60",)) as server:
        trial = on_mock(server, tmp_path, load=one_at_a_time(6), input_tokens=LengthSpec(mean=64))
    assert number(trial["prefix_cache_hit_share"]) == pytest.approx(60 / 64)
    assert ("prefix_cache_hits", "latency", "invalid") in trial.codes


def wasteful(words: int) -> int:
    """A server whose tokenizer makes five tokens of a word, and whose template has 128."""
    return 128 + 5 * words


def test_a_thousand_tokens_asked_for_are_a_thousand_on_the_server(tmp_path: Path) -> None:
    """1,000 random ids, decoded and encoded again, were seen to become 5,128 tokens. The count that matters is the server's."""

    def reply(x: Exchange) -> None:
        x.send(chunked(answer(4, prompt=wasteful(len(x.prompt_words())))))

    with ScriptedServer(reply, preflight=reply) as server:
        trial = measured(server.url, tmp_path, input_tokens=LengthSpec(mean=1000))
    assert middle(trial["input_tokens"]) == pytest.approx(1000, abs=5)
    assert not any(code == "input_length_mismatch" for code, _, _ in trial.codes)


def test_prompts_that_turn_out_longer_are_counted_as_they_are_and_said(tmp_path: Path) -> None:
    """The server counts otherwise once the load runs: the metric is its count, never what was asked for."""
    with ScriptedServer(lambda x: x.send(chunked(answer(4, prompt=5128)))) as server:
        trial = measured(server.url, tmp_path, input_tokens=LengthSpec(mean=1000))
    assert trial.log.input_requested.tolist() == [1000] * 3
    assert middle(trial["input_tokens"]) == 5128
    assert number(trial["input_tok_per_s"]) * trial.window.seconds == pytest.approx(3 * 5128)
    (message,) = {r.message for r in trial.measured.reasons if r.code == "input_length_mismatch"}
    assert "5128.0 tokens where 1000.0 were asked" in message


def test_prompts_of_ids_are_exact(tmp_path: Path) -> None:
    with LocalMock(ttft_ms=10.0, gap_ms=1.0) as server:
        url = f"http://127.0.0.1:{server.port}"
        target = make_target(url, model="mock", protocol="openai-completions", token_ids=True, vocab_size=32_000)
        trial = measured(
            url,
            tmp_path,
            target=target,
            protocol="openai-completions",
            input_tokens=LengthSpec(mean=1000),
            exact_lengths=True,
            load=LoadSpec(kind="closed", batch_size=2, num_prompts=8),
        )
    assert trial.log.input_tokens.tolist() == [1000] * 8
    assert not any(code == "input_length_mismatch" for code, _, _ in trial.codes)
