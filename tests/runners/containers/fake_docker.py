"""The client of `fake_dockerd`: what of the `docker` program is used here, with its words, exit statuses and JSON. Standard
library only. The options of `run` are those of a real version (`docker-run-28.2.2.json`); others end it as they do there.

`DOCKER_HOST` names the daemon. `FAKE_DOCKER_DENIED` makes its socket one that may not be opened.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPTIONS = json.loads(Path(__file__).with_name("docker-run-28.2.2.json").read_text(encoding="utf-8"))["options"]
SHORT = {option["short"]: flag for flag, option in OPTIONS.items() if option["short"]}


class Problem(Exception):
    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def say(text: object) -> None:
    """A line of its answer."""
    sys.stdout.write(f"{text}\n")


def complain(text: object) -> None:
    """A line of what went wrong."""
    sys.stderr.write(f"{text}\n")


def connect() -> socket.socket:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if os.environ.get("FAKE_DOCKER_DENIED"):
        raise Problem(
            f"permission denied while trying to connect to the Docker daemon socket at {host}: Get "
            '"http://%2Fvar%2Frun%2Fdocker.sock/v1.50/version": dial unix /var/run/docker.sock: connect: permission denied'
        )
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(host.removeprefix("unix://"))
    except OSError:
        raise Problem(f"Cannot connect to the Docker daemon at {host}. Is the docker daemon running?") from None
    return link


def lines_of(link: socket.socket) -> Iterator[dict[str, Any]]:
    with link.makefile("rb") as file:
        for line in file:
            yield json.loads(line)


def ask(do: str, **request: Any) -> Any:
    with connect() as link:
        link.sendall(json.dumps({"do": do, **request}).encode() + b"\n")
        answer = next(lines_of(link), None)
    if isinstance(answer, dict) and "error" in answer:
        raise Problem(f"Error response from daemon: {answer['error']}")
    return answer


def said(text: str, template: str | None, document: Any) -> str:
    """`document` as `--format` wants it: fields and `json` of them, which is all that is used here."""

    def field(found: re.Match[str]) -> str:
        value = document
        for part in found[2].split(".")[1:]:
            value = value[part] if part else value
        return json.dumps(value) if found[1] else str(value)

    return text if template is None else re.sub(r"\{\{\s*(json )?((?:\.\w+)+|\.)\s*\}\}", field, template)


def take(words: list[str], *flags: str) -> str | None:
    """The value of one of `flags`, taken out of `words`."""
    for flag in flags:
        for at, word in enumerate(words):
            if word == flag:
                value = words[at + 1]
                del words[at : at + 2]
                return value
            if word.startswith(flag + "="):
                del words[at]
                return word.partition("=")[2]
    return None


def drop(words: list[str], *flags: str) -> bool:
    """Whether one of `flags` without a value is there; taken out of `words`."""
    found = [word for word in words if word in flags]
    words[:] = [word for word in words if word not in flags]
    return bool(found)


# --- run --------------------------------------------------------------------------------------------------------------


def parsed(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options of `run` by their long names, and the image with what follows it."""
    found: dict[str, list[str]] = {}
    while words and words[0].startswith("-"):
        flag, equals, value = words.pop(0).partition("=")
        flag = SHORT.get(flag, flag)
        if flag not in OPTIONS:
            raise Problem(f"unknown flag: {flag}\n\nUsage:  docker run [OPTIONS] IMAGE [COMMAND] [ARG...]\n", 125)
        if OPTIONS[flag]["takes"] and not equals:
            if not words:
                raise Problem(f"flag needs an argument: {flag}", 125)
            value = words.pop(0)
        found.setdefault(flag, []).append(value)
    if not words:
        raise Problem('docker: "docker run" requires at least 1 argument.', 125)
    return found, words


def environment(pairs: list[str]) -> list[str]:
    return [pair if "=" in pair else f"{pair}={os.environ[pair]}" for pair in pairs if "=" in pair or pair in os.environ]


