"""The `docker` or `podman` program of this host: where it is, what it says, and what its complaints mean."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from bench.errors import EngineMissing
from bench.runners import warden
from bench.runners.diagnosis import Diagnosis, diagnose, words
from bench.runners.environment import Said, run_short

Tool = Literal["docker", "podman"]
_ASK_LIMIT_S = 20.0
"""A daemon that gives no answer by then [s] gives none."""
_LOOK_LIMIT_S = 5.0
"""The same where it is only looked whether something is left [s]."""
_INSTALL = {
    "docker": "install Docker Engine (https://docs.docker.com/engine/install/), or write launch: podman",
    "podman": "install Podman (apt install podman, dnf install podman), or write launch: docker",
}
WORDS = (
    words(
        "socket_permission",
        "you may not speak to the container daemon",
        "sudo usermod -aG docker $USER and log in again, or write launch: podman",
        r"permission denied while trying to connect to the docker",
    ),
    words(
        "daemon",
        "the container daemon does not run",
        "start it: sudo systemctl start docker",
        r"cannot connect to the docker daemon",
        r"cannot connect to podman",
        r"error during connect:",
    ),
    words(
        "image",
        "the image is not on this host, and bench pulls none by itself",
        "pull it by hand, so that its size and time are no surprise",
        r"no such image",
        r"image not known",
        r"unable to find image",
    ),
    words(
        "port",
        "the port was taken by another process",
        "run it again: another free port is chosen",
        r"port is already allocated",
        r"ports are not available",
        r"rootlessport .{0,40}address already in use",
    ),
    words(
        "name",
        "a container of this name is there already",
        "run it again: another name is chosen",
        r"container name \S+ is already in use",
    ),
    words(
        "device_runtime",
        "the container runtime does not know the vendor's devices",
        "install the vendor's container toolkit and restart the daemon (NVIDIA: nvidia-container-toolkit, then "
        "sudo nvidia-ctk runtime configure; for podman: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml)",
        r"could not select device driver",
        r"unresolvable CDI devices",
        r"unknown or invalid runtime name",
        r"default OCI runtime \S+ not found",
        r"nvidia-container-cli:",
    ),
    words(
        "device_node",
        "a device that was to be handed to the container is not there",
        "check the driver with `bench doctor`",
        r"error gathering device information",
        r"stat /dev/\S+: no such file or directory",
    ),
    words(
        "mount",
        "a folder that was to be mounted is not there",
        "check the path that the message names; a daemon on another machine sees other folders",
        r"bind source path does not exist",
        r"statfs \S+: no such file or directory",
    ),
    words(
        "program",
        "the image does not have the program that is to run",
        "name the Python in the image with engine_python (as in python, or /opt/venv/bin/python), or take the engine's own image",
        r"executable file not found in \$PATH",
        r"exec: \S+ (stat \S+ )?no such file or directory",
        r"no such file or directory: OCI runtime attempted to invoke",
        r"command that was not found",
    ),
    words("arch", "the image is for another processor", "take the image for this one", r"exec format error"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image on this host. `digest` is what a registry calls it, None for one that came from none. `entrypoint`: what it runs
    its command with.
    """

    id: str
    digest: str | None
    entrypoint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a container stands. `pid` is its first process on this host, 0 where none runs."""

    pid: int
    oom_killed: bool
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The program, and the version of what does the work (the daemon of docker, podman itself)."""

    tool: Tool
    path: str
    version: str = ""

    def image(self, name: str) -> Image:
        """The image called `name`. Raises: EngineMissing where it is not here, with the line that pulls it."""
        said = self.ask("image", "inspect", name)
        found = _json(said.out)
        if said.status != 0 or not found:
            raise self.missing(f"image {name}", said, pull=name)
        config = found[0].get("Config") or {}
        entrypoint = config.get("Entrypoint") or ()
        return Image(
            id=str(found[0]["Id"]).removeprefix("sha256:"),
            digest=next(iter(found[0].get("RepoDigests") or ()), None),
            entrypoint=(entrypoint,) if isinstance(entrypoint, str) else tuple(entrypoint),
        )

    def state(self, name: str) -> State | None:
        """How the container called `name` stands; None where there is none."""
        found = _json(self.ask("inspect", "--type", "container", name).out)
        if not found:
            return None
        state, config = found[0]["State"], found[0].get("Config") or {}
        return State(
            pid=int(state.get("Pid") or 0), oom_killed=bool(state.get("OOMKilled")), labels=dict(config.get("Labels") or {})
        )

    def labelled(self, label: str) -> tuple[str, ...]:
        """Ids of all containers with `label`, running or not."""
        said = run_short((self.path, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}"), _LOOK_LIMIT_S)
        return tuple(said.out.split()) if said.status == 0 else ()

    def removal(self, name: str) -> tuple[str, ...]:
        """The command that ends and removes a container."""
        return (self.path, "rm", "--force", "--volumes", name)

    def remove(self, name: str) -> str | None:
        """End and remove a container. Returns what went wrong; one that is not there is no problem."""
        said = run_short(self.removal(name), warden.REMOVAL_LIMIT_S)
        gone = said.status == 0 or "no such container" in said.err.lower()
        return None if gone else said.last_words or "no answer"

    def ask(self, *arguments: str) -> Said:
        """What the program answers to a question. Raises: EngineMissing where it can't be run."""
        return run_short((self.path, *arguments), _ASK_LIMIT_S)

    def missing(self, what: str, said: Said, *, pull: str | None = None) -> EngineMissing:
        """Why `what` can't be had, in plain words."""
        known = explain(said)
        if known is None:
            why = "it gives no answer" if said.status is None else said.last_words
            return EngineMissing(f"{what}: {self.tool} says: {why}", hint=f"try by hand: {self.tool} version")
        hint = f"{self.tool} pull {pull}" if known.kind == "image" and pull else known.hint
        return EngineMissing(f"{what}: {known.cause}", hint=hint)


def explain(said: Said) -> Diagnosis | None:
    """What a complaint of the program means."""
    found = diagnose(said.err, None, WORDS)
    return found if found in [row for row, _ in WORDS] else None


def find_client(tool: Tool) -> Client:
    """The client called `tool`, with a daemon that answers. Raises: EngineMissing with the next step."""
    if not sys.platform.startswith("linux"):
        raise EngineMissing(
            f"launch: {tool} needs Linux: elsewhere containers run in a virtual machine, which has no accelerator",
            hint="write launch: process",
        )
    path = shutil.which(tool)
    if path is None:
        raise EngineMissing(f"launch: {tool}, but there is no program {tool} on PATH", hint=_INSTALL[tool])
    return _answering(tool, path)


@cache
def _answering(tool: Tool, path: str) -> Client:
    wanted = "{{.Server.Version}}" if tool == "docker" else "{{.Client.Version}}"
    client = Client(tool=tool, path=path)
    said = client.ask("version", "--format", wanted)
    if said.status != 0 or not said.out.strip():
        raise client.missing(f"launch: {tool}", said)
    return Client(tool=tool, path=path, version=said.out.strip())


def installed_clients() -> tuple[Client, ...]:
    """The programs that are on PATH; whether their daemons answer is not asked."""
    found: Sequence[Tool] = ("docker", "podman")
    return tuple(Client(tool=tool, path=path) for tool in found if (path := shutil.which(tool)))


def _json(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return found if isinstance(found, list) else []
