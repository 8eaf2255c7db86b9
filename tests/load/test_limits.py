"""Numbers, texts and bytes from a server have bounds, and whatever a worker trips over is an error and never a wait."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import numpy as np
import psutil
import pytest

from bench.errors import LoadError, UsageError
from bench.load import arrival_offsets_s, recover
from bench.load.arrivals import MOST_ARRIVALS
from bench.load.columns import spill_path
from bench.load.parse import MOST_TOKENS, parse_request
from bench.load.protocols import wire_protocol
from bench.load.spill import End, Meta, SpillWriter
from bench.records import MISSING, LoadSpec, Outcome, Stage
from bench.suite import rules
from tests.load.scripted import DONE, ScriptedServer, answer, chat, chunked, drive
from tests.load.test_lifecycle import CHILD, until, workers_of
from tests.load.test_loops import slow
from tests.load.test_spill import put

WRONG = ["-2", "-1", str(MOST_TOKENS + 1), str(1 << 63), str(1 << 64), str(10**30), "1.5", "1e300", "true", '"7"', "[1]"]
PLACES = {
    "prompt_tokens": '{"prompt_tokens": %s}',
    "completion_tokens": '{"completion_tokens": %s}',
    "cached_tokens": '{"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": %s}}',
    "reasoning_tokens": '{"completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": %s}}',
}


def spilled(folder: Path, *bodies: bytes, key_env: str | None = None, protocol: str = "openai-chat") -> None:
    spill = SpillWriter(spill_path(folder, 0), Meta(protocol, 0, key_env))
    for request, body in enumerate(bodies):
        spill.sent(request, MISSING, 5 + request, 1, 1)
        put(spill, request, [50 + request], [body])
        spill.end(request, 50, 60, End.COMPLETE, status=200, error=None)
    spill.close()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_counts_that_can_not_be_are_a_protocol_failure_of_that_request_alone(place: str, streamed: bool, tmp_path: Path) -> None:
    usages = [(PLACES[place] % value).encode() for value in WRONG]
    if streamed:
        bodies = [chat({"content": "a"}, "stop") + b'data: {"choices":[],"usage":' + u + b"}\n\n" + DONE for u in usages]
    else:
        bodies = [b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":' + u + b"}" for u in usages]
    spilled(tmp_path, *bodies, answer(3))
    log = recover(tmp_path)
    assert log.outcome.tolist() == [Outcome.PROTOCOL] * len(WRONG) + [Outcome.OK]
    assert all(place in (error or "") for error in log.error[:-1])
    assert set(log.output_tokens[:-1].tolist()) == {MISSING}
    assert log.output_tokens[-1] == 3


def test_the_largest_count_is_kept(tmp_path: Path) -> None:
    spilled(tmp_path, b'{"choices":[{"message":{"content":"a"}}],"usage":{"completion_tokens":%d}}' % MOST_TOKENS)
    assert recover(tmp_path).output_tokens.tolist() == [MOST_TOKENS]


@pytest.mark.parametrize(
    ("protocol", "event"),
    [
        ("kserve-generate", '{"text_output": "a", "num_output_tokens": %d}'),
        ("sglang-generate", '{"text": "a", "meta_info": {"completion_tokens": %d, "finish_reason": "stop"}}'),
        ("llamacpp-completion", '{"content": "a", "stop": true, "tokens_predicted": %d}'),
        ("openai-chat", '{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"completion_tokens":%d}}'),
    ],
)
def test_no_protocol_lets_a_count_through_that_no_column_holds(protocol: str, event: str) -> None:
    for count in (10**30, 1 << 63, -5):
        body = b"data: " + (event % count).encode() + b"\n\n" + (DONE if protocol == "openai-chat" else b"")
        stamps = np.array([1], np.int64)
        ends = np.array([len(body)], np.int64)
        parsed = parse_request(wire_protocol(protocol), body, stamps, ends, end=End.COMPLETE, status=200)
        assert parsed.outcome is Outcome.PROTOCOL
        assert parsed.usage is None
        assert all(abs(tokens) <= MOST_TOKENS for tokens in parsed.chunk_tokens.tolist())


def test_a_load_against_absurd_counts_ends(tmp_path: Path) -> None:
    body = chat({"content": "a"}, "stop") + b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % 10**30 + DONE
    with ScriptedServer(lambda x: x.send(chunked(body))) as server:
        assert drive(server.url, tmp_path).log.outcome.tolist() == [Outcome.PROTOCOL] * 3


# --- a worker that trips is an error, not a wait -------------------------------------------------------------------------


def test_whatever_stops_the_parsing_is_told_at_once(tmp_path: Path) -> None:
    """A column that is a folder: what no worker expects, in the last phase of all."""
    (tmp_path / "spill" / "worker-0.chunk_ns.i64").mkdir(parents=True)
    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="load worker"):
        drive(server.url, tmp_path)
    assert workers_of(os.getpid()) == []


def broken_worker(where: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers started from here on do `how` in place of `where`."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('bench.load.worker' in part for part in sys.orig_argv):\n"
        "    import bench.load.worker as w\n"
        "    import time\n"
        f"    def trip(*_, **__): {how}\n"
        f"    w.{where} = trip\n"
    )
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "broken"), root]))


@pytest.mark.parametrize(
    "where",
    [
        *(f"Worker.{name}" for name in ("_build", "_finish", "_react", "_tick")),
        "Preflight.run",
        *(f"ClosedLoop.{name}" for name in ("_begin", "_dial", "ended", "_sweep")),
        "SpillWriter.end",
        "parse_spill",
    ],
)
def test_an_exception_that_nobody_foresaw_is_named(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_worker(where, "raise OverflowError('one\\ntoo big')", tmp_path, monkeypatch)
    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="the load worker failed: OverflowError: too big"):
        drive(server.url, tmp_path, request_timeout_s=5.0)


def test_too_few_open_files_are_told_with_the_way_to_have_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_worker("Worker._build", "[open('/dev/null') for _ in range(2**31)]", tmp_path, monkeypatch)
    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="Too many open files") as caught:
        drive(server.url, tmp_path)
    assert "ulimit -n" in (caught.value.hint or "")


def test_a_worker_that_is_busy_building_is_ended_by_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_worker("Worker._build", "time.sleep(600)", tmp_path, monkeypatch)
    asked: list[float] = []

    def stop() -> str | None:
        if server.preflights and not asked:
            asked.append(monotonic())
        return "Ctrl-C" if server.preflights else None

    with ScriptedServer(slow) as server:
        result = drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1), should_stop=stop)
    assert result.interrupted
    assert monotonic() - asked[0] < 20
    assert workers_of(os.getpid()) == []


@pytest.mark.parametrize("signalled", ["worker", "parent"])
def test_a_worker_that_is_busy_building_ends_by_a_signal(signalled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to itself, or the death of its parent: neither waits until its event loop is free."""
    broken_worker("Worker._build", f"(open({str(tmp_path / 'busy')!r}, 'w').close(), time.sleep(600))", tmp_path, monkeypatch)
    with ScriptedServer(slow) as server:
        root = Path(__file__).parents[2]
        parent = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.url, str(tmp_path / "spill")], cwd=root, stderr=subprocess.DEVNULL
        )
        try:
            until((tmp_path / "busy").exists)
            workers = workers_of(parent.pid)
            assert len(workers) == 1
            if signalled == "worker":
                workers[0].terminate()
                until(lambda: parent.poll() is not None, 5.0)
        finally:
            parent.kill()
            parent.wait()
        until(lambda: not any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers), 5.0)


