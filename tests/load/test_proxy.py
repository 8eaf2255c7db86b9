"""Which proxy, when none, and requests through one."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bench.errors import TargetError, UsageError
from bench.load.address import http_head, route
from bench.proxy import Proxy, proxy_for
from bench.records import Outcome
from tests.load.scripted import ScriptedServer, answer, chunked, drive, make_target
from tests.load.test_wire import make_certificate

HERE = Proxy(host="proxy.lan", port=3128)


def found(url: str, **environ: str) -> Proxy | None:
    return route(url, environ).proxy


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("http://llm.lan", {}, None),
        ("http://llm.lan", {"http_proxy": "http://proxy.lan:3128"}, HERE),
        ("http://llm.lan", {"HTTP_PROXY": "http://proxy.lan:3128"}, HERE),
        ("http://llm.lan", {"http_proxy": "proxy.lan:3128"}, HERE),
        ("http://llm.lan", {"https_proxy": "http://proxy.lan:3128"}, None),
        ("https://llm.lan", {"HTTPS_PROXY": "http://proxy.lan:3128"}, HERE),
        ("https://llm.lan", {"all_proxy": "http://proxy.lan:3128"}, HERE),
        ("http://llm.lan", {"http_proxy": "http://proxy.lan"}, Proxy(host="proxy.lan", port=80)),
        (
            "http://llm.lan",
            {"http_proxy": "http://other.lan:1", "HTTP_PROXY": "http://proxy.lan:3128"},
            Proxy(host="other.lan", port=1),
        ),
        ("http://localhost:8000", {"http_proxy": "http://proxy.lan:3128"}, None),
        ("http://127.9.9.9", {"http_proxy": "http://proxy.lan:3128"}, None),
        ("http://localhost.example.com", {"http_proxy": "http://proxy.lan:3128"}, HERE),
        ("http://127.0.0.1:8000", {"all_proxy": "http://proxy.lan:3128"}, None),
        ("http://[::1]:8000", {"http_proxy": "http://proxy.lan:3128"}, None),
        ("unix:/run/llm.sock", {"http_proxy": "http://proxy.lan:3128"}, None),
    ],
)
def test_which_proxy(url: str, environ: Mapping[str, str], proxy: Proxy | None) -> None:
    assert found(url, **environ) == proxy


@pytest.mark.parametrize(
    ("rules", "direct"),
    [
        ("llm.lan", True),
        (".lan", True),
        ("lan", True),
        ("*.lan", True),
        ("*", True),
        ("LLM.LAN", True),
        ("other.lan, llm.lan", True),
        ("llm.lan:8000", True),
        ("llm.lan:9000", False),
        ("m.lan", False),
        ("llm.lan.example", False),
        ("", False),
        ("10.0.0.0/8", False),
    ],
)
def test_no_proxy(rules: str, direct: bool) -> None:
    assert (found("http://llm.lan:8000", http_proxy="proxy.lan:3128", no_proxy=rules) is None) is direct


@pytest.mark.parametrize(
    ("rules", "direct"), [("10.0.0.0/8", True), ("10.1.2.3", True), ("192.168.0.0/16", False), ("fd00::/8", False)]
)
def test_no_proxy_by_network(rules: str, direct: bool) -> None:
    assert (proxy_for("10.1.2.3", 80, tls=False, environ={"http_proxy": "p:1", "NO_PROXY": rules}) is None) is direct


@pytest.mark.parametrize(
    "url", ["socks5://user:pw-secret@p:1080", "https://user:pw-secret@p:443", "http://p:port", "http://", "http://[::1", "::::"]
)
def test_proxies_that_cannot_be_used_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(UsageError, match="http_proxy names a proxy") as caught:
        found("http://llm.lan", http_proxy=url)
    assert "secret" not in str(caught.value)
    assert caught.value.hint


def test_credentials_go_to_the_proxy_only_and_are_not_shown() -> None:
    plain = route("http://llm.lan:8000", {"http_proxy": "http://us%40er:pw-secret@p:1"})
    head = http_head(plain, "/v1/completions", 2, "sk")
    assert head.startswith(b"POST http://llm.lan:8000/v1/completions HTTP/1.1\r\nHost: llm.lan:8000\r\n")
    assert b"\r\nProxy-Authorization: Basic dXNAZXI6cHctc2VjcmV0\r\n" in head
    assert "secret" not in repr(plain)
    assert "dXNA" not in repr(plain)
    secure = http_head(route("https://llm.lan", {"https_proxy": "http://user:pw@p:1"}), "/v1/completions", 2, None)
    assert secure.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"Proxy-" not in secure


class Tunnel:
    """A proxy that answers CONNECT, and joins the tunnel to a port of this host whatever name was asked for."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self._to, self._answer = port, answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.asked: list[bytes] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                self.asked.append(near.recv(65536))
                near.sendall(self._answer)
                if b" 200 " not in self._answer:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_plain_http_goes_through_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(lambda x: x.send(chunked(answer(2)))) as server:
        monkeypatch.setenv("http_proxy", f"http://user:pw@127.0.0.1:{server.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        result = drive("http://llm.test:8000", tmp_path, target=make_target("http://llm.test:8000"))
    assert result.log.outcome.tolist() == [Outcome.OK] * 3
    assert server.exchanges[0].head.startswith(b"POST http://llm.test:8000/v1/chat/completions HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwdw==" in server.exchanges[0].head


def test_https_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path, "llm.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ScriptedServer(lambda x: x.send(chunked(answer(2))), tls=context) as server, Tunnel(server.port) as tunnel:
        monkeypatch.setenv("https_proxy", f"http://user:pw@127.0.0.1:{tunnel.port}")
        result = drive("https://llm.test:8443", tmp_path, target=make_target("https://llm.test:8443"))
    assert result.log.outcome.tolist() == [Outcome.OK] * 3
    assert tunnel.asked[0].startswith(b"CONNECT llm.test:8443 HTTP/1.1\r\nHost: llm.test:8443\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwdw==" in tunnel.asked[0]
    assert server.exchanges[0].head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: llm.test:8443\r\n")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "refuses a tunnel: 407 Proxy Authentication Required"),
        (b"SSH-2.0-x\r\n\r\n", "refuses a tunnel"),
        (b"", "did not answer with HTTP"),
    ],
)
def test_a_proxy_that_refuses(said: bytes, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Tunnel(0, said) as tunnel:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{tunnel.port}")
        with pytest.raises(TargetError, match=words):
            drive("https://llm.test", tmp_path, target=make_target("https://llm.test"))
