"""GETs that fail in every way, as values."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.runners.http import Answer, NoAnswer, get
from bench.runners.process import free_port
from tests.runners.endpoint import Endpoint, page


@contextmanager
def listener() -> Iterator[str]:
    """A port that takes connections (into its backlog) and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        yield f"//127.0.0.1:{silent.getsockname()[1]}/"


def test_an_answer_of_any_status_is_an_answer() -> None:
    with Endpoint({"/a": page({"x": 1}), "/b": page(b"<html>", 500), "/c": page([1])}) as endpoint:
        good, bad, array = (get(f"{endpoint.url}/{name}") for name in "abc")
        missing = get(f"{endpoint.url}/none")
    assert isinstance(good, Answer)
    assert isinstance(bad, Answer)
    assert isinstance(array, Answer)
    assert isinstance(missing, Answer)
    assert (good.status, good.json(), good.json_object()) == (200, {"x": 1}, {"x": 1})
    assert (bad.status, bad.body, bad.json(), bad.json_object()) == (500, b"<html>", None, {})
    assert (array.json(), array.json_object()) == ([1], {})
    assert missing.status == 404


def test_a_redirect_is_not_followed() -> None:
    with Endpoint({"/a": page(b"", 307, Location="http://127.0.0.1:1/b"), "/b": page({})}) as endpoint:
        answer = get(f"{endpoint.url}/a", headers={"Authorization": "Bearer secret"})
        assert isinstance(answer, Answer)
        assert (answer.status, answer.location) == (307, "http://127.0.0.1:1/b")
        assert [path for path, _ in endpoint.asked] == ["/a"]


def test_nothing_listens() -> None:
    answer = get(f"http://127.0.0.1:{free_port()}/")
    assert isinstance(answer, NoAnswer)
    assert answer.kind == "refused"


def test_silence_times_out() -> None:
    with listener() as address:
        answer = get(f"http:{address}", timeout_s=0.1)
    assert isinstance(answer, NoAnswer)
    assert answer.kind == "timeout"


def test_an_unknown_host() -> None:
    answer = get("http://no-such-host.invalid/")
    assert isinstance(answer, NoAnswer)
    assert answer.kind == "dns"


def test_tls_to_a_plain_server() -> None:
    with Endpoint({}) as endpoint:
        answer = get(endpoint.url.replace("http:", "https:"), timeout_s=5.0)
    assert isinstance(answer, NoAnswer)
    assert answer.kind in ("tls", "broken")


def test_what_is_not_http_is_broken() -> None:
    with Endpoint({"/": page(b"", 200, **{"Content-Length": "10"})}) as endpoint:
        answer = get(endpoint.url + "/", timeout_s=5.0)
    assert isinstance(answer, NoAnswer)
    assert answer.kind == "broken"


def test_loopback_never_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Endpoint({"/a": page({})}) as endpoint:
        assert isinstance(get(f"{endpoint.url}/a"), Answer)
    elsewhere = get("http://192.0.2.1/a", timeout_s=5.0)  # a documentation address: only the (closed) proxy is asked
    assert isinstance(elsewhere, NoAnswer)
    assert elsewhere.kind == "refused"
    assert elsewhere.proxy is not None
