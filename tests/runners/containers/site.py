"""A host with a fake Docker: its daemon, the program on PATH, and images whose engine is a scripted one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.testing import processes

HERE = Path(__file__).parent
IMAGE = "vllm/vllm-openai:v0.32.0"


@dataclass
class FakeDocker:
    """The daemon in `folder`. `images` and `host` are what it reads anew for each command (see `fake_dockerd`)."""

    folder: Path
    images: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where its daemon listens."""
        return f"unix://{self.folder}/socket"

    @property
    def program(self) -> str:
        """The client; podman is the same one by another name."""
        return str(self.folder / "bin" / "docker")

    def image(self, name: str = IMAGE, *, path: Path | None = None, entrypoint: list[str] | None = None, **env: str) -> None:
        """Have an image whose programs are those in `path`, with `env` of its own, and a test's two variables."""
        passed = {name: os.environ[name] for name in (processes.TREE, "SCRIPTED_ENGINE") if name in os.environ}
        programs = "/usr/bin:/bin" if path is None else f"{path}:/usr/bin:/bin"
        pairs = {"PATH": programs, **passed, **env}
        config = {"Env": [f"{name}={value}" for name, value in pairs.items()], "Entrypoint": entrypoint, "Cmd": None}
        digest = f"{name.partition(':')[0]}@sha256:{'ab' * 32}"
        self.images[name] = {"RepoDigests": [digest], "Config": config, "Architecture": "amd64"}
        (self.folder / "images.json").write_text(json.dumps(self.images))

    def host(self, **facts: Any) -> None:
        """What its host has: `gpus`, `runtimes`, `oom`."""
        (self.folder / "host.json").write_text(json.dumps(facts))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a person would see who types `docker WORDS`."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("FAKE_DOCKER_")}
        env["DOCKER_HOST"] = self.address
        return subprocess.run([self.program, *words], capture_output=True, text=True, timeout=30, check=False, env=env)

    def containers(self) -> list[dict[str, Any]]:
        """All of them, as `docker inspect` tells them. Asked of the daemon, as tests poll it: each client is a process."""
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(self.address.removeprefix("unix://"))
            link.sendall(b'{"do": "ps"}\n')
            with link.makefile("rb") as answer:
                found = json.loads(answer.readline())
        assert isinstance(found, list)
        return found

    def clear(self) -> None:
        """End and remove all."""
        for container in self.containers():
            self.run("rm", "--force", container["Id"])


@contextmanager
def fake_docker(folder: Path) -> Iterator[FakeDocker]:
    """A daemon for as long as the block lasts; whatever runs in it ends with it."""
    (folder / "bin").mkdir(parents=True)
    found = FakeDocker(folder)
    found.host()
    (folder / "images.json").write_text("{}")
    program = Path(found.program)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{HERE / "fake_docker.py"}" "$@"\n')
    program.chmod(0o755)
    program.with_name("podman").symlink_to(program)
    clean = {"PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-S", "-E", str(HERE / "fake_dockerd.py"), str(folder)]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, env=clean, start_new_session=True)
    try:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ready\n"
        yield found
    finally:
        for process in [*psutil.Process(daemon.pid).children(recursive=True), psutil.Process(daemon.pid)]:
            process.kill()
        daemon.communicate()
