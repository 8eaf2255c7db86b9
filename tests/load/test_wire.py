"""Real sockets, hostile answers: each gives the right chunks and the right outcome."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path
from shutil import which

import numpy as np
import pytest

from bench.load import WireLoad
from bench.records import MISSING, LengthSpec, LoadResult, LoadSpec, Outcome
from tests.load.scripted import (
    DONE,
    HEAD,
    Exchange,
    ScriptedServer,
    answer,
    chat,
    chunked,
    drive,
    frame,
    make_target,
    sized,
    text,
    usage,
)


def outcomes(result: LoadResult) -> list[Outcome]:
    return [Outcome(o) for o in result.log.outcome]


def one(*, requests: int = 1, batch: int = 1) -> LoadSpec:
    return LoadSpec(kind="closed", batch_size=batch, num_prompts=requests)


def per_request(result: LoadResult) -> list[int]:
    return np.bincount(result.log.chunk_request, minlength=len(result.log)).tolist()  # type: ignore[no-any-return]


def test_a_plain_job(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(chunked(answer(4)))) as server:
        result = drive(server.url, tmp_path)
    log, window = result.log, result.window
    assert outcomes(result) == [Outcome.OK] * 3
    assert per_request(result) == [4, 4, 4]
    assert log.output_tokens.tolist() == [4] * 3
    assert log.input_tokens.tolist() == [8] * 3
    assert log.http_status.tolist() == [200] * 3
    assert log.scheduled_ns.tolist() == [MISSING] * 3
    assert log.finish_reason == ("length",) * 3
    assert log.error == (None,) * 3
    assert np.all(log.sent_ns < log.opened_ns)
    assert np.all(log.opened_ns <= log.closed_ns)
    assert np.all(np.diff(log.sent_ns) > 0)
    assert window is not None
    assert window.kind == "whole_job"
    assert (window.t0_ns, window.t1_ns) == (log.sent_ns[0], log.chunk_ns[-1] + 1)
    assert not result.interrupted
    assert len(server.connections) == 2  # preflight, then one that is kept alive


FRAMINGS = {
    "one_byte_http_chunks": chunked(answer(2), size=1),
    "odd_http_chunks": chunked(answer(2), size=7),
    "content_length": sized(answer(2)),
    "crlf_events": chunked(answer(2).replace(b"\n", b"\r\n")),
    "trailers": chunked(answer(2), trailer=b"X-Sum: 1\r\n"),
    "chunk_extensions": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + frame(answer(2)).replace(b"\r\n", b";a=b\r\n", 1)
    + b"0\r\n\r\n",
    "comments": chunked(b": hello\n\n" + answer(2).replace(b"\n\n", b"\n\n: keep-alive\n\n")),
    "100_continue": b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(answer(2)),
    "early_hints": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + chunked(answer(2)),
}


@pytest.mark.parametrize("name", FRAMINGS)
def test_framings_sent_byte_by_byte(name: str, tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send_bytewise(FRAMINGS[name])) as server:
        result = drive(server.url, tmp_path, load=one(requests=2))
    assert outcomes(result) == [Outcome.OK] * 2
    assert per_request(result) == [2, 2]


@pytest.mark.parametrize("head", [HEAD + b"Connection: close\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_bodies_that_end_with_the_connection(head: bytes, tmp_path: Path) -> None:
    def script(x: Exchange) -> None:
        x.send(head + answer(3))
        x.close()

    with ScriptedServer(script) as server:
        result = drive(server.url, tmp_path, load=one(requests=3))
    assert outcomes(result) == [Outcome.OK] * 3
    assert per_request(result) == [3] * 3


def test_connection_close_is_obeyed(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(sized(answer(2), extra=b"Connection: close\r\n"))) as server:
        result = drive(server.url, tmp_path, load=one(requests=3))
    assert outcomes(result) == [Outcome.OK] * 3
    assert len(server.connections) == 4


def test_a_server_that_closes_idle_connections_unannounced_fails_nothing(tmp_path: Path) -> None:
    def script(x: Exchange) -> None:
        x.send(chunked(answer(2)))
        x.close()

    with ScriptedServer(script) as server:
        result = drive(server.url, tmp_path, load=one(requests=6))
    assert outcomes(result) == [Outcome.OK] * 6
    assert len({tuple(x.prompt_words()) for x in server.exchanges}) == 6


def test_completions(tmp_path: Path) -> None:
    body = text("a") + text("b") + text("", "length") + usage(8, 2) + DONE
    with ScriptedServer(lambda x: x.send(chunked(body))) as server:
        target = make_target(server.url, protocol="openai-completions", token_ids=True, vocab_size=32000)
        result = drive(server.url, tmp_path, target=target, input_tokens=LengthSpec(mean=30))
    assert outcomes(result) == [Outcome.OK] * 3
    assert per_request(result) == [2] * 3
    assert all(len(x.body["prompt"]) == 30 for x in server.exchanges)
    assert b"POST /v1/completions " in server.exchanges[0].head


def test_chunks_are_stamped_when_they_come(tmp_path: Path) -> None:
    """Role delta, then a pause as long as a prefill: TTFT ends at the first content, not at the role."""
    stamps: list[int] = []

    def script(x: Exchange) -> None:
        from time import perf_counter_ns

        x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + frame(chat({"role": "assistant", "content": ""})))
        x.server.release.wait(0.05)
        stamps.append(perf_counter_ns())
        x.send(frame(chat({"content": "a"})))
        x.server.release.wait(0.05)
        x.send(frame(chat({"content": "b"}, "stop") + DONE) + frame(b""))

    with ScriptedServer(script) as server:
        result = drive(server.url, tmp_path, load=one(requests=1))
    assert result.log.chunk_ns[0] >= stamps[0]
    assert result.log.opened_ns[0] < stamps[0]
    assert result.log.chunk_ns[1] > result.log.chunk_ns[0]


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


SWITCHING = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"
FAILURES = {
    "http_500": (lambda x: x.send(sized(b'{"error":{"message":"boom"}}', "500 Internal Server Error")), Outcome.HTTP, "boom"),
    "http_429": (
        lambda x: x.send(sized(b"slow down", "429 Many", b"Retry-After: 1\r\n")),
        Outcome.HTTP,
        "slow down",
    ),
    "redirect": (lambda x: x.send(sized(b"", "302 Found", b"Location: /x\r\n")), Outcome.HTTP, "302"),
    "error_in_200": (lambda x: x.send(chunked(b'data: {"error": {"message": "oom"}}\n\n')), Outcome.STREAM_ERROR, "oom"),
    "empty": (lambda x: x.send(chunked(chat({"role": "assistant"}) + chat({}, "stop") + DONE)), Outcome.EMPTY, "no token"),
    "nothing": (lambda x: x.send(sized(b"")), Outcome.EMPTY, "no token"),
    "no_end_sign": (lambda x: x.send(chunked(chat({"content": "a"}))), Outcome.TRUNCATED, "neither"),
    "fin_in_body": (lambda x: (x.send(cut(chunked(answer(4)))), x.close()), Outcome.TRUNCATED, "mid-answer"),
    "rst_in_body": (lambda x: (x.send(cut(chunked(answer(4)))), x.reset()), Outcome.TRUNCATED, "mid-answer"),
    "fin_before_answer": (lambda x: x.close(), Outcome.CONNECT, "before any answer"),
    "rst_before_answer": (lambda x: x.reset(), Outcome.CONNECT, "before any answer"),
    "fin_in_head": (lambda x: (x.send(HEAD), x.close()), Outcome.TRUNCATED, "mid-answer"),
    "not_http": (lambda x: x.send(b"SSH-2.0-OpenSSH_9\r\n\r\n"), Outcome.PROTOCOL, "not HTTP"),
    "bad_chunk_size": (lambda x: x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), Outcome.PROTOCOL, "not HTTP"),
    "switching": (
        lambda x: x.send(SWITCHING),
        Outcome.PROTOCOL,
        "switched",
    ),
    "html": (lambda x: x.send(sized(b"<html>maintenance</html>")), Outcome.PROTOCOL, "maintenance"),
    "bad_json": (lambda x: x.send(chunked(b"data: {oops\n\n")), Outcome.PROTOCOL, "oops"),
    "silence": (lambda x: x.server.release.wait(20), Outcome.TIMEOUT, None),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_told_apart(name: str, tmp_path: Path) -> None:
    """The second of three requests fails; the others must not be touched by it."""
    script, outcome, words = FAILURES[name]

    def reply(x: Exchange) -> None:
        if x.number == 1:
            script(x)  # type: ignore[no-untyped-call]
        else:
            x.send(sized(answer(2), extra=b"Connection: close\r\n"))  # so that no failure passes for an idle close

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, request_timeout_s=0.5 if name == "silence" else 10.0)
    assert outcomes(result) == [Outcome.OK, outcome, Outcome.OK]
    assert words is None or words in (result.log.error[1] or "")
    assert np.all(result.log.closed_ns >= result.log.sent_ns)


def test_large_events_and_large_prompts(tmp_path: Path) -> None:
    big = "x" * 1_000_000
    with ScriptedServer(lambda x: x.send(chunked(chat({"content": big}) + chat({"content": "é"}, "stop") + DONE))) as server:
        result = drive(server.url, tmp_path, input_tokens=LengthSpec(mean=100_000), load=one(requests=2))
    assert outcomes(result) == [Outcome.OK] * 2
    assert result.log.chunk_bytes.tolist() == [1_000_000, 2] * 2
    assert len(server.exchanges[0].prompt_words()) == 100_000


def test_asyncio_is_a_fallback(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(chunked(answer(2)))) as server:
        result = drive(server.url, tmp_path, generator=WireLoad(loop="asyncio"))
    assert outcomes(result) == [Outcome.OK] * 3
    assert result.health.loop == "asyncio"


def test_ipv6(tmp_path: Path) -> None:
    try:
        probe = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    probe.close()
    with ScriptedServer(lambda x: x.send(chunked(answer(2))), host="::1") as server:
        result = drive(f"http://[::1]:{server.port}", tmp_path)
    assert outcomes(result) == [Outcome.OK] * 3


def test_unix_sockets(tmp_path: Path) -> None:
    path = tmp_path / "llm.sock"
    with ScriptedServer(lambda x: x.send(chunked(answer(2))), host=str(path)):
        result = drive(f"unix:{path}", tmp_path)
    assert outcomes(result) == [Outcome.OK] * 3


def make_certificate(folder: Path, name: str) -> Path:
    """A key and a certificate for `name` in one file; skips the test where there is no openssl."""
    if which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)],
        capture_output=True, check=True,
    )  # fmt: skip
    both = folder / "server.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with ScriptedServer(lambda x: x.send(chunked(answer(2))), tls=context) as server:
        result = drive(f"https://localhost:{server.port}", tmp_path)
    assert outcomes(result) == [Outcome.OK] * 3
    assert per_request(result) == [2] * 3


def test_the_key_is_sent_and_kept_out_of_everything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    commands: list[bytes] = []

    def reply(x: Exchange) -> None:
        commands.extend(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path))
        x.send(sized(b'{"error":{"message":"bad key sk-secret"}}', "500 Oops"))

    with ScriptedServer(reply) as server:
        target = make_target(server.url, api_key_env="MY_KEY")
        result = drive(server.url, tmp_path, target=target, load=one(requests=1))
        assert b"Authorization: Bearer sk-secret" in server.exchanges[0].head
    assert not any(b"sk-secret" in command for command in commands)
    assert "sk-secret" not in repr(result)
    assert result.log.error[0] == "HTTP 500: bad key ***"


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_a_kept_connection_that_is_lost_while_the_server_works_is_a_failure(tmp_path: Path) -> None:
    def script(x: Exchange) -> None:
        if x.number == 1:
            x.server.release.wait(1.2)  # longer than an idle close takes to be noticed
            x.close()
        else:
            x.send(chunked(answer(2)))

    with ScriptedServer(script) as server:
        result = drive(server.url, tmp_path)
    assert outcomes(result) == [Outcome.OK, Outcome.CONNECT, Outcome.OK]
    assert len(server.exchanges) == 3
