"""A daemon that runs "containers" as local process trees: `python fake_dockerd.py FOLDER`. Standard library only.

FOLDER has `socket`, `images.json` (name to what `docker image inspect` tells) and `host.json` (`gpus`: its NVIDIA runtime is
there; `runtimes`: others; `oom`: whatever is killed was killed for memory). What is not here: namespaces and layers.

As in Docker: containers are children of the daemon, not of the client, and outlive a client that dies; they end with their first
process, all of them; without an init that process ignores signals that it has no handler for; they stay until they are removed,
unless `--rm`.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

_PR_SET_CHILD_SUBREAPER = 36
_KEPT = ("network", "shm_size", "ulimits", "devices", "gpus", "mounts", "publish", "runtime", "init", "log_driver")
_NEVER = "0001-01-01T00:00:00Z"


class Refused(Exception):
    def __init__(self, message: str, code: int = 125) -> None:
        super().__init__(message)
        self.code = code


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())


class Container:
    """One container: made, started, ended, removed."""

    def __init__(self, order: dict[str, Any], image: dict[str, Any]) -> None:
        self.id = secrets.token_hex(32)
        self.name = order["name"] or f"odd_name_{self.id[:6]}"
        self.order = order
        self.image = image
        self.created = now()
        self.state = {"Status": "created", "Running": False, "OOMKilled": False, "Pid": 0, "ExitCode": 0, "Error": ""}
        self.times = {"StartedAt": _NEVER, "FinishedAt": _NEVER}
        self.log = b""
        self.over = threading.Event()
        self.attached: list[Any] = []
        config = image["Config"]
        given_one = order["entrypoint"] is not None
        entrypoint = [order["entrypoint"]] if given_one else config.get("Entrypoint") or []
        self.argv = [*entrypoint, *(order["command"] or ([] if given_one else config.get("Cmd") or []))]
        base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOSTNAME": self.id[:12], "HOME": "/root"}
        given = (pair.partition("=") for pair in [*(config.get("Env") or []), *order["env"]])
        self.env = base | {name: value for name, _, value in given}

    def start(self, *, oom: bool) -> None:
        """Run its first process, under a shim as containerd's. Raises: Refused where that can't be run."""
        program = shutil.which(self.argv[0], path=self.env["PATH"])
        if program is None:
            is_there = Path(self.argv[0]).exists()
            why = "permission denied" if is_there else "executable file not found in $PATH"
            code = 126 if is_there else 127
            self.state |= {"ExitCode": code}
            raise Refused(
                "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
                f'unable to start container process: error during container init: exec: "{self.argv[0]}": {why}: unknown',
                code,
            )
        (out_read, out), (err_read, err), (report, report_write) = os.pipe(), os.pipe(), os.pipe()
        order = {"argv": [program, *self.argv[1:]], "env": self.env, "init": self.order["init"], "report": report_write}
        words = [sys.executable, "-S", "-E", __file__, "--shim", json.dumps(order)]
        shim = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, pass_fds=(report_write,)
        )
        for fd in (out, err, report_write):
            os.close(fd)
        readers = [
            threading.Thread(target=self._read, args=pair, daemon=True) for pair in (("stdout", out_read), ("stderr", err_read))
        ]
        for reader in readers:
            reader.start()
        self.state |= {"Status": "running", "Running": True, "Pid": int(_line(report))}
        self.times["StartedAt"] = now()
        threading.Thread(target=self._wait, args=(shim, report, readers, oom), daemon=True).start()

    def _read(self, stream: str, fd: int) -> None:
        while data := os.read(fd, 65536):
            if self.order["log_driver"] != "none":
                self.log += data
            message = json.dumps({"stream": stream, "data": base64.b64encode(data).decode()}).encode() + b"\n"
            for client in list(self.attached):
                try:
                    client.sendall(message)
                except OSError:  # the client has gone, the container has not
                    self.attached.remove(client)
        os.close(fd)

    def _wait(self, shim: subprocess.Popen[bytes], report: int, readers: list[threading.Thread], oom: bool) -> None:
        text = _line(report)
        os.close(report)
        shim.wait()
        for reader in readers:
            reader.join()
        code = int(text or 137)
        killed = oom and code == 137
        self.state |= {"Status": "exited", "Running": False, "Pid": 0, "ExitCode": code, "OOMKilled": killed}
        self.times["FinishedAt"] = now()
        self.over.set()

    def kill(self, number: int) -> None:
        if self.state["Running"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.state["Pid"], number)  # type: ignore[arg-type]

    def document(self) -> dict[str, Any]:
        """What `docker inspect` tells."""
        order = self.order
        return {
            "Id": self.id,
            "Created": self.created,
            "Path": self.argv[0],
            "Args": self.argv[1:],
            "State": {**self.state, "Paused": False, "Restarting": False, "Dead": False, **self.times},
            "Image": self.image["Id"],
            "Name": "/" + self.name,
            "HostConfig": {
                name: order[name] for name in ("network", "shm_size", "ulimits", "devices", "gpus", "mounts", "publish")
            },
            "Config": {
                "Image": order["image"],
                "Labels": order["labels"],
                "Env": [f"{name}={value}" for name, value in self.env.items()],
                "User": order["user"] or "",
            },
        }


def _line(fd: int) -> str:
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            break
        text += byte
    return text.decode().strip()


class Daemon:
    """All containers, and what can be asked of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.containers: dict[str, Container] = {}
        self.lock = threading.Lock()

    def host(self) -> dict[str, Any]:
        found = json.loads((self.folder / "host.json").read_text())
        assert isinstance(found, dict)
        return found

    def find(self, name: str) -> Container:
        for container in list(self.containers.values()):
            if name == container.name or container.id.startswith(name):
                return container
        raise Refused(f"No such container: {name}", 1)

    def image(self, name: str) -> dict[str, Any]:
        images = json.loads((self.folder / "images.json").read_text())
        if name not in images:
            raise Refused(f"No such image: {name}")
        found = images[name]
        assert isinstance(found, dict)
        return {"Id": "sha256:" + hashlib.sha256(name.encode()).hexdigest(), "RepoTags": [name], **found}

    def create(self, order: dict[str, Any]) -> Container:
        image = self.image(order["image"])
        for mount in order["mounts"]:
            if mount.get("type") == "bind" and not Path(mount["source"]).exists():
                raise Refused(f'invalid mount config for type "bind": bind source path does not exist: {mount["source"]}')
        host = self.host()
        if order["runtime"] not in (None, "runc", *host.get("runtimes", [])):
            raise Refused(f"unknown or invalid runtime name: {order['runtime']}")
        with self.lock:
            for other in self.containers.values():
                if other.name == order["name"]:
                    raise Refused(
                        f'Conflict. The container name "/{order["name"]}" is already in use by container "{other.id}". '
                        "You have to remove (or rename) that container to be able to reuse that name."
                    )
            container = Container(order, image)
            self.containers[container.id] = container
        return container

    def start(self, container: Container) -> None:
        order, host = container.order, self.host()
        for device in order["devices"]:
            if not Path(device.split(":")[0]).exists():
                raise Refused(
                    f'error gathering device information while adding custom device "{device}": no such file or directory'
                )
        if order["gpus"] and not host.get("gpus"):
            raise Refused('could not select device driver "" with capabilities: [[gpu]]')
        for published in order["publish"]:
            address, port, _ = published.split(":")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((address, int(port)))
                except OSError:
                    raise Refused(
                        "failed to set up container networking: driver failed programming external connectivity on endpoint "
                        f"{container.name} ({container.id}): Bind for {address}:{port} failed: port is already allocated"
                    ) from None
        container.start(oom=bool(host.get("oom")))

    def remove(self, name: str, *, force: bool) -> None:
        container = self.find(name)
        if container.state["Running"]:
            if not force:
                raise Refused(f'cannot remove container "{container.name}": container is running: stop the container before '
                              "removing or force remove", 1)  # fmt: skip
            container.kill(signal.SIGKILL)
            container.over.wait(10)
        self.containers.pop(container.id, None)

    def stop(self, name: str, grace_s: float) -> None:
        container = self.find(name)
        container.kill(signal.SIGTERM)
        if container.state["Running"] and not container.over.wait(grace_s):
            container.kill(signal.SIGKILL)
            container.over.wait(10)


