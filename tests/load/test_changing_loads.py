"""Stages, traces and data files through real workers, against a server that is told what to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.errors import UsageError
from bench.records import MISSING, DataSpec, LoadSpec, Outcome, Stage, Telemetry
from bench.timing import measure
from tests.load.data.samples import jsonl, mooncake, said
from tests.load.data.test_survey import file_case, trace_load
from tests.load.scripted import Exchange, ScriptedServer, answer, chunked, drive, make_case


def reply_after(seconds: float) -> Any:
    """Answer after a pause, which is the length of each request here and not a means to wait for something."""

    def reply(x: Exchange) -> None:
        time.sleep(seconds)
        x.send(chunked(answer(2)))

    return reply


def of_file(path: str, **over: Any) -> dict[str, Any]:
    """The fields of a case with a data file."""
    case = file_case(path, **over)
    return {"dataset": case.dataset, "data": case.data, "input_tokens": case.input_tokens, "output_tokens": case.output_tokens}


def level_at(log: Any, at_ns: int) -> int:
    return int(((log.sent_ns <= at_ns) & (log.closed_ns > at_ns)).sum())


def test_a_closed_load_follows_its_stages(tmp_path: Path) -> None:
    stages = (
        Stage(start=2, end=2, duration_s=0.6),
        Stage(start=6, end=6, duration_s=0.6),
        Stage(start=1, end=1, duration_s=0.6),
        Stage(start=3, end=3, duration_s=0.6),
    )
    load = LoadSpec(kind="closed", batch_size=6, stages=stages)
    with ScriptedServer(reply_after(0.02)) as server:
        result = drive(server.url, tmp_path, load=load, duration_s=2.4, client_workers=2)
    log, window = result.log, result.window
    assert window is not None
    assert window.seconds == pytest.approx(2.4)
    assert set(log.outcome[(log.sent_ns >= window.t0_ns) & (log.sent_ns < window.t1_ns)]) == {Outcome.OK}
    for index, stage in enumerate(stages):  # the busiest moments of the later half of each
        moments = window.t0_ns + np.linspace((index + 0.5) * 0.6e9, (index + 0.95) * 0.6e9, 40).astype(np.int64)
        assert max(level_at(log, int(at)) for at in moments) == stage.start
    assert result.health.in_flight_reached == 6


def test_an_open_load_follows_its_stages(tmp_path: Path) -> None:
    stages = (Stage(start=20, end=20, duration_s=0.5), Stage(start=20, end=100, duration_s=1.0))
    load = LoadSpec(kind="open", arrivals="constant", stages=stages)
    with ScriptedServer(reply_after(0.005)) as server:
        result = drive(server.url, tmp_path, load=load, warmup_s=0.5, duration_s=1.5, client_workers=2)
    log, window = result.log, result.window
    assert window is not None
    due_s = (np.sort(log.scheduled_ns) - window.t0_ns) / 1e9
    counts = np.histogram(due_s, bins=[-0.5, 0, 0.5, 1.5])[0]
    assert np.all(np.abs(counts - [10, 10, 60]) <= 1)
    assert np.all(log.sent_ns >= log.scheduled_ns)


def test_a_trace_is_replayed_in_order_with_its_gaps_and_its_lengths(tmp_path: Path) -> None:
    stamps_ms = [0, 0, 100, 400, 400, 700, 1000]
    path = mooncake(tmp_path / "t.jsonl", [(at, 20 + i, 3 + i, []) for i, at in enumerate(stamps_ms)])
    with ScriptedServer(reply_after(0.01)) as server:
        result = drive(server.url, tmp_path, load=trace_load(speed=2.0), client_workers=2, **of_file(path))
    log, window = result.log, result.window
    assert window is not None
    assert window.kind == "whole_job"
    order = np.argsort(log.output_requested)
    assert log.output_requested[order].tolist() == [3 + i for i in range(7)]
    assert log.input_requested[order].tolist() == [20 + i for i in range(7)]
    due_ms = (log.scheduled_ns[order] - log.scheduled_ns.min()) / 1e6
    assert np.allclose(due_ms * 2, stamps_ms, atol=0.01)
    assert np.all(log.sent_ns >= log.scheduled_ns)
    assert not result.prompts_recycled
    words = {x.body["max_tokens"]: len(x.prompt_words()) for x in server.exchanges}
    assert words == {3 + i: 20 + i for i in range(7)}


def test_a_trace_may_be_cut_to_a_window(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(25 * i, 8, 3, []) for i in range(400)])
    with ScriptedServer(reply_after(0.005)) as server:
        result = drive(
            server.url, tmp_path, load=trace_load(whole_trace=False), warmup_s=0.2, duration_s=0.6, grace_s=1.0, **of_file(path)
        )
    assert result.window is not None
    assert result.window.kind == "steady"
    inside = (result.log.scheduled_ns >= result.window.t0_ns) & (result.log.scheduled_ns < result.window.t1_ns)
    assert 23 <= inside.sum() <= 25
    assert set(result.log.outcome[inside]) == {Outcome.OK}


def test_prompts_of_a_file_reach_the_server_once_each_over_all_workers(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "q.jsonl", [{"prompt": f"question {i} é"} for i in range(24)])
    load = LoadSpec(kind="closed", batch_size=4, num_prompts=24)
    with ScriptedServer(reply_after(0.002)) as server:
        result = drive(server.url, tmp_path, load=load, client_workers=3, **of_file(path))
    assert result.log.outcome.tolist() == [Outcome.OK] * 24
    assert sorted(said(x.body).split("question ")[1] for x in server.exchanges) == sorted(f"{i} é" for i in range(24))
    assert set(result.log.input_requested) == {MISSING}
    assert not result.prompts_recycled
    assert len(result.dataset_hash) == 64


def test_prompts_that_run_out_are_told(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "q.jsonl", [{"prompt": f"question {i}"} for i in range(5)])
    load = LoadSpec(kind="closed", batch_size=2, num_prompts=9)
    with ScriptedServer(reply_after(0.002)) as server:
        assert drive(server.url, tmp_path, load=load, **of_file(path)).prompts_recycled


def test_unsound_data_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "q.jsonl", [{"prompt": "good"}, {"promt": "bad"}])
    with pytest.raises(UsageError, match=r"q\.jsonl:2: there is no column 'prompt'"):
        drive("http://127.0.0.1:9", tmp_path, **of_file(path))
    assert not (tmp_path / "spill").exists()


def test_without_salt_trials_send_the_same_prompts(tmp_path: Path) -> None:
    sent = []
    for _ in range(2):
        with ScriptedServer(reply_after(0.002)) as server:
            drive(server.url, tmp_path, data=DataSpec(salt=False))
        sent.append([x.body["messages"] for x in server.exchanges])
    assert sent[0] == sent[1]


def test_a_cap_beside_a_rate_does_not_hide_the_queue(tmp_path: Path) -> None:
    """100 a second are due, two at a time are let out, each takes 50 ms: most of a TTFT is the wait before sending."""
    load = LoadSpec(kind="open", request_rate=100.0, arrivals="constant", max_concurrency=2, num_prompts=40)
    with ScriptedServer(reply_after(0.05)) as server:
        result = drive(server.url, tmp_path, load=load)
    metrics = measure(make_case(load=load), result, Telemetry(), {}, {}).metrics
    scheduled, sent = metrics["ttft_scheduled_ms"], metrics["ttft_ms"]
    assert sent.p50 is not None
    assert scheduled.p50 is not None
    assert sent.p50 >= 50
    assert scheduled.p50 > 4 * sent.p50
    asked, went_out = (metrics[f"request_rate_{which}_rps"].value for which in ("asked", "sent"))
    assert asked == pytest.approx(100, rel=1e-6)
    assert went_out is not None
    assert went_out < 45
