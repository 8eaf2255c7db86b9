"""Refusals before any load, stops in each phase, dying workers, dying parents, full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import psutil
import pytest

from bench.errors import LoadError, TargetError
from bench.load import recover
from bench.load.columns import spill_path
from bench.records import LoadProgress, LoadSpec, Outcome
from tests.load.scripted import Exchange, Script, ScriptedServer, answer, chunked, drive, make_target, sized
from tests.load.test_loops import slow

CLOSED = LoadSpec(kind="closed", batch_size=2)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "it never came to that"
        threading.Event().wait(0.01)


def refuse(status: str, message: str) -> Script:
    return lambda x: x.send(sized(b'{"error":{"message":"%b"}}' % message.encode(), status))


def test_nobody_listens(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: None) as server:
        server.stop()
    with pytest.raises(TargetError, match=f"can't connect to http://127.0.0.1:{server.port}") as caught:
        drive(server.url, tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("status", "env", "value", "hint"),
    [
        ("401 Unauthorized", None, None, "--api-key-env"),
        ("401 Unauthorized", "TEST_KEY", None, "TEST_KEY is not set"),
        ("403 Forbidden", "TEST_KEY", "sk-secret", "the key in TEST_KEY was not accepted"),
        ("404 Not Found", None, None, "'tiny'"),
        ("400 Bad Request", None, None, "ignore_eos"),
        ("307 Temporary Redirect", None, None, "final URL"),
    ],
)
def test_refusals(
    status: str, env: str | None, value: str | None, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TEST_KEY", value)
    with (
        ScriptedServer(slow, preflight=refuse(status, "I won't: sk-secret")) as server,
        pytest.raises(TargetError, match="I won't") as caught,
    ):
        drive(server.url, tmp_path, target=make_target(server.url, api_key_env=env))
    assert hint in (caught.value.hint or "")
    assert value is None or value not in str(caught.value)
    assert status[:3] in str(caught.value)
    assert server.exchanges == []


def test_a_passing_500_before_the_load_is_tried_again(tmp_path: Path) -> None:
    def preflight(x: Exchange) -> None:
        first = len(x.server.preflights) == 1
        x.send(sized(b"warming up", "503 Busy") if first else chunked(answer(2)))

    with ScriptedServer(lambda x: x.send(chunked(answer(2))), preflight=preflight) as server:
        assert drive(server.url, tmp_path).log.outcome.tolist() == [Outcome.OK] * 3


def test_stop_before_any_load(tmp_path: Path) -> None:
    def hang(x: Exchange) -> None:
        x.server.release.wait(30)

    with ScriptedServer(slow, preflight=hang) as server:
        result = drive(server.url, tmp_path, should_stop=lambda: "enough" if server.preflights else None)
    assert result.interrupted
    assert result.window is None
    assert len(result.log) == 0


def test_stop_in_warm_up_keeps_the_log(tmp_path: Path) -> None:
    with ScriptedServer(slow) as server:
        result = drive(
            server.url, tmp_path, load=CLOSED, warmup_s=60.0, should_stop=lambda: "enough" if len(server.exchanges) > 6 else None
        )  # fmt: skip
    assert result.interrupted
    assert result.window is None
    assert Outcome.OK in result.log.outcome


def test_stop_while_measuring_cuts_the_window(tmp_path: Path) -> None:
    with ScriptedServer(slow) as server:
        result = drive(
            server.url, tmp_path, load=CLOSED, warmup_s=0.0, duration_s=60.0,
            should_stop=lambda: "enough" if len(server.exchanges) > 20 else None,
        )  # fmt: skip
    assert result.interrupted
    assert result.window is not None
    assert 0 < result.window.seconds < 50
    assert set(result.log.outcome) <= {Outcome.OK, Outcome.CANCELLED}
    assert result.log.closed_ns.max() >= result.window.t1_ns - 1e9


def test_stop_while_draining_keeps_the_whole_window(tmp_path: Path) -> None:
    phases: list[str] = []

    def reply(x: Exchange) -> None:
        slow(x, 30 if "measure" in phases else 0.005)

    with ScriptedServer(reply) as server:
        result = drive(
            server.url, tmp_path, load=CLOSED, warmup_s=0.0, duration_s=0.8, grace_s=30.0,
            on_progress=lambda p: phases.append(p.phase), should_stop=lambda: "enough" if "drain" in phases else None,
        )  # fmt: skip
    assert result.interrupted
    assert result.window is not None
    assert result.window.seconds == pytest.approx(0.8)
    assert result.log.outcome[-1] == Outcome.CANCELLED


def test_a_server_that_goes_away_is_not_hammered(tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        slow(x, 0.005)
        if x.number > 40:
            x.server.stop()

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=CLOSED, warmup_s=0.0, duration_s=1.0, grace_s=0.5)
    log = result.log
    refused = int((log.outcome == Outcome.CONNECT).sum())
    assert 2 <= refused < 40
    assert "can't connect" in (log.error[-1] or "") or Outcome.CANCELLED in log.outcome[-2:]


def workers_of(pid: int) -> list[psutil.Process]:
    return [p for p in psutil.Process(pid).children() if any("bench.load.worker" in part for part in p.cmdline())]


def test_a_killed_worker_is_an_error_and_leaves_what_it_saw(tmp_path: Path) -> None:
    plan_folder = tmp_path / "spill"

    def stop() -> None:
        """Never asks to stop: kills the worker once it has something to lose."""
        if len(server.exchanges) > 20 and spill_path(plan_folder, 0).stat().st_size > 2000:
            for worker in workers_of(os.getpid()):
                worker.send_signal(signal.SIGKILL)

    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="load worker 0 was ended by SIGKILL"):
        drive(server.url, tmp_path, load=CLOSED, duration_s=60.0, should_stop=stop)
    log = recover(plan_folder)
    assert Outcome.OK in log.outcome
    assert len(log) > 5
    assert workers_of(os.getpid()) == []


def test_a_full_disk_is_an_error_not_a_hang(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    folder.mkdir()
    spill_path(folder, 0).symlink_to("/dev/full")
    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="No space left on device") as caught:
        drive(server.url, tmp_path, load=CLOSED, duration_s=60.0)
    assert caught.value.hint


def test_a_spill_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("in the way")
    with pytest.raises(LoadError, match="spill"):
        drive("http://127.0.0.1:9", tmp_path)


CHILD = """
import sys
from pathlib import Path
from bench.load import WireLoad
from bench.ports import LoadPlan
from bench.records import LoadSpec
from tests.load.scripted import make_case, make_target
case = make_case(load=LoadSpec(kind="closed", batch_size=2), duration_s=600.0)
plan = LoadPlan(case=case, target=make_target(sys.argv[1]), salt="s", spill_dir=Path(sys.argv[2]))
WireLoad().run(plan, lambda _: None, lambda: None)
"""


def test_workers_die_with_a_killed_parent_and_their_log_can_be_recovered(tmp_path: Path) -> None:
    with ScriptedServer(slow) as server:
        parent = subprocess.Popen([sys.executable, "-c", CHILD, server.url, str(tmp_path)], cwd=Path(__file__).parents[2])
        try:
            until(lambda: len(server.exchanges) > 20)
            workers = workers_of(parent.pid)
            assert len(workers) == 1
        finally:
            parent.kill()
            parent.wait()
        until(lambda: not any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers))
    log = recover(tmp_path)
    assert len(log) > 5
    assert Outcome.OK in log.outcome


def test_workers_import_no_command_line_and_no_database() -> None:
    code = (
        "import sys, bench.load.worker; print([m for m in ('click', 'duckdb', 'rich', 'pydantic', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "[]"


def test_ctrl_c_in_the_harness_ends_the_workers(tmp_path: Path) -> None:
    def told(_: LoadProgress) -> None:
        raise KeyboardInterrupt

    with ScriptedServer(slow) as server, pytest.raises(KeyboardInterrupt):
        drive(server.url, tmp_path, load=CLOSED, on_progress=told)
    assert workers_of(os.getpid()) == []