def mounts(texts: list[str]) -> list[dict[str, str]]:
    names = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
    found = []
    for text in texts:
        fields = [field.partition("=") for field in next(csv.reader([text]))]
        mount = {names.get(name, name): value for name, _, value in fields}
        if unknown := mount.keys() - {"type", "source", "target", "readonly"}:
            raise Problem(f"invalid argument \"{text}\" for \"--mount\" flag: unexpected key '{unknown.pop()}' in '{text}'", 125)
        found.append(mount)
    return found


def gpus(texts: list[str]) -> list[str]:
    """Each value is a line of CSV: `all`, or a field `"device=0,1"` in quotes where it has a comma."""
    found: list[str] = []
    for text in texts:
        for field in next(csv.reader([text])):
            name, equals, value = field.partition("=")
            if name not in ("all", "device", "count", "driver", "capabilities", "options") and not name.isdigit():
                raise Problem(f'invalid argument "{text}" for "--gpus" flag: unexpected key \'{name}\'', 125)
            found += value.split(",") if equals else [name]
    return found


def order_of(words: list[str]) -> dict[str, Any]:
    options, rest = parsed(words)
    last = {flag: values[-1] for flag, values in options.items()}
    for flag in ("--shm-size",):
        if flag in last and not re.fullmatch(r"\d+[bkmgtBKMGT]?b?", last[flag]):
            raise Problem(f'invalid argument "{last[flag]}" for "{flag}" flag: invalid size: \'{last[flag]}\'', 125)
    return {
        "image": rest[0],
        "command": rest[1:],
        "name": last.get("--name"),
        "entrypoint": last.get("--entrypoint"),
        "init": "--init" in options,
        "rm": "--rm" in options,
        "detach": "--detach" in options,
        "user": last.get("--user"),
        "runtime": last.get("--runtime"),
        "network": last.get("--network", "default"),
        "log_driver": last.get("--log-driver", "json-file"),
        "shm_size": last.get("--shm-size", "64m"),
        "ulimits": options.get("--ulimit", []),
        "labels": dict(label.split("=", 1) for label in options.get("--label", [])),
        "env": environment(options.get("--env", [])),
        "devices": options.get("--device", []),
        "gpus": gpus(options.get("--gpus", [])),
        "mounts": mounts(options.get("--mount", [])),
        "publish": options.get("--publish", []),
        "pull": last.get("--pull", "missing"),
    }


def run(words: list[str]) -> int:
    try:
        order = order_of(words)
        link = connect()
    except Problem as problem:
        text = f"docker: {problem}" if not str(problem).startswith(("docker:", "unknown", "flag", "invalid")) else str(problem)
        raise Problem(f"{text}\n\nRun 'docker run --help' for more information", 125) from None
    if order["pull"] != "never" and "error" in _image(order["image"]):
        complain(f"Unable to find image '{order['image']}' locally")
        raise Problem(f"docker: Error response from daemon: pull access denied for {order['image']}", 125)
    link.sendall(json.dumps({"do": "run", "order": order}).encode() + b"\n")
    for message in lines_of(link):
        if "error" in message:
            raise Problem(
                f"docker: Error response from daemon: {message['error']}\n\nRun 'docker run --help' for more information",
                message["code"],
            )
        if "stream" in message:
            os.write(1 if message["stream"] == "stdout" else 2, base64.b64decode(message["data"]))
        elif "code" in message:
            return int(message["code"])
        elif order["detach"]:
            say(message["id"])
            return 0
        else:
            proxy_signals(message["id"])
    raise Problem("error waiting for container: unexpected EOF", 125)


def _image(name: str) -> dict[str, Any]:
    try:
        found = ask("image", name=name)
    except Problem as problem:
        return {"error": str(problem)}
    assert isinstance(found, dict)
    return found