class Connection(socketserver.StreamRequestHandler):
    """One command of a client."""

    daemon: ClassVar[Daemon]

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        try:
            answer = getattr(self, "do_" + request.pop("do"))(**request)
        except Refused as problem:
            answer = {"error": str(problem), "code": problem.code}
        with contextlib.suppress(OSError):
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    def do_version(self) -> Any:
        return {"Version": "28.2.2", "ApiVersion": "1.50"}

    def do_image(self, name: str) -> Any:
        return self.daemon.image(name)

    def do_inspect(self, name: str) -> Any:
        return self.daemon.find(name).document()

    def do_ps(self) -> Any:
        return [container.document() for container in list(self.daemon.containers.values())]

    def do_kill(self, name: str, number: int) -> Any:
        self.daemon.find(name).kill(number)
        return {}

    def do_stop(self, name: str, grace_s: float) -> Any:
        self.daemon.stop(name, grace_s)
        return {}

    def do_rm(self, name: str, force: bool) -> Any:
        self.daemon.remove(name, force=force)
        return {}

    def do_logs(self, name: str) -> Any:
        container = self.daemon.find(name)
        if container.order["log_driver"] == "none":
            raise Refused("configured logging driver does not support reading", 1)
        return {"log": container.log.decode("utf-8", "replace")}

    def do_exec(self, name: str, command: list[str]) -> Any:
        container = self.daemon.find(name)
        if not container.state["Running"]:
            raise Refused(f"container {container.id} is not running", 1)
        done = subprocess.run(command, env=container.env, capture_output=True, text=True, check=False)
        return {"out": done.stdout, "err": done.stderr, "code": done.returncode}

    def do_run(self, order: dict[str, Any]) -> Any:
        """Create, attach, start, and stream until it ends: as `docker run` does in three requests."""
        container = self.daemon.create(order)
        if not order["detach"]:
            container.attached.append(self.request)
        try:
            self.daemon.start(container)
        except Refused:
            if order["rm"]:
                self.daemon.containers.pop(container.id, None)
            raise
        if order["detach"]:
            return {"id": container.id}
        with contextlib.suppress(OSError):
            self.wfile.write(json.dumps({"id": container.id}).encode() + b"\n")
        container.over.wait()
        if order["rm"]:
            self.daemon.containers.pop(container.id, None)
        return {"code": container.state["ExitCode"]}


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def shim() -> None:
    """Run the first process of a container, and end all others with it, as a pid namespace does."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    order = json.loads(sys.argv[2])

    def first_process() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL if order["init"] else signal.SIG_IGN)

    main = subprocess.Popen(
        order["argv"],
        stdin=subprocess.DEVNULL,
        cwd="/",
        env=order["env"],
        start_new_session=True,
        preexec_fn=first_process,  # noqa: PLW1509 - this process has one thread
    )
    os.write(order["report"], f"{main.pid}\n".encode())
    status = None
    while status is None:
        pid, raw = os.wait()
        if pid == main.pid:
            status = os.waitstatus_to_exitcode(raw)
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.wait()
    os.write(order["report"], f"{status if status >= 0 else 128 - status}\n".encode())


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def main() -> None:
    """The daemon, or with `--shim` one container of it."""
    if sys.argv[1] == "--shim":
        shim()
        return
    folder = Path(sys.argv[1])
    Connection.daemon = Daemon(folder)
    with Server(str(folder / "socket"), Connection) as server:
        os.write(1, b"ready\n")
        server.serve_forever()


if __name__ == "__main__":
    main()
