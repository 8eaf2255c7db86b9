"""Attaching to an endpoint: what is read, what is refused, and that the key stays secret."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from bench import codec
from bench.clock import FakeClock
from bench.errors import TargetError, UsageError
from bench.records import EngineHandle, Target, Window
from bench.runners import openai
from bench.runners.base_url import api_base
from bench.runners.openai import AttachedEngine, OpenAIRunner
from bench.runners.process import free_port
from bench.testing.cases import case, request
from tests.runners.endpoint import Endpoint, Page, models, page

KEY = "sk-very-secret-1234"
PROPS = {"total_slots": 4, "default_generation_settings": {"n_ctx": 512}, "build_info": "b9-abc"}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def attach(base_url: str, timeout_s: float = 5.0, **changes: Any) -> AttachedEngine:
    wanted = case(engine="openai", base_url=base_url, **changes)
    return OpenAIRunner(FakeClock()).start(request(Path("unused"), wanted, timeout_s=timeout_s))


def refusal(pages: dict[str, Page | list[Page]], **changes: Any) -> TargetError:
    with Endpoint(pages) as endpoint, pytest.raises(TargetError) as caught:
        attach(endpoint.url, **changes)
    assert KEY not in str(caught.value) + str(caught.value.hint)
    assert caught.value.hint
    return caught.value


def test_an_endpoint_is_read_and_left_alone() -> None:
    meta = {"n_vocab": 49152, "n_params": 7, "ftype": "Q4_1", "n_ctx_train": 2048}
    pages: dict[str, Page | list[Page]] = {
        "/v1/models": models("other", "tiny", owned_by="llamacpp", meta=meta, max_model_len=4096),
        "/version": page({"version": "0.9.1"}),
        "/props": page(PROPS),
        "/metrics": page(b"llamacpp:prompt_tokens_total 3\nllamacpp:tokens_predicted_total 5\n"),
    }
    with Endpoint(pages) as endpoint, attach(endpoint.url, protocol="openai-completions") as engine:
        assert engine.target == Target(
            base_url=f"{endpoint.url}/v1", protocol="openai-completions", model="tiny", token_ids=True, vocab_size=49152
        )
        assert engine.handle == EngineHandle(
            name="openai",
            version="0.9.1",
            build="b9-abc",
            command=(),
            env={},
            pids=(),
            settings={
                "n_vocab": 49152,
                "n_params": 7,
                "n_ctx_train": 2048,
                "ftype": "Q4_1",
                "max_model_len": 4096,
                "served_by": "llamacpp",
                "n_slots": 4,
                "n_ctx_slot": 512,
            },
            precision="q4_1",
            start_s=0.0,
            log_path=None,
        )
        assert engine.server_metrics() == {"prompt_tokens_total": 3.0, "generation_tokens_total": 5.0}
        assert engine.failure() is None
        assert engine.log_tail() == ""


def test_what_an_endpoint_does_not_tell_is_absent() -> None:
    with Endpoint({"/v1/models": models("tiny")}) as endpoint, attach(endpoint.url) as engine:
        assert (engine.handle.version, engine.handle.build, engine.handle.precision) == (None, None, None)
        assert engine.handle.settings == {}
        assert engine.server_metrics() == {}
        assert not engine.target.token_ids


def test_an_alias_is_a_name() -> None:
    with Endpoint({"/v1/models": models("long/name", aliases=["tiny"])}) as endpoint, attach(endpoint.url) as engine:
        assert engine.target.model == "tiny"


def test_a_server_without_a_model_list_is_taken_as_it_is() -> None:
    with Endpoint({}) as endpoint, attach(endpoint.url) as engine:
        assert engine.handle.settings == {"model_list": "none (HTTP 404)"}
        assert engine.target.model == "tiny"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_version_in_the_url_may_be_left_out(suffix: str) -> None:
    pages: dict[str, Page | list[Page]] = {"/v1/models": models("tiny"), "/version": page({"version": "1"})}
    with Endpoint(pages) as endpoint, attach(endpoint.url + suffix) as engine:
        assert engine.target.base_url == f"{endpoint.url}/v1"
        assert engine.handle.version == "1"


def test_other_versions_and_paths_are_kept() -> None:
    with Endpoint({"/api/paas/v4/models": models("tiny")}) as endpoint, attach(f"{endpoint.url}/api/paas/v4") as engine:
        assert engine.target.base_url == f"{endpoint.url}/api/paas/v4"
        assert ("/api/paas/version", None) in endpoint.asked


def test_a_model_that_is_not_served_is_named_with_its_nearest() -> None:
    error = refusal({"/v1/models": models("tiny-7b-chat", "huge")}, model="tiny-7b")
    assert "does not serve 'tiny-7b'. Did you mean 'tiny-7b-chat'?" in str(error)
    assert error.hint == "it serves: tiny-7b-chat, huge"


def test_a_long_model_list_is_cut() -> None:
    error = refusal({"/v1/models": models(*(f"model-{number}" for number in range(30)))}, model="zzz")
    assert "and 22 more" in str(error.hint)


def test_no_model_at_all() -> None:
    assert refusal({"/v1/models": models()}).hint == "it serves: no model at all"


def test_a_key_that_is_missing_is_asked_for() -> None:
    error = refusal({"/v1/models": page({"error": "no"}, 401)})
    assert "answers 401: it wants an API key, and none is set" in str(error)
    assert "OPENAI_API_KEY" in str(error.hint)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    error = refusal({"/v1/models": page({"error": f"bad key {KEY}"}, status)}, api_key_env="MY_KEY")
    assert f"answers {status}: it does not accept the API key in MY_KEY" in str(error)


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "MY_KEY"])
def test_the_key_is_sent_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, KEY)
    chosen: dict[str, Any] = {"api_key_env": variable} if variable == "MY_KEY" else {}
    with Endpoint({"/v1/models": models("tiny"), "/metrics": page(b"")}) as endpoint, attach(endpoint.url, **chosen) as engine:
        engine.server_metrics()
        assert {key for _, key in endpoint.asked} == {f"Bearer {KEY}"}
        assert engine.target.api_key_env == variable
        assert KEY.encode() not in codec.encode(engine.handle) + codec.encode(engine.target)
        assert KEY not in repr(engine.__dict__)


def test_a_key_in_an_error_page_is_blotted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    error = refusal({"/v1/models": page(f"failed for Bearer {KEY}".encode(), 500)})
    assert "HTTP 500: failed for Bearer ***" in str(error)


def test_a_named_variable_that_is_not_set_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(UsageError, match="MY_KEY"):
        OpenAIRunner().check(case(base_url="http://127.0.0.1:1", api_key_env="MY_KEY"))


def test_a_loading_server_is_waited_for() -> None:
    pages: dict[str, Page | list[Page]] = {"/v1/models": [page({}, 503), page({}, 503), models("tiny")]}
    with Endpoint(pages) as endpoint, attach(endpoint.url) as engine:
        assert engine.handle.start_s == 1.0


def test_a_server_that_loads_for_ever_is_given_up_on() -> None:
    assert "still answers 503 (loading): Loading model" in str(refusal({"/v1/models": page(b"Loading  model", 503)}))


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b'{"data": 3}', b"\xff\xfe", b""])
def test_what_is_no_model_list_is_said(body: bytes) -> None:
    assert "is not an OpenAI model list" in str(refusal({"/v1/models": page(body)}))


def test_a_redirect_is_reported() -> None:
    error = refusal({"/v1/models": page(b"", 302, Location="https://elsewhere.example/v1/models")})
    assert "redirects to https://elsewhere.example/v1/models" in str(error)


def test_nothing_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(TargetError, match=f"nothing listens at {url}"):
        attach(url)


@pytest.mark.parametrize("url", ["http://192.0.2.1:8000", "https://192.0.2.1", "http://llm.example"])
def test_a_proxy_that_is_not_there_is_the_one_that_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = f"127.0.0.1:{free_port()}"
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://user:pw-secret@{proxy}")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(TargetError, match=f"can't be reached through the proxy {proxy}") as caught:
        attach(url)
    assert "no_proxy" in str(caught.value.hint)
    assert "pw-secret" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("proxy", ["http://[::1", "::::", "socks5://127.0.0.1:1"])
def test_a_proxy_that_can_not_be_used_is_refused_by_its_variable(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(UsageError, match="http_proxy names a proxy"):
        attach("http://192.0.2.1:8000")


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_ASK_LIMIT_S", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(TargetError, match="gave no whole answer within"):
            attach(f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_a_host_that_is_not_known() -> None:
    with pytest.raises(TargetError, match=r"host name 'no-such-host\.invalid' is not known"):
        attach("http://no-such-host.invalid")


def test_https_to_a_plain_server() -> None:
    with Endpoint({}) as endpoint, pytest.raises(TargetError) as caught:
        attach(endpoint.url.replace("http:", "https:"))
    assert "http" in str(caught.value.hint)


@pytest.mark.parametrize("url", [None, "", "127.0.0.1:80", "ftp://host", "http://", "http://host:99999", "http://[::1"])
def test_what_is_no_url_is_refused(url: str | None) -> None:
    with pytest.raises(UsageError):
        OpenAIRunner().check(case(base_url=url))


@pytest.mark.parametrize("url", [f"http://me:{KEY}@host", f"http://host/?key={KEY}", f"http://host/#{KEY}"])
def test_a_secret_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        api_base(url)
    assert KEY not in str(caught.value) + str(caught.value.hint)


def test_it_takes_no_engine_arguments() -> None:
    with pytest.raises(UsageError, match="unknown engine argument 'threads'"):
        OpenAIRunner().check(case(base_url="http://host", engine_args={"threads": 1}))


def test_only_the_mock_engine_is_asked_for_its_truth() -> None:
    window = Window(t0_ns=5, t1_ns=9)
    truth = page({"lag_ms": {"n": 3, "p99": 0.25}})
    for owner, lag in (("tokjoule", {"mock_lag_p99_ms": 0.25}), ("vllm", {})):
        with (
            Endpoint({"/v1/models": models("tiny", owned_by=owner), "/truth": truth}) as endpoint,
            attach(endpoint.url) as engine,
        ):
            assert engine.server_metrics() == {}
            assert engine.server_metrics(window) == lag
            assert (("/truth?from_ns=5&to_ns=9", None) in endpoint.asked) == bool(lag)


def test_a_truth_without_samples_is_no_lag() -> None:
    pages: dict[str, Page | list[Page]] = {
        "/v1/models": models("tiny", owned_by="tokjoule"),
        "/truth": page({"lag_ms": {"n": 0, "p99": None}}),
    }
    with Endpoint(pages) as endpoint, attach(endpoint.url) as engine:
        assert engine.server_metrics(Window(t0_ns=5, t1_ns=9)) == {}
