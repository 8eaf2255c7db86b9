"""No engine outlives the harness, whatever happens to the harness, the warden or the engine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.clock import FakeClock
from bench.errors import EngineStartError
from bench.runners import process as process_module
from bench.runners import warden
from bench.runners.http import get
from bench.runners.process import EngineProcess, PortTakenError, free_port
from bench.runners.readiness import on_free_port, wait_ready
from bench.testing.processes import all_gone, eventually, tree
from bench.testing.scripted_engine import script
from tests.runners.scripted import ENGINE, address_in, listening, start_scripted

STUBBORN = {"daemon_ignores_sigterm": True, "ignore_sigterm": True}


def warden_of(process: EngineProcess) -> psutil.Process:
    parent = psutil.Process(process.pids[0]).parent()
    assert parent is not None
    return parent


def test_an_engine_starts_answers_and_is_stopped(tmp_path: Path, tree_name: str) -> None:
    process = start_scripted(tmp_path)
    ready = listening(process, tmp_path)
    assert ready.waited_s > 0
    assert process.failure() is None
    assert psutil.Process(process.pids[0]).environ()["RUNNER_TEST_TREE"] == tree_name
    process.stop()
    assert process.failure() == "scripted was stopped"
    assert process.exit_status == -signal.SIGTERM
    assert "listening at" in process.log_tail()
    assert not tree(tree_name)


def test_stop_may_be_called_again(tmp_path: Path, tree_name: str) -> None:
    process = start_scripted(tmp_path)
    process.stop()
    process.stop()
    assert not tree(tree_name)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_double_forked_daemon_is_ended_too(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    script(monkeypatch, daemon=str(tmp_path / "daemon"), daemon_ignores_sigterm=stubborn)
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    eventually((tmp_path / "daemon").exists, "the daemon did not start")
    daemon = psutil.Process(int((tmp_path / "daemon").read_text()))
    assert process.pids[0] not in [parent.pid for parent in daemon.parents()]
    process.stop(0.3)
    assert not daemon.is_running()
    assert not tree(tree_name)
    assert process.leftovers == ()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper")
def test_a_daemon_without_the_marker_is_ended_too(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, daemon=str(tmp_path / "daemon"), daemon_ignores_sigterm=True, daemon_forgets_environment=True)
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    daemon = psutil.Process(int((tmp_path / "daemon").read_text()))
    eventually(lambda: not daemon.environ(), "the daemon kept its environment")
    process.stop(0.3)
    assert not daemon.is_running()
    assert not tree(tree_name)


def test_an_engine_that_ignores_sigterm_is_killed(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, ignore_sigterm=True)
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    process.stop(0.2)
    assert process.exit_status == -signal.SIGKILL
    assert not tree(tree_name)


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "raise", "fork"])
def test_nothing_outlives_a_harness_that_ends(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    script(monkeypatch, daemon=str(tmp_path / "daemon"), **STUBBORN)
    words = [how] if how in ("raise", "fork") else []
    harness = subprocess.Popen(
        [sys.executable, "-m", "tests.runners.harness_program", str(tmp_path), *words], stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: (tmp_path / "ready").exists() and (tmp_path / "daemon").exists(), "the harness did not start its engine")
    children: list[psutil.Process] = []
    if how == "fork":
        children = [child for child in psutil.Process(harness.pid).children() if "warden.py" not in " ".join(child.cmdline())]
        assert len(children) == 1
    if how != "raise":
        assert len(tree(tree_name)) >= 4  # harness, warden, engine, daemon
        harness.send_signal(signal.SIGKILL if how == "fork" else signal.Signals[how])
    _, said = harness.communicate(timeout=30) if how != "fork" else (harness.wait(30), "")
    assert harness.returncode != 0
    assert how != "raise" or "the harness fails" in said
    if children:  # the fork is no engine: it lives on with our end of the pipe, and yet the engine must go
        eventually(lambda: {p.pid for p in tree(tree_name)} == {children[0].pid}, "the engine outlived its harness")
        children[0].kill()
    all_gone(tree_name)


def test_the_warden_ends_the_engine_when_it_is_told_to_end(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, daemon=str(tmp_path / "daemon"))
    process = start_scripted(tmp_path, grace_s=0.2)
    listening(process, tmp_path)
    warden_of(process).terminate()
    all_gone(tree_name)
    eventually(lambda: process.failure() is not None, "the end was not noticed")
    process.stop()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs PR_SET_PDEATHSIG")
def test_a_killed_warden_leaves_no_engine_and_no_daemon(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, daemon=str(tmp_path / "daemon"), **STUBBORN)
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    engine = psutil.Process(process.pids[0])
    warden_of(process).kill()
    eventually(lambda: not engine.is_running(), "the engine outlived its warden before anyone could help")
    eventually(lambda: process.failure() is not None, "the end was not noticed")
    assert "warden of scripted was killed" in str(process.failure())
    process.stop()
    assert not tree(tree_name)
    assert process.leftovers == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_warden_leaves_terminal_signals_to_the_harness(tmp_path: Path, tree_name: str, number: signal.Signals) -> None:
    process = start_scripted(tmp_path)
    ready = listening(process, tmp_path)
    warden_of(process).send_signal(number)
    assert get(f"{ready.base_url}/health").__class__.__name__ == "Answer"
    assert process.failure() is None
    process.stop()
    assert not tree(tree_name)


@pytest.mark.usefixtures("tree_name")
def test_the_engine_gets_ordinary_signals(tmp_path: Path) -> None:
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    psutil.Process(process.pids[0]).send_signal(signal.SIGINT)
    eventually(lambda: process.failure() is not None, "the engine ignores SIGINT")
    process.stop()


@pytest.mark.usefixtures("tree_name")
def test_the_engine_holds_no_pipe_of_the_warden(tmp_path: Path) -> None:
    fds = tmp_path / "fds"
    code = f"import os, pathlib; pathlib.Path({str(fds)!r}).write_text(str(sorted(os.listdir('/dev/fd'), key=int)))"
    process = EngineProcess.start([sys.executable, "-c", code], name="lister", log_path=tmp_path / "log")
    eventually(lambda: process.exit_status is not None, "the lister did not end")
    process.stop()
    assert fds.read_text() in ("['0', '1', '2', '3']", "['0', '1', '2']")  # 3 is the listing itself


@pytest.mark.usefixtures("tree_name")
def test_the_api_key_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    engine = psutil.Process(process.pids[0])
    assert engine.environ()["OPENAI_API_KEY"] == "sk-very-secret"
    for part in (engine, warden_of(process)):
        assert "sk-very-secret" not in " ".join(part.cmdline())
    process.stop()


@pytest.mark.parametrize(
    ("behaviour", "status", "words"),
    [
        ({"say": "OSError: [Errno 98] Address already in use", "exit": 1}, 1, "port was taken"),
        ({"say": "CUDA error: out of memory", "exit": 1}, 1, "too little free memory"),
        ({"signal": signal.SIGKILL}, -9, "out-of-memory killer"),
        ({"signal": signal.SIGILL}, -4, "newer processor"),
        ({"say": "something odd", "exit": 3}, 3, "exit status 3"),
        ({"exit": 0}, 0, "exit status 0"),
    ],
)
def test_a_death_before_readiness_is_told_at_once(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, object], status: int, words: str
) -> None:
    script(monkeypatch, **behaviour)
    process = start_scripted(tmp_path)
    with pytest.raises(EngineStartError) as caught:
        listening(process, tmp_path, timeout_s=600.0)
    process.stop()
    assert process.exit_status == status
    assert words in str(caught.value)
    assert "before it was ready" in str(caught.value)
    assert str(behaviour.get("say", "")) in caught.value.log_tail
    assert caught.value.hint
    assert isinstance(caught.value, PortTakenError) == ("port" in words)
    assert not tree(tree_name)


@pytest.mark.parametrize(("behaviour", "words"), [({"never_ready": True}, "where it listens"), ({"loading": True}, "HTTP 503")])
def test_an_engine_that_never_gets_ready_is_given_up_on(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, object], words: str
) -> None:
    script(monkeypatch, say="loading weights", **behaviour)
    process = start_scripted(tmp_path)
    eventually(lambda: "loading weights" in process.log_tail(), "it says nothing")
    if "loading" in behaviour:
        eventually((tmp_path / "status.json").exists, "it does not listen")
    clock = FakeClock()
    with pytest.raises(EngineStartError) as caught:
        wait_ready(process, lambda: address_in(tmp_path / "status.json"), path="/health", timeout_s=120.0, clock=clock)
    process.stop(1.0)
    assert "not ready after 120.0 s" in str(caught.value)
    assert words in str(caught.value)
    assert "loading weights" in caught.value.log_tail
    assert not tree(tree_name)


@pytest.mark.usefixtures("tree_name")
def test_a_death_in_mid_run_is_told_with_its_cause(tmp_path: Path) -> None:
    process = start_scripted(tmp_path)
    ready = listening(process, tmp_path)
    get(f"{ready.base_url}/die")
    eventually(lambda: process.failure() is not None, "its death was not noticed")
    assert process.failure() == "scripted ended with exit status 7: it could not get the memory that it wanted"
    process.stop()
    assert process.failure() == "scripted ended with exit status 7: it could not get the memory that it wanted"


@pytest.mark.parametrize("argv", [["no-such-engine-program"], ["/etc/hostname"]])
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, tree_name: str, argv: list[str]) -> None:
    with pytest.raises(EngineStartError, match="ghost could not be started") as caught:
        EngineProcess.start(argv, name="ghost", log_path=tmp_path / "log")
    assert argv[0] in str(caught.value)
    assert not tree(tree_name)


def test_a_flood_of_log_is_bounded_and_does_not_stop_the_engine(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, flood_mb=60)
    process = start_scripted(tmp_path)
    listening(process, tmp_path)
    assert "flood over" in process.log_tail(5)
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) < warden.HEAD_B + 2 * warden.TAIL_B + 4096
    process.stop()
    text = (tmp_path / "engine.log").read_text()
    assert text.startswith("line 00000000 ")
    assert "line 00599999 " in text
    assert text.count("bytes of the engine's log left out here") == 1
    assert not tree(tree_name)


# --- ports ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tree_name")
def test_another_server_on_our_port_is_not_taken_for_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squatter").mkdir()
    (tmp_path / "engine").mkdir()
    squatter = start_scripted(tmp_path / "squatter")
    taken = listening(squatter, tmp_path / "squatter").base_url
    script(monkeypatch, never_ready=True)
    process = start_scripted(tmp_path / "engine")
    try:
        with pytest.raises(PortTakenError, match="another process answers there"):
            wait_ready(process, lambda: taken, path="/health", timeout_s=30.0)
    finally:
        process.stop(1.0)
        squatter.stop(1.0)


def test_a_taken_port_is_tried_again_with_another(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "squatter").mkdir()
    squatter = start_scripted(tmp_path / "squatter")
    taken = int(listening(squatter, tmp_path / "squatter").base_url.rpartition(":")[2])
    choices = iter([taken, taken])
    monkeypatch.setattr("bench.runners.readiness.free_port", lambda: next(choices, None) or free_port())
    tried = []

    def attempt(port: int) -> EngineProcess:
        tried.append(port)
        argv = [sys.executable, str(ENGINE), "--port", str(port)]
        process = EngineProcess.start(argv, name="scripted", log_path=tmp_path / f"log-{len(tried)}")
        try:
            wait_ready(process, lambda: f"http://127.0.0.1:{port}", path="/health", timeout_s=30.0)
        except BaseException:
            process.stop()
            raise
        return process

    process = on_free_port(attempt)
    assert tried[:2] == [taken, taken]
    assert tried[2] != taken
    process.stop()
    squatter.stop()
    assert not tree(tree_name)


def test_a_port_that_is_always_taken_is_an_error() -> None:
    tried = []

    def attempt(port: int) -> None:
        tried.append(port)
        raise PortTakenError("taken")

    with pytest.raises(PortTakenError):
        on_free_port(attempt)
    assert 2 <= len(tried) <= 10


def test_free_ports_can_be_bound() -> None:
    assert 1024 <= free_port() <= 65535


@pytest.mark.usefixtures("tree_name")
def test_processes_are_found_by_their_marker(tmp_path: Path) -> None:
    process = start_scripted(tmp_path)
    marker = psutil.Process(process.pids[0]).environ()[warden.MARKER]
    assert [found.pid for found in process_module.marked_processes(marker)] == list(process.pids)
    process.stop()
    assert process_module.marked_processes(marker) == []
