"""Endpoints, keys and URLs that are wrong in every way: said in plain words, in time, and never with the key."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import codec
from bench.clock import SYSTEM, FakeClock
from bench.errors import BenchError, TargetError, UsageError
from bench.identity import digest
from bench.records import Window
from bench.runners import counters, http, openai
from bench.runners.api_key import read_key
from bench.runners.base_url import api_base
from bench.runners.http import Answer, NoAnswer, get
from bench.runners.openai import AttachedEngine, OpenAIRunner
from bench.runners.prometheus import parse, project_metrics
from bench.testing.cases import case, request
from tests.runners.endpoint import Endpoint, Page, models, page

KEY = "sk-SECRET123"
BAD_KEYS = [f"{KEY}\n{KEY}", f"{KEY} x", f"{KEY}\x00", f"{KEY}\x1b", f"{KEY}é", f"{KEY}€", f"{KEY}\udcff", f"{KEY}\x7f"]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def attach(base_url: str, timeout_s: float = 5.0, **changes: Any) -> AttachedEngine:
    wanted = case(engine="openai", base_url=base_url, **changes)
    return OpenAIRunner(FakeClock()).start(request(Path("unused"), wanted, timeout_s=timeout_s))


@contextmanager
def dripping(beginning: bytes, period_s: float = 0.03) -> Iterator[str]:
    """Answers every request with `beginning` and then a byte each `period_s`, for as long as the client stays."""
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(beginning)
                while not over.wait(period_s):
                    connection.sendall(b"x")
            except OSError:
                return

    def accept(server: socket.socket) -> None:
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=drip, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()


class TestKey:
    @pytest.mark.parametrize("around", ["{}\n", " {}", "\t{}\r\n", "{}"])
    def test_white_space_around_it_is_no_part_of_it(self, monkeypatch: pytest.MonkeyPatch, around: str) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", around.format(KEY))
        with Endpoint({"/v1/models": models("tiny")}) as endpoint, attach(endpoint.url) as engine:
            engine.server_metrics()
            assert {key for _, key in endpoint.asked} == {f"Bearer {KEY}"}

    @pytest.mark.parametrize("key", [key for key in BAD_KEYS if "\0" not in key])
    @pytest.mark.parametrize("variable", [None, "MY_KEY"])
    def test_what_no_header_carries_is_named_by_its_variable(
        self, monkeypatch: pytest.MonkeyPatch, key: str, variable: str | None
    ) -> None:
        monkeypatch.setenv(variable or "OPENAI_API_KEY", key)
        with Endpoint({"/v1/models": models("tiny")}) as endpoint:
            with pytest.raises(UsageError, match=variable or "OPENAI_API_KEY") as caught:
                attach(endpoint.url, api_key_env=variable)
            assert endpoint.asked == []
        assert KEY not in f"{caught.value} {caught.value.hint} {caught.value.__cause__} {caught.value.__context__}"

    def test_only_white_space_is_no_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", " \n")
        assert read_key("OPENAI_API_KEY") is None
        with pytest.raises(UsageError, match="is not set"):
            OpenAIRunner().check(case(engine="openai", base_url="http://127.0.0.1:1", api_key_env="OPENAI_API_KEY"))

    def test_a_server_that_repeats_it_anywhere_does_not_get_it_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        answers: list[Page] = [
            page(KEY.encode(), 500),
            page(b"", 302, Location=f"http://x/?key={KEY}"),
            models(f"its name is {KEY}"),
            page(KEY.encode()),
        ]
        for answer in answers:
            with Endpoint({"/v1/models": answer}) as endpoint, pytest.raises(TargetError) as caught:
                attach(endpoint.url)
            assert KEY not in f"{caught.value} {caught.value.hint}"
            assert "***" in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://127.0.0.1/é", "path"),
        ("http://127.0.0.1/a b", "path"),
        ("http://127.0.0.1/a\x7f", "path"),
        ("http://127.0.0.1/\udcff", "path"),
        ("http://..:80", "host"),
        ("http://a..b", "host"),
        (f"http://{'a' * 80}.example", "host"),
        (f"http://{'é' * 80}.example", "host"),
        ("http://\udcff.example", "host"),
        ("http://exämple.org", "xn--exmple-cua.org"),
        ("http://127.0.0.1:80/\nx", "white space or a control character"),
    ],
)
def test_a_url_that_no_request_can_carry_is_refused_by_its_part(url: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        api_base(url)
    assert part in f"{caught.value} {caught.value.hint}"
    assert caught.value.hint


@pytest.mark.parametrize("host", ["..", "a" * 80, "a..b"])
def test_a_get_from_an_impossible_host_is_a_value(host: str) -> None:
    assert isinstance(get(f"http://{host}:80/"), NoAnswer)


class TestAnswers:
    @pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000, b"1" * 100_000, b"\xff", b'{"data": [{"id"'])
    def test_what_can_not_be_decoded_is_no_model_list(self, body: bytes) -> None:
        assert Answer(status=200, body=body).json() is None
        with Endpoint({"/v1/models": page(body)}) as endpoint, pytest.raises(TargetError, match="not an OpenAI model list"):
            attach(endpoint.url)

    @pytest.mark.parametrize("number", ["1" * 400, "9007199254740993", "-1", "0", "1e999", "NaN", "true", '"7"', "[]"])
    def test_counts_that_can_not_be_are_absent(self, number: str) -> None:
        listed = '{"data":[{"id":"tiny","max_model_len":N,"meta":{"n_vocab":N,"n_params":N,"n_ctx_train":N}}]}'
        props = '{"total_slots":N,"default_generation_settings":{"n_ctx":N}}'
        pages: dict[str, Page | list[Page]] = {
            "/v1/models": page(listed.replace("N", number).encode()),
            "/props": page(props.replace("N", number).encode()),
        }
        with Endpoint(pages) as endpoint, attach(endpoint.url, protocol="openai-completions") as engine:
            assert engine.handle.settings == {}
            assert engine.target.vocab_size is None
            codec.encode(engine.handle)

    def test_the_largest_exact_count_is_one(self) -> None:
        with Endpoint({"/v1/models": models("tiny", max_model_len=1 << 53)}) as endpoint, attach(endpoint.url) as engine:
            assert engine.handle.settings == {"max_model_len": 1 << 53}

    def test_every_text_kept_can_be_hashed_and_written(self) -> None:
        half = b'"x\\ud800y"'
        pages: dict[str, Page | list[Page]] = {
            "/v1/models": page(b'{"data":[{"id":"tiny","owned_by":%s,"aliases":[%s],"meta":{"ftype":%s}}]}' % (half, half, half)),
            "/version": page(b'{"version":%s}' % half),
            "/props": page(b'{"build_info":%s,%s:1}' % (half, half)),
        }
        with Endpoint(pages) as endpoint, attach(endpoint.url) as engine:
            assert engine.handle.settings == {"ftype": "x\ufffdy", "served_by": "x\ufffdy"}
            assert (engine.handle.version, engine.handle.build) == ("x\ufffdy", "x\ufffdy")
            assert len(digest(engine.handle.settings)) == 16
            codec.encode(engine.handle)

    def test_whole_pairs_stay(self) -> None:
        assert Answer(status=200, body=b'["\\ud83d\\ude00", "\xc3\xa9"]').json() == ["😀", "é"]

    def test_long_texts_are_cut(self) -> None:
        pages: dict[str, Page | list[Page]] = {
            "/v1/models": models("tiny", owned_by="o" * 100_000),
            "/version": page({"version": "v" * 100_000}),
        }
        with Endpoint(pages) as endpoint, attach(endpoint.url) as engine:
            assert len(codec.encode(engine.handle)) < 2000
        with Endpoint({"/v1/models": models(*(str(n) * 5000 for n in range(20)))}) as endpoint:
            with pytest.raises(TargetError) as caught:
                attach(endpoint.url)
            assert len(str(caught.value.hint)) < 4000

    def test_one_that_never_ends_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http, "_LIMIT_B", 1 << 20)
        with Endpoint({"/a": page(b"x" * (1 << 20)), "/b": page(b"x" * ((1 << 20) + 1))}) as endpoint:
            fits, beyond = get(f"{endpoint.url}/a"), get(f"{endpoint.url}/b")
        assert isinstance(fits, Answer)
        assert len(fits.body) == 1 << 20
        assert isinstance(beyond, NoAnswer)
        assert "longer than 1 MiB" in beyond.detail

    def test_counters_beyond_all_numbers_are_absent(self) -> None:
        text = "vllm:prompt_tokens_total 1e308\n" * 3 + "vllm:generation_tokens_total 5\n"
        assert project_metrics(parse(text)) == {"generation_tokens_total": 5.0}

    @pytest.mark.parametrize("lag", ["1" * 400, "1e999", "NaN", "-1", "true", '"3"', "null"])
    def test_a_lag_that_is_none_is_absent(self, lag: str) -> None:
        with Endpoint({"/truth": page(b'{"lag_ms":{"p99":%s}}' % lag.encode())}) as endpoint:
            assert counters.read_metrics(endpoint.url, Window(t0_ns=0, t1_ns=1, kind="steady"), mock=True) == {}


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


class TestTime:
    @pytest.mark.parametrize(
        "beginning", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", HEAD, b"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n"]
    )
    def test_the_limit_is_for_the_whole_exchange(self, beginning: bytes) -> None:
        with dripping(beginning) as url:
            began_s = time.monotonic()
            answer = get(url, timeout_s=0.3)
            took_s = time.monotonic() - began_s
            deadline_s = time.monotonic() + 10.0
            while any(thread.name == "get" for thread in threading.enumerate()):
                assert time.monotonic() < deadline_s, "the server still holds a thread"
                time.sleep(0.01)
        assert isinstance(answer, NoAnswer)
        assert (answer.kind, answer.detail) == ("timeout", "no whole answer within 0.3 s")
        assert took_s >= 0.3

    def test_attaching_keeps_to_the_start_time(self) -> None:
        with dripping(HEAD) as url, pytest.raises(TargetError, match=r"no whole answer within 0\.2 s"):
            attach(url, timeout_s=0.2)

    def test_pages_that_need_not_be_share_one_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(openai, "_OPTIONAL_LIMIT_S", 0.4)
        asked: list[tuple[str, float]] = []

        def slow(url: str, *, timeout_s: float, headers: dict[str, str]) -> Answer | NoAnswer:
            asked.append((url.rpartition("/")[2], timeout_s))
            if url.endswith("/models"):
                return Answer(status=200, body=models("tiny")[1])
            clock.sleep(timeout_s)
            return NoAnswer(kind="timeout", detail="no whole answer")

        clock = FakeClock()
        monkeypatch.setattr(openai, "get", slow)
        wanted = case(engine="openai", base_url="http://127.0.0.1:1")
        engine = OpenAIRunner(clock).start(request(Path("unused"), wanted, timeout_s=60.0))
        assert asked == [("models", 10.0), ("version", pytest.approx(0.4))]
        assert engine.handle.start_s == pytest.approx(0.4)


def test_no_error_of_an_endpoint_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever bytes come instead of an answer, attaching ends with an error for a person."""
    monkeypatch.setattr(openai, "_ASK_LIMIT_S", 0.3)
    for beginning in (b"\x00" * 70_000, b"HTTP/1.1 999999 X\r\n\r\n", b"HTTP/1.1 200\r\n" + b"a: b\r\n" * 500, b"\xff\xfe HTTP"):
        with dripping(beginning) as url, pytest.raises(BenchError) as caught:
            OpenAIRunner(SYSTEM).start(request(Path("unused"), case(engine="openai", base_url=url), timeout_s=1.0))
        assert caught.value.hint
