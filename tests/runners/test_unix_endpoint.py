"""Attaching to an endpoint that listens on a socket file."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.clock import FakeClock
from bench.errors import TargetError, UsageError
from bench.runners.base_url import api_base
from bench.runners.http import Answer, NoAnswer, get
from bench.runners.openai import AttachedEngine, OpenAIRunner
from bench.testing.cases import case, request
from tests.runners.endpoint import Endpoint, Page, models, page


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: those of `tmp_path` are longer than a socket's may be on some systems."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def attach(base_url: str) -> AttachedEngine:
    return OpenAIRunner(FakeClock()).start(request(Path("unused"), case(engine="openai", base_url=base_url), timeout_s=5.0))


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("unix:/run/llm.sock", "unix:/run/llm.sock:/v1"),
        ("unix:/run/llm.sock:", "unix:/run/llm.sock:/v1"),
        ("unix:/run/llm.sock:/v1/", "unix:/run/llm.sock:/v1"),
        ("unix:/run/llm.sock:/openai", "unix:/run/llm.sock:/openai/v1"),
        ("unix:/run/llm.sock:/api/v3", "unix:/run/llm.sock:/api/v3"),
        ("unix:///run/llm.sock", "unix:/run/llm.sock:/v1"),
        ("unix:/run/v1", "unix:/run/v1:/v1"),
        ("unix:/run/a%3Ab%20c@1.sock", "unix:/run/a%3Ab%20c@1.sock:/v1"),
    ],
)
def test_the_url_of_a_socket(url: str, base: str) -> None:
    assert api_base(url) == base
    assert api_base(base) == base


@pytest.mark.parametrize(
    "url",
    ["unix:", "unix:llm.sock", "unix://run/llm.sock", "unix:/", "unix:/a:b", "unix:/a?key=1", "unix:/a#b", "unix:/a:/\u00e9"],
)
def test_what_names_no_socket_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        OpenAIRunner().check(case(base_url=url))
    assert caught.value.hint


def test_a_path_that_no_system_call_takes_is_refused_before_anything_is_sent() -> None:
    longest = "/tmp/" + "x" * 98
    assert api_base(f"unix:{longest}").startswith(f"unix:{longest}:")
    with pytest.raises(UsageError, match=r"has 305 bytes: .* at most") as caught:
        api_base("unix:/tmp/" + "\u00e9" * 150)
    assert "symbolic link" in str(caught.value.hint)


def test_a_socket_is_read_like_any_endpoint(folder: Path) -> None:
    pages: dict[str, Page | list[Page]] = {
        "/v1/models": models("tiny", n_vocab=7),
        "/version": page({"version": "0.9.1"}),
        "/metrics": page(b"vllm:prompt_tokens_total 3\n"),
    }
    with Endpoint(pages, socket_path=folder / "llm.sock") as endpoint, attach(endpoint.url) as engine:
        assert engine.target.base_url == f"{endpoint.url}:/v1"
        assert engine.handle.version == "0.9.1"
        assert engine.server_metrics() == {"prompt_tokens_total": 3.0}


def test_a_prefix_is_kept(folder: Path) -> None:
    with Endpoint({"/llm/v1/models": models("tiny")}, socket_path=folder / "a:b.sock") as endpoint:
        attach(f"unix:{folder}/a%3Ab.sock:/llm")
        assert [path for path, _ in endpoint.asked] == ["/llm/v1/models", "/llm/version", "/llm/props"]


def test_no_proxy_stands_before_a_socket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with Endpoint({"/a": page({})}, socket_path=folder / "s") as endpoint:
        assert isinstance(get(f"{endpoint.url}:/a"), Answer)


def test_a_model_that_is_not_served_is_named(folder: Path) -> None:
    with (
        Endpoint({"/v1/models": models("huge")}, socket_path=folder / "s") as endpoint,
        pytest.raises(TargetError, match=rf"^{endpoint.url} does not serve 'tiny'"),
    ):
        attach(endpoint.url)


def test_a_socket_that_is_not_there(folder: Path) -> None:
    with pytest.raises(TargetError, match=rf"^there is no socket at unix:{folder}/none$"):
        attach(f"unix:{folder}/none")


@pytest.mark.parametrize("leave", ["socket", "file", "folder"])
def test_a_path_where_nobody_listens(folder: Path, leave: str) -> None:
    path = folder / "left"
    if leave == "socket":
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(path))
    elif leave == "file":
        path.touch()
    else:
        path.mkdir()
    with pytest.raises(TargetError, match=rf"unix:{path}") as caught:
        attach(f"unix:{path}")
    assert "https" not in str(caught.value.hint)


def test_a_socket_that_takes_connections_and_says_nothing(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "s"))
        silent.listen()
        answer = get(f"unix:{folder}/s:/v1/models", timeout_s=0.1)
    assert isinstance(answer, NoAnswer)
    assert answer.kind == "timeout"


@pytest.fixture
def a_user() -> Iterator[None]:
    """Root, who may connect anywhere, is somebody else for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


def test_a_socket_of_somebody_else(a_user: None) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as own, Endpoint({}, socket_path=Path(own) / "s") as endpoint:
        Path(own, "s").chmod(0)
        with pytest.raises(TargetError, match=r"the system refuses a connection to .*Permission denied"):
            attach(endpoint.url)