def proxy_signals(container: str) -> None:
    """As with `--sig-proxy`, which is on unless told."""

    def proxy(number: int, _: object) -> None:
        with contextlib.suppress(Problem):
            ask("kill", name=container, number=number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, proxy)


# --- the other commands -----------------------------------------------------------------------------------------------


def version(words: list[str]) -> int:
    template = take(words, "--format", "-f")
    server = ask("version")
    text = f"Client:\n Version: 28.2.2\nServer:\n Version: {server['Version']}"
    say(said(text, template, {"Server": server, "Client": server}))
    return 0


def image(words: list[str]) -> int:
    if words.pop(0) != "inspect":
        raise Problem("unknown command: docker image")
    return show(words, "image")


def show(words: list[str], do: str = "inspect") -> int:
    template = take(words, "--format", "-f")
    take(words, "--type")
    documents, problems = [], []
    for name in words:
        try:
            documents.append(ask(do, name=name))
        except Problem as problem:
            problems.append(str(problem))
    if template is None:
        say(json.dumps(documents, indent=4))
    else:
        for document in documents:
            say(said("", template, document))
    if problems:
        raise Problem("\n".join(problems))
    return 0


def ps(words: list[str]) -> int:
    everything = drop(words, "-a", "--all", "-aq")
    quiet = drop(words, "-q", "--quiet")
    whole = drop(words, "--no-trunc")
    wanted = take(words, "--filter")
    for document in ask("ps"):
        name, equals, value = (wanted or "").removeprefix("label=").partition("=")
        labels = document["Config"]["Labels"]
        fits = wanted is None or (name in labels and (not equals or labels[name] == value))
        if fits and (everything or document["State"]["Running"]):
            shown = document["Id"] if whole else document["Id"][:12]
            say(shown if quiet else f"{shown}   {document['Config']['Image']}   {document['Name'][1:]}")
    return 0


def rm(words: list[str]) -> int:
    force = drop(words, "-f", "--force")
    drop(words, "-v", "--volumes")
    code = 0
    for name in words:
        try:
            ask("rm", name=name, force=force)
            say(name)
        except Problem as problem:
            complain(problem)
            gone = force and "No such container" in str(problem)
            code = code if gone else 1
    return code


def stop(words: list[str]) -> int:
    grace_s = float(take(words, "-t", "--time", "--timeout") or 10)
    for name in words:
        ask("stop", name=name, grace_s=grace_s)
        say(name)
    return 0


def kill(words: list[str]) -> int:
    number = signal.Signals["SIG" + (take(words, "-s", "--signal") or "KILL").removeprefix("SIG")]
    for name in words:
        if not ask("inspect", name=name)["State"]["Running"]:
            raise Problem(f"Error response from daemon: cannot kill container: {name}: container {name} is not running")
        ask("kill", name=name, number=number)
        say(name)
    return 0


def logs(words: list[str]) -> int:
    sys.stdout.write(ask("logs", name=words[-1])["log"])
    return 0


def exec_(words: list[str]) -> int:
    done = ask("exec", name=words[0], command=words[1:])
    sys.stdout.write(done["out"])
    sys.stderr.write(done["err"])
    return int(done["code"])


COMMANDS = {
    "run": run,
    "version": version,
    "image": image,
    "inspect": show,
    "ps": ps,
    "rm": rm,
    "stop": stop,
    "kill": kill,
    "logs": logs,
    "exec": exec_,
}


def main() -> int:
    """One command."""
    if hang_s := os.environ.get("FAKE_DOCKER_HANGS"):
        time.sleep(float(hang_s))
    name, *words = sys.argv[1:] or ["help"]
    if name not in COMMANDS:
        complain(f"docker: unknown command: docker {name}\n\nRun 'docker --help' for more information")
        return 1
    try:
        return COMMANDS[name](words)
    except Problem as problem:
        complain(problem)
        return problem.code


if __name__ == "__main__":
    sys.exit(main())
