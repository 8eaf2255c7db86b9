"""The mock engine as a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from bench import mock
from bench.cli.mock_server import mock_server
from bench.clock import SYSTEM
from bench.errors import BenchError, EngineStartError, UsageError
from bench.mock.options import MockOptions, check_options, command_line, is_loopback
from bench.mock.quirks import SPECS
from tests.mock.wire import ask, chat_body


def port_of(server: mock.MockServer) -> int:
    return int(server.url.rpartition(":")[2])


def test_it_serves_tells_the_truth_and_stops_with_0(tmp_path: Path) -> None:
    with mock.start(ttft_ms=10, gap_ms=2, port_file=tmp_path / "url") as server:
        assert (tmp_path / "url").read_text() == server.url + "\n"
        assert server.log() == f"listening on {server.url}\n"
        from_ns = SYSTEM.monotonic_ns()
        assert len(ask(port_of(server), chat_body(5)).texts()) == 5
        truth = server.truth(from_ns)
        assert truth.output_tokens == 5
        assert truth.ttft_ms.p50 is not None
        assert truth.ttft_ms.p50 >= 10
        assert truth.server_saturated in {True, False}
        with pytest.raises(BenchError, match="400"):
            server.truth(10, 5)
    assert server.returncode() == 0
    assert server.log().startswith("listening on ")
    assert list(tmp_path.iterdir()) == [tmp_path / "url"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_in_mid_stream_with_0(number: signal.Signals) -> None:
    with mock.start(gap_ms=50) as server, socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        body = chat_body(1000)
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert connection.recv(12) == b"HTTP/1.1 200"
        os.kill(server.pid, number)
        assert server.wait() == 0
        assert "Traceback" not in server.log()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_the_program_that_started_it(number: signal.Signals) -> None:
    program = "import sys; from bench import mock; server = mock.start(); print(server.pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        server = psutil.Process(int(starter.stdout.readline()))
        starter.send_signal(number)
        gone, left = psutil.wait_procs([server], timeout=30)
    assert (gone, left) == ([server], [])


def test_a_taken_port_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineStartError) as caught:
            mock.start(port=port)
    assert "exit status 1" in str(caught.value)
    assert caught.value.log_tail.count("error:") == 1
    assert str(port) in caught.value.log_tail
    assert "--port 0" in caught.value.log_tail
    assert "Traceback" not in caught.value.log_tail


def test_a_port_file_that_cant_be_written_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError) as caught:
        mock.start(port_file=tmp_path / "nowhere" / "url")
    assert "port file" in caught.value.log_tail
    assert "Traceback" not in caught.value.log_tail


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with mock.start(host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.get("/health")[0] == 200


def test_a_socket_file_is_served_and_taken_away_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "mock.sock"
    with mock.start(host=f"unix:{path}", ttft_ms=1, gap_ms=1) as server:
        assert server.url == f"unix:{path}"
        assert server.get("/health")[0] == 200
        assert server.truth().output_tokens == 0
    assert not path.exists()
    with pytest.raises(EngineStartError) as caught:
        mock.start(host=f"unix:{tmp_path}/nowhere/mock.sock")
    assert "can't listen on" in caught.value.log_tail
    with pytest.raises(UsageError, match="names no socket"):
        mock.start(host="unix:mock.sock")


def test_a_key_comes_from_the_named_variable() -> None:
    with mock.start(api_key_env="MOCK_KEY", env={"MOCK_KEY": "abc"}, ttft_ms=1, gap_ms=1) as server:
        assert ask(port_of(server), chat_body(1)).status == 401
        assert ask(port_of(server), chat_body(1), headers={"authorization": "Bearer abc"}).status == 200
        command = psutil.Process(server.pid).cmdline()
    assert "abc" not in " ".join(command)
    with pytest.raises(EngineStartError) as caught:
        mock.start(api_key_env="MOCK_KEY_THAT_IS_NOT_SET")
    assert "MOCK_KEY_THAT_IS_NOT_SET" in caught.value.log_tail


# --- quirks of the process ------------------------------------------------------------------------------------------------


def test_die_after_ends_abruptly_once_it_has_answered() -> None:
    with mock.start(quirks=("die-after=3",), ttft_ms=1, gap_ms=1) as server:
        answers = [ask(port_of(server), chat_body(4)) for _ in range(3)]
        assert server.wait() == 70
    assert [len(answer.texts()) for answer in answers] == [4, 4, 4]


def test_fail_start_exits_3_with_a_message() -> None:
    with pytest.raises(EngineStartError) as caught:
        mock.start(quirks=("fail-start",))
    assert "exit status 3" in str(caught.value)
    assert "no memory left" in caught.value.log_tail


def test_late_listen_opens_its_port_late_and_can_be_stopped_before(tmp_path: Path) -> None:
    before_ns = SYSTEM.monotonic_ns()
    with mock.start(quirks=("late-listen=0.5",)) as server:
        assert SYSTEM.monotonic_ns() - before_ns >= 5e8
        assert server.get("/health")[0] == 200
    command = [sys.executable, "-m", "bench", "mock-server", "--quirk=late-listen=600", f"--port-file={tmp_path / 'url'}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline_ns = SYSTEM.monotonic_ns() + 20 * 10**9
    while "SIGTERM" not in _caught(process.pid) and SYSTEM.monotonic_ns() < deadline_ns:
        SYSTEM.sleep(0.01)
    process.terminate()
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (0, b"")


def _caught(pid: int) -> str:
    """The signals that a process handles itself, where the system tells."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        SYSTEM.sleep(2)
        return "SIGTERM"
    mask = int(next(line for line in status.read_text().splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return "SIGTERM" if mask >> (signal.SIGTERM - 1) & 1 else ""


def test_ignore_sigterm_needs_kill() -> None:
    with mock.start(quirks=("ignore-sigterm",)) as server:
        os.kill(server.pid, signal.SIGTERM)
        assert server.get("/health")[0] == 200
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL


def test_fork_child_leaves_a_process_in_a_session_of_its_own() -> None:
    with mock.start(quirks=("fork-child=300",)) as server:
        pid = int(server.log().split("left process ")[1].split()[0])
        try:
            child = psutil.Process(pid)
            assert child.ppid() != server.pid
            assert os.getsid(pid) != os.getsid(server.pid)
            server.stop()
            assert child.is_running()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# --- the command line -----------------------------------------------------------------------------------------------------


def test_list_quirks_prints_one_line_each() -> None:
    result = CliRunner().invoke(mock_server, ["--list-quirks"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert len(lines) == len(SPECS)
    assert all(line.split("=")[0].split("[")[0].split()[0] == name for line, name in zip(lines, SPECS, strict=True))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--quirk", "rolenull"], "role-null"),
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--ttft-ms", "-1"], "ttft_ms"),
        (["--gap-ms", "nan"], "--gap-ms"),
        (["--tokens-per-chunk", "0"], "tokens_per_chunk"),
        (["--port", "70000"], "70000"),
        (["--ttft", "5"], "--ttft-ms"),
    ],
)
def test_wrong_flags_exit_2_with_the_next_step(flags: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "bench", "mock-server", *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)])
@pytest.mark.parametrize(("far", "reachable"), [("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)])
def test_only_this_host_is_served_unless_allowed(host: str, local: bool, far: str, reachable: bool) -> None:
    assert is_loopback(host) is local
    assert is_loopback(far) is reachable
    with pytest.raises(UsageError, match="only this host"):
        check_options(MockOptions(host=far))
    check_options(MockOptions(host=far, allow_remote=True))


def test_options_survive_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    options = MockOptions(
        host="::1",
        port=9001,
        port_file=Path("x/url"),
        ttft_ms=1.25,
        gap_ms=0.1,
        model="m m",
        tokens_per_chunk=3,
        api_key_env="KEY",
        quirks=("crlf", "status=500:0.5"),
        prefill_us_per_token=1e-05,
        max_in_flight=7,
        seed=11,
        truth_chunks=1000,
        allow_remote=True,
        until_stdin_ends=True,
    )
    got: list[MockOptions] = []

    def serve(given: MockOptions, announce: object) -> int:
        got.append(given)
        return 0

    monkeypatch.setattr("bench.mock.server.serve", serve)
    result = CliRunner().invoke(mock_server, command_line(options))
    assert result.exit_code == 0, result.output
    assert got == [options]


def test_the_truth_can_be_asked_over_http_by_anyone() -> None:
    with mock.start() as server:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=10)
        connection.request("GET", "/truth")
        assert connection.getresponse().status == 200
        connection.close()
