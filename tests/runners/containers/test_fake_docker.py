"""The fake Docker does what Docker's reference says of it: otherwise nothing that is shown with it would mean anything.

Source: docs.docker.com, `docker container run` (exit status, --init, --rm, --sig-proxy), `docker inspect`, `docker container rm`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from bench.testing.processes import eventually
from tests.runners.containers.site import FakeDocker


@pytest.fixture
def image(docker: FakeDocker) -> str:
    docker.image("sh:1")
    return "sh:1"


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (("--rm", "{}", "sh", "-c", "echo out; echo err >&2; exit 7"), 7, "out\n", "err\n"),
        (("--rm", "{}", "sh", "-c", "kill -9 $$"), 137, "", ""),
        (("--rm", "--entrypoint", "sh", "{}", "-c", "exit 3"), 3, "", ""),
        (("--rm", "{}", "no-such-program"), 127, "", "executable file not found in $PATH"),
        (("--rm", "{}", "/etc/passwd"), 126, "", "permission denied"),
        (("--no-such-flag", "{}"), 125, "", "unknown flag: --no-such-flag"),
        (("--rm", "--pull", "never", "none:1"), 125, "", "Error response from daemon: No such image: none:1"),
        (("--rm", "none:1"), 125, "", "Unable to find image 'none:1' locally"),
        (("--rm", "--gpus", "all", "{}", "true"), 125, "", 'could not select device driver "" with capabilities: [[gpu]]'),
        (("--rm", "--runtime", "habana", "{}", "true"), 125, "", "unknown or invalid runtime name: habana"),
        (("--rm", "--device", "/dev/nothing", "{}", "true"), 125, "", "error gathering device information"),
        (
            ("--rm", "--mount", "type=bind,source=/none,target=/x", "{}", "true"),
            125,
            "",
            "bind source path does not exist: /none",
        ),
    ],
)
def test_exit_status_and_words(docker: FakeDocker, image: str, words: tuple[str, ...], code: int, out: str, err: str) -> None:
    done = docker.run("run", *(word.format(image) for word in words))
    assert (done.returncode, done.stdout) == (code, out)
    assert err in done.stderr


def test_a_container_stays_until_it_is_removed(docker: FakeDocker, image: str) -> None:
    assert docker.run("run", "--name", "x", "--label", "a=b", image, "sh", "-c", "echo hello; exit 5").returncode == 5
    assert docker.run("ps", "--quiet").stdout == ""
    state = json.loads(docker.run("inspect", "--format", "{{json .State}}", "x").stdout)
    assert (state["Status"], state["ExitCode"], state["Pid"], state["OOMKilled"]) == ("exited", 5, 0, False)
    assert docker.run("logs", "x").stdout == "hello\n"
    for wanted, found in (("a", 1), ("a=b", 1), ("a=c", 0), ("b", 0)):
        assert len(docker.run("ps", "--all", "--quiet", "--filter", f"label={wanted}").stdout.split()) == found
    again = docker.run("run", "--name", "x", image, "true")
    assert again.returncode == 125
    assert 'The container name "/x" is already in use' in again.stderr
    assert docker.run("rm", "x").stdout == "x\n"
    assert docker.run("rm", "x").returncode == 1
    forced = docker.run("rm", "--force", "x")
    assert (forced.returncode, "No such container: x" in forced.stderr) == (0, True)


def test_a_container_outlives_its_client(docker: FakeDocker, image: str) -> None:
    client = subprocess.Popen([docker.program, "run", "--name", "x", image, "sleep", "600"])
    eventually(lambda: len(docker.run("ps", "--quiet").stdout.split()) == 1, "it does not run")
    pid = docker.containers()[0]["State"]["Pid"]
    assert client.pid not in [parent.pid for parent in psutil.Process(pid).parents()]
    client.kill()
    client.wait()
    assert psutil.pid_exists(pid)
    assert docker.run("rm", "x").returncode == 1  # it runs
    assert docker.run("rm", "--force", "x").returncode == 0
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(("init", "ends"), [("--init", True), ("--tty", False)])
def test_without_an_init_sigterm_means_nothing(docker: FakeDocker, image: str, init: str, ends: bool) -> None:
    client = subprocess.Popen([docker.program, "run", "--rm", init, "--name", "x", image, "sleep", "600"])
    eventually(lambda: len(docker.run("ps", "--quiet").stdout.split()) == 1, "it does not run")
    eventually(lambda: os.getpgid(client.pid) > 0 and _proxies(client.pid), "the client does not listen for signals yet")
    client.send_signal(signal.SIGTERM)
    if ends:
        assert client.wait(30) == 128 + signal.SIGTERM
    else:
        time.sleep(0.3)  # there is nothing to wait for: it goes on
        assert client.poll() is None
        docker.run("stop", "--time", "0", "x")
        assert client.wait(30) == 128 + signal.SIGKILL


def _proxies(pid: int) -> bool:
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)))


def test_all_processes_end_with_the_first(docker: FakeDocker, image: str) -> None:
    done = docker.run("run", "--detach", "--name", "x", image, "sh", "-c", "setsid sleep 600 & sleep 600")
    assert len(done.stdout.strip()) == 64
    main = psutil.Process(docker.containers()[0]["State"]["Pid"])
    eventually(lambda: len(main.children()) == 2, "its children do not run")
    children = main.children()
    main.kill()
    eventually(lambda: not any(child.is_running() for child in children), "a child outlived it")
    eventually(lambda: docker.containers()[0]["State"]["ExitCode"] == 137, "its end is not known")
    docker.run("rm", "x")


def test_its_environment_is_the_images_and_what_is_given(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.image("env:1", OF_IMAGE="1", BOTH="image")
    monkeypatch.setenv("OF_CLIENT", "1")
    done = docker.run("run", "--rm", "--env", "BOTH=run", "--env", "OF_CLIENT", "env:1", "env")
    assert {"OF_IMAGE=1", "BOTH=run", "OF_CLIENT=1"} <= set(done.stdout.split())
    assert "OF_CLIENT=1" not in docker.run("run", "--rm", "env:1", "env").stdout