def test_what_a_dying_machine_left_raises_only_what_is_documented(tmp_path: Path) -> None:
    spilled(tmp_path, answer(3))
    good = spill_path(tmp_path, 0).read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(300):
        bad = bytearray(good)
        for at in rng.integers(0, len(bad), 4):
            bad[at] = rng.integers(0, 256)
        spill_path(tmp_path, 0).write_bytes(bad)
        with contextlib.suppress(LoadError, OSError):
            assert len(recover(tmp_path)) <= 1
    (tmp_path / "worker-x.spill").write_bytes(b"")
    with pytest.raises(LoadError, match="ValueError"):
        recover(tmp_path)


def test_a_worker_that_stands_still_is_given_up_and_leaves_what_it_saw(tmp_path: Path) -> None:
    """SIGSTOP, then a stop: the harness comes back in seconds, and nothing is left running."""
    began: list[float] = []

    def stop() -> str | None:
        if len(server.exchanges) > 20 and spill_path(tmp_path / "spill", 0).stat().st_size > 2000:
            if not began:
                for worker in workers_of(os.getpid()):
                    worker.send_signal(signal.SIGSTOP)
                began.append(monotonic())
            return "Ctrl-C"
        return None

    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="did not finish"):
        drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=2), duration_s=60.0, should_stop=stop)
    assert monotonic() - began[0] < 40
    assert workers_of(os.getpid()) == []
    assert len(recover(tmp_path / "spill")) > 5


# --- loads that would not fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [1e-308, 1e-9, 0.0, -1.0, float("nan")])
def test_gaps_of_nothing_are_refused(shape: float) -> None:
    with pytest.raises(UsageError, match=r"burstiness must be at least 0\.01"):
        arrival_offsets_s(LoadSpec(kind="open", request_rate=5.0, arrivals="gamma", burstiness=shape), 10.0, 1)


@pytest.mark.parametrize(
    "load",
    [
        LoadSpec(kind="open", request_rate=1e6, arrivals="poisson"),
        LoadSpec(kind="open", request_rate=1e6, arrivals="constant"),
        LoadSpec(kind="open", arrivals="burst", num_prompts=MOST_ARRIVALS + 1),
        LoadSpec(kind="open", request_rate=1.0, arrivals="poisson", num_prompts=10**9),
        LoadSpec(kind="open", arrivals="poisson", stages=(Stage(start=0.0, end=1e6, duration_s=100.0),)),
    ],
)
def test_more_arrivals_than_can_be_drawn_are_refused_with_both_numbers(load: LoadSpec, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\d{2},\d{3},\d{3} requests would come.* 20,000,000 are the most|1,000,000,000"):
        arrival_offsets_s(load, 100.0, 1)
    with pytest.raises(UsageError, match="are the most"):
        drive("http://127.0.0.1:9", tmp_path, load=load, duration_s=100.0)


def test_the_suite_knows_the_same_bound() -> None:
    assert rules.MOST_ARRIVALS == MOST_ARRIVALS
