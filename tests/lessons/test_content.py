"""What other tools took for a token, and what they took for its time."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest

from bench.records import ChunkKind, LengthSpec
from tests.lessons.path import Trial, measured, middle, number, on_mock, one_at_a_time
from tests.load.scripted import DONE, HEAD, Exchange, ScriptedServer, chat, frame
from tests.mock.wire import LocalMock

TTFT_MS, GAP_MS, TOKENS = 60.0, 8.0, 6
EARLY_MS = 0.5
"""The mock engine sends what is due within a quarter of a millisecond in one go."""


def told(server: LocalMock, folder: Path, tokens: int = TOKENS) -> Trial:
    """Four requests, one at a time; beside them the server's own word on when it sent."""
    return on_mock(server, folder, load=one_at_a_time(4), output_tokens=LengthSpec(mean=tokens))


@pytest.mark.parametrize("quirk", ["role-null", "role-empty"])
def test_null_and_empty_role_deltas_are_no_first_token(quirk: str, tmp_path: Path) -> None:
    """The role delta comes at once; a tool that takes it for a token reports the network's round trip as TTFT."""
    with LocalMock(ttft_ms=TTFT_MS, gap_ms=GAP_MS, quirks=(quirk,)) as server:
        trial = told(server, tmp_path)
    assert middle(trial["ttft_ms"]) >= TTFT_MS - EARLY_MS
    assert len(trial.log.chunk_ns) == 4 * TOKENS
    assert trial["icl_ms"].n == 4 * (TOKENS - 1)
    assert middle(trial["tokens_per_chunk"]) == 1.0


@pytest.mark.parametrize("quirk", ["role-before-prefill", "role-with-first", "no-role"])
def test_when_the_role_delta_comes_does_not_move_ttft(quirk: str, tmp_path: Path) -> None:
    with LocalMock(ttft_ms=TTFT_MS, gap_ms=GAP_MS, quirks=(quirk,)) as server:
        trial = told(server, tmp_path)
    first = trial.log.chunk_ns[np.searchsorted(trial.log.chunk_request, np.arange(4))]
    opened_ms = (trial.log.opened_ns - trial.log.sent_ns) / 1e6
    assert middle(trial["ttft_ms"]) == pytest.approx(float(np.median(first - trial.log.sent_ns)) / 1e6)
    assert middle(trial["ttft_ms"]) >= TTFT_MS - EARLY_MS
    if quirk == "role-before-prefill":
        assert np.median(opened_ms) < TTFT_MS  # something did come early, and was not taken


@pytest.mark.parametrize("quirk", ["reasoning=3", "reasoning-content=3"])
def test_reasoning_counts_under_both_of_its_names(quirk: str, tmp_path: Path) -> None:
    """It ends the TTFT and it is output; the answer has a time of its own."""
    with LocalMock(ttft_ms=TTFT_MS, gap_ms=GAP_MS, quirks=(quirk,)) as server:
        trial = told(server, tmp_path)
    assert np.bincount(trial.log.chunk_kind).tolist() == [4 * 3, 4 * 3]
    assert trial.log.chunk_kind[0] == ChunkKind.REASONING
    assert middle(trial["output_tokens"]) == TOKENS
    waited_ms = middle(trial["ttfat_ms"]) - middle(trial["ttft_ms"])
    assert waited_ms > 2 * GAP_MS
    assert middle(trial["e2e_ms"]) > middle(trial["ttfat_ms"])


def test_several_tokens_in_one_chunk_are_that_many_tokens(tmp_path: Path) -> None:
    """Speculative decoding: four tokens a chunk. A tool that counts chunks reports a quarter of the speed."""
    with LocalMock(ttft_ms=20.0, gap_ms=GAP_MS, quirks=("multi-token=4", "usage-every-chunk")) as server:
        trial = told(server, tmp_path, tokens=32)
        # Up to now, for it stamps once it has written, and where it is held up in between, the client has read earlier.
        truth = server.truth(trial.window.t0_ns, perf_counter_ns())
    assert len(trial.log.chunk_ns) == 4 * 8
    assert middle(trial["tokens_per_chunk"]) == 4.0
    assert middle(trial["output_tokens"]) == 32
    assert number(trial["output_tok_per_s"]) * trial.window.seconds == pytest.approx(truth["output_tokens"])
    assert middle(trial["itl_ms"]) == pytest.approx(middle(trial["icl_ms"]) / 4)
    ends = trial.log.chunk_ns.reshape(4, 8)
    assert middle(trial["tpot_ms"]) == pytest.approx(float(np.median(ends[:, -1] - ends[:, 0])) / 1e6 / 28)
    assert trial["output_tok_per_s"].source == "ids"


def test_several_tokens_in_one_chunk_without_a_count_a_chunk_leave_itl_undefined(tmp_path: Path) -> None:
    with LocalMock(ttft_ms=20.0, gap_ms=GAP_MS, quirks=("multi-token=4",)) as server:
        trial = told(server, tmp_path, tokens=32)
    assert middle(trial["output_tokens"]) == 32
    assert number(trial["output_tok_per_s"]) * trial.window.seconds == pytest.approx(4 * 32)
    assert trial["output_tok_per_s"].source == "spread_by_bytes"
    assert trial["itl_ms"].p50 is None
    assert trial["itl_ms"].reason == "tokens per chunk are unknown and chunks != tokens"
    assert middle(trial["icl_ms"]) > 0


def bundled(x: Exchange) -> None:
    """Eight tokens at once, then one at a time, each with the count so far."""
    x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    counts = [8, 9, 10, 11]
    for count in counts:
        x.server.release.wait(0.02)
        usage = {"prompt_tokens": 8, "completion_tokens": count}
        x.send(frame(chat({"content": " word"}, "length" if count == counts[-1] else None, usage=usage)))
    x.send(frame(DONE) + frame(b""))


def test_a_bundled_first_chunk_does_not_inflate_the_speed_a_user_sees(tmp_path: Path) -> None:
    """Eleven tokens in 60 ms after the first stamp would be 167 tok/s; three tokens came in that time."""
    with ScriptedServer(bundled) as server:
        trial = measured(server.url, tmp_path, output_tokens=LengthSpec(mean=11))
    log = trial.log
    assert log.chunk_tokens.tolist() == [8, 1, 1, 1] * 3
    spans_ms = np.array([log.chunk_ns[i + 3] - log.chunk_ns[i] for i in (0, 4, 8)]) / 1e6
    assert middle(trial["tpot_ms"]) == pytest.approx(float(np.median(spans_ms / 3)))
    assert middle(trial["tok_per_s_per_user"]) == pytest.approx(1000 / float(np.median(spans_ms / 3)))


def test_a_reply_that_is_one_chunk_has_no_speed_at_all(tmp_path: Path) -> None:
    def at_once(x: Exchange) -> None:
        usage = {"prompt_tokens": 8, "completion_tokens": 11}
        x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        x.send(frame(chat({"content": "all of it"}, "length") + chat({}, usage=usage) + DONE) + frame(b""))

    with ScriptedServer(at_once) as server:
        trial = measured(server.url, tmp_path, output_tokens=LengthSpec(mean=11))
    assert trial["tpot_ms"].p50 is None
    assert trial["tok_per_s_per_user"].p50 is None
    assert number(trial["output_tok_per_s"]) * trial.window.seconds == pytest.approx(33)
