"""What a person is told when requests fail: how many, how, in whose words, and what to try next."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import Case, Outcome, Telemetry
from bench.stats import Trend
from bench.timing import measure
from bench.timing.failures import MAX_QUOTE, quoted
from bench.timing.load_rules import moved
from tests.timing.builders import HEALTHY, Request, make_case, make_load, make_log, steady, window_ms

ATTACHED = make_case(base_url="http://host:8000/v1")


def failed(outcome: Outcome, error: str | None, count: int = 5) -> list[Request]:
    return [Request(sent_ms=10.0 * i, outcome=outcome, finish=None, error=error) for i in range(count)]


def told(requests: list[Request], *, status: int = 200, case: Case = ATTACHED) -> str:
    log = make_log(requests)
    log = replace(log, http_status=np.where(log.outcome == Outcome.OK, 200, status))
    (reason,) = measure(case, make_load(log, None), Telemetry(), {}, {}).reasons
    assert reason.code == "no_window"
    return reason.message


@pytest.mark.parametrize(("outcome", "status", "error", "words", "step"), [
    (Outcome.CONNECT, -1, "connection lost before any answer: closed by the server", "no connection: connection lost", "curl -i"),
    (Outcome.HTTP, 500, "HTTP 500: out of memory", "HTTP 500: out of memory", "curl -i http://host:8000/v1/models"),
    (Outcome.HTTP, 500, None, "HTTP 500", "curl -i"),
    (Outcome.HTTP, 401, "HTTP 401: no key", "HTTP 401: no key", "--api-key-env"),
    (Outcome.HTTP, 404, "HTTP 404: no such model", "no such model", "--model"),
    (Outcome.HTTP, 429, "HTTP 429: queue is full", "queue is full", "--batch-size"),
    (Outcome.PROTOCOL, 200, "the answer is not an event stream: <html>", "can't be read: the answer is not", "--protocol"),
    (Outcome.TIMEOUT, -1, None, "no end within the request timeout", "--request-timeout"),
])  # fmt: skip
def test_a_load_that_never_began_names_its_most_frequent_failure(
    outcome: Outcome, status: int, error: str | None, words: str, step: str
) -> None:
    text = told(failed(outcome, error), status=status)
    assert text.startswith("the load ended before the window began: 5 of 5 requests failed, most often (5): ")
    assert words in text
    assert step in text.split("Next: ")[1]


def test_the_most_frequent_failure_is_named_not_the_first() -> None:
    rare, often = failed(Outcome.TRUNCATED, "broke", 2), failed(Outcome.STREAM_ERROR, "no memory", 3)
    assert "5 of 6 requests failed, most often (3): an error inside the stream: no memory" in told([steady(0), *rare, *often])
    log = make_log([*rare, *often, *(steady(100.0 + i) for i in range(5))])
    reasons = measure(make_case(), make_load(log, window_ms(0, 10_000)), Telemetry(), {}, {}).reasons
    text = next(r.message for r in reasons if r.code == "errors")
    assert text == "5 of 10 requests failed (50.0%), most often (3): an error inside the stream: no memory"


def test_a_failure_of_our_own_engine_points_at_its_log() -> None:
    assert "engine's log" in told(failed(Outcome.CONNECT, None), case=make_case())


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("unix:/run/llm.sock", "curl -i --unix-socket /run/llm.sock http://localhost/v1/models"),
        ("unix:/run/my%20llm.sock:/api/v1", "curl -i --unix-socket '/run/my llm.sock' http://localhost/api/v1/models"),
    ],
)
def test_a_socket_is_tried_by_hand_with_a_command_that_works(url: str, command: str) -> None:
    assert told(failed(Outcome.CONNECT, None), case=make_case(base_url=url)).endswith(command)


def test_without_failures_it_says_what_there_was() -> None:
    assert told([]).endswith("no request was sent")
    assert "5 were cut off; none of them was answered" in told(failed(Outcome.CANCELLED, None))
    assert "1 of 1 requests succeeded" in told([steady(0)])


@pytest.mark.parametrize("url", ["http://me:pass@host/v1", "http://host/v1?key=pass"])
def test_no_password_is_shown(url: str) -> None:
    assert "pass" not in told(failed(Outcome.CONNECT, None), case=make_case(base_url=url))


@pytest.mark.parametrize("said", ["a\x1b[31mb\nc\x00d", "x" * 1000, "<html>\r\n<body>" * 50, "\u202eevil"])
def test_a_servers_words_are_printable_and_short(said: str) -> None:
    assert quoted(said).isprintable()
    assert 0 < len(quoted(said)) <= MAX_QUOTE


def test_what_nobody_said_is_nothing() -> None:
    assert quoted(None) == ""


def test_a_late_loop_is_told_once() -> None:
    requests = [steady(90.0 * i, gap_ms=20 + i % 7) for i in range(100)]
    health = replace(HEALTHY, loop_lag_p99_ms=15.0, coalesced_read_share=0.5)
    reasons = measure(make_case(), make_load(make_log(requests), window_ms(0, 10_000), health), Telemetry(), {}, {}).reasons
    (text,) = [r.message for r in reasons if r.code == "client_saturated"]
    assert text.count("late by") == 1
    assert all(part in text for part in ("TTFT", "ICL", "50% of reads"))


@pytest.mark.parametrize(("change", "words"), [
    (-2.945, "fell by more than the mean across the window"), (3.0, "rose by more than the mean across the window"),
    (-0.5, "moved by -50.0% across the window (99% interval -60.0% to -40.0%)"),
])  # fmt: skip
def test_a_trend_of_more_than_the_mean_is_told_in_words(change: float, words: str) -> None:
    assert moved(Trend(change=change, low=change - 0.1, high=change + 0.1)) == words
