"""What every container of ours carries: whose it is. And the end of those whose owner is gone."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.errors import EngineMissing
from bench.identity import digest
from bench.process_life import lives, started_s
from bench.runners.containers.client import Client, installed_clients

OWNER = "tokjoule.owner"
"""Label with the process that a container belongs to: its pid, and its start as Unix time [s]."""
_HOST = "tokjoule.host"
_RUN = "tokjoule.run"
_ENGINE = "tokjoule.engine"


def new_name(what: str) -> str:
    """A name that no other container has."""
    return f"tokjoule-{what}-{os.getpid()}-{secrets.token_hex(4)}"


def label_flags(run_id: str, engine: str) -> list[str]:
    """The labels of a container that is started now: `engine` tells one start of a run from the others."""
    pid = os.getpid()
    labels = {OWNER: f"{pid}:{started_s(pid):.2f}", _HOST: _host(), _RUN: run_id, _ENGINE: engine}
    return [flag for name, value in labels.items() for flag in ("--label", f"{name}={value}")]


def reap(clients: Iterable[Client] | None = None) -> Iterator[str]:
    """End and remove the containers whose owner is gone, as after `kill -9`; one line for each of them. Those of other hosts and
    of other pid namespaces, which a shared daemon shows too, are left alone: nothing can be said of their owners from here.
    """
    for client in installed_clients() if clients is None else clients:
        try:
            for name in client.labelled(OWNER):
                yield from _reap_one(client, name)
        except EngineMissing:  # it went away as we looked
            continue


def _reap_one(client: Client, name: str) -> Iterator[str]:
    state = client.state(name)
    if state is None or state.labels.get(_HOST) != _host() or _has_owner(state.labels.get(OWNER, "")):
        return
    problem = client.remove(name)
    run = state.labels.get(_RUN) or "no run"
    if problem is None:
        yield f"a container that {run} had left was ended and removed: {client.tool} {name[:12]}"
    else:
        yield f"a container that {run} had left can't be removed ({problem}): try {' '.join(client.removal(name[:12]))}"


def _has_owner(label: str) -> bool:
    """A label that can't be read counts as one of a living owner: nobody else's container may be ended."""
    pid, _, start = label.partition(":")
    try:
        return lives(int(pid), float(start))
    except ValueError:
        return True


def _host() -> str:
    """Where a pid means the same process: this host and this pid namespace."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return digest(["host", platform.node(), namespace])
