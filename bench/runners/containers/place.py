"""A container image as the place that has an engine: what is asked of an engine is asked in a short container of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from bench.errors import EngineMissing
from bench.records import Case, ContainerSpec
from bench.runners.containers.client import Client, explain, find_client
from bench.runners.containers.devices import HostFiles, device_flags, vendor_here
from bench.runners.containers.labels import label_flags, new_name
from bench.runners.environment import Environment, Said, Sought, ask_shim, find_python, run_short

_ASK_LIMIT_S = 60.0
_DAEMON_FAILED = 125
"""Exit status of `docker run` where nothing was run."""
_INITS = ("tini", "dumb-init", "docker-init")
COMMON = ("--init", "--pull", "never", "--log-driver", "none")
"""For every container. `--init`: without one, the engine is process 1, to which a SIGTERM that it has no handler for means
nothing, and nobody reaps its children. Its log comes to us: kept by the daemon as well, it would fill its disk.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """An image that has an engine, and how containers of it are set up. Fills `Environment`.

    `devices` are the flags that show a question all boards of this host; `entrypoint` is what the image runs by itself.
    """

    client: Client
    spec: ContainerSpec
    image_id: str
    digest: str | None
    entrypoint: tuple[str, ...]
    interpreter: str
    devices: tuple[str, ...] = ()

    @property
    def keeps_entrypoint(self) -> bool:
        """Whether the image's entrypoint runs what it is given after setting something up, rather than an engine of its own: an
        init, a script called so, or a shell that ends in `--`, as in the images of CANN.
        """
        if not self.entrypoint:
            return False
        program = PurePosixPath(self.entrypoint[0]).name
        return program in _INITS or "entrypoint" in program or self.entrypoint[-1] == "--"

    @property
    def where(self) -> str:
        return f"image {self.spec.image} ({self.client.tool}, {self.image_id[:12]})"

    def python(self, *arguments: str) -> tuple[str, ...]:
        return (self.interpreter, *arguments)

    def program(self, name: str) -> str | None:
        return _program(self, name)

    def ask(self, command: Sequence[str], timeout_s: float) -> Said:
        name = new_name("question")
        line = [self.client.path, "run", "--rm", "--name", name, *label_flags("", "question"), "--network", "none"]
        line += [*self.base_flags(), *self.devices, *self.command(command)]
        said: Said | None = None
        try:
            said = run_short(line, timeout_s)
        finally:
            if said is None or said.status is None:  # we gave up, and only the client has ended
                self.client.remove(name)
        if said.status is not None and said.status >= _DAEMON_FAILED and (said.status == _DAEMON_FAILED or explain(said)):
            raise self.client.missing(self.where, said, pull=self.spec.image)
        return said

    def base_flags(self) -> list[str]:
        """What all containers of it have in common."""
        line = [*COMMON, "--shm-size", self.spec.shm_size, "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
        if self.client.tool == "podman":
            line += ["--security-opt", "label=disable"]  # on hosts with SELinux no mounted weights could be read
        if self.spec.user is not None:
            line += ["--user", self.spec.user, "--env", "HOME=/tmp"]  # whoever is not in its passwd has no home
        return line

    def command(self, argv: Sequence[str]) -> list[str]:
        """The end of the line: the image, and what runs in it."""
        if self.keeps_entrypoint:
            return [self.spec.image, *argv]
        return ["--entrypoint", argv[0], self.spec.image, *argv[1:]]


@cache
def _program(container: Container, name: str) -> str | None:
    answer = ask_shim(container, "which", {"name": name}, timeout_s=_ASK_LIMIT_S)
    found = None if isinstance(answer, Said) else answer.get("path")
    return found if isinstance(found, str) else None


def find_engine(sought: Sought, case: Case, *, install: str) -> Environment:
    """The place that has the engine of `case`: its container, else a Python of this host. Raises: EngineMissing."""
    if case.container is None:
        return find_python(sought, case.engine_python, install=install)
    return container_of(case)


def container_of(case: Case) -> Container:
    """The container of `case`, whose `engine_python` is then one in the image. Raises: EngineMissing."""
    assert case.container is not None
    wants_cpu = case.devices == ("cpu",)
    return _container(find_client(case.container.tool), case.container, case.engine_python or "python3", wants_cpu)


def refuse_container(case: Case, instead: str) -> None:
    """For engines that are found in no container. Raises: EngineMissing."""
    if case.container is not None:
        raise EngineMissing(f"{case.engine} is not started in containers by bench", hint=instead)


@cache
def _container(client: Client, spec: ContainerSpec, interpreter: str, wants_cpu: bool) -> Container:
    image = client.image(spec.image)
    host = HostFiles()
    return Container(
        client=client,
        spec=spec,
        image_id=image.id,
        digest=image.digest,
        entrypoint=image.entrypoint,
        interpreter=interpreter,
        devices=() if wants_cpu else device_flags(client.tool, vendor_here(host), (), host),
    )
