"""The pieces of an engine that does what `SCRIPTED_ENGINE` (JSON) says. Standard library only: tests start it as a program.

`say`: printed first. `exit`/`signal`: end at once like that. `never_ready`: run, serve nothing. `loading`: answer 503.
`daemon`: leave a double-forked child in a session of its own behind; `daemon_ignores_sigterm`,
`daemon_forgets_environment`. `ignore_sigterm`. `port_taken_once`: a file; without it, make it and fail as on a taken port.
`flood_mb`: print that much, with numbered lines, before serving. A GET of /die ends it in mid-run.
`token`: what a request for tokens meets: `hangs`, `dies`, `refused` (400), `unready` (503).

What it serves is a `Dialect`, one for each real engine: its program makes one of its own options, then calls `misbehave` and
`serve`.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import pytest  # not where the engine runs

SCRIPT: dict[str, Any] = json.loads(os.environ.get("SCRIPTED_ENGINE", "{}"))


def say(text: str) -> None:
    """A line of log, at once."""
    os.write(1, f"{text}\n".encode())


class Dialect:
    """What an engine serves: pages by path, and answers to what is posted. The usual OpenAI ones are here; counts are kept, so
    that its metrics move with what it has done.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.prompt_tokens = 0
        self.generated_tokens = 0

    def pages(self) -> dict[str, Any]:
        """JSON, text or None (an empty answer of status 200) by path."""
        raise NotImplementedError

    def post(self, path: str, body: dict[str, Any]) -> list[Any] | dict[str, Any] | None:
        """A list is streamed as server-sent events, a dict is JSON, None is 404."""
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return None
        count = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        prompt = body.get("prompt") or "".join(str(message["content"]) for message in body["messages"])
        prompt_tokens = len(prompt) if isinstance(prompt, list) else max(1, len(prompt) // 4)
        self.prompt_tokens += prompt_tokens
        self.generated_tokens += count
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count, "total_tokens": prompt_tokens + count}
        if body.get("stream"):
            return list(self.events(path, body, count, usage))
        text = " token" * count
        choice = {"text": text} if path == "/v1/completions" else {"message": {"role": "assistant", "content": text}}
        return {"id": "x", "model": self.alias, "choices": [{"index": 0, "finish_reason": "length", **choice}], "usage": usage}

    def events(self, path: str, body: dict[str, Any], count: int, usage: dict[str, int]) -> Iterator[Any]:
        """One event a token, then usage where it was asked for, then the end."""
        chat = path == "/v1/chat/completions"
        head = {"id": "x", "object": "chat.completion.chunk" if chat else "text_completion", "model": self.alias}
        for number in range(count):
            finish = "length" if number == count - 1 else None
            part: dict[str, Any] = {"delta": {"content": " token"}} if chat else {"text": " token"}
            yield {**head, "choices": [{"index": 0, "finish_reason": finish, **part}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": usage}
        yield "[DONE]"


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `dialect`, or misbehaves."""

    dialect: ClassVar[Dialect]

    def do_GET(self) -> None:
        if self.path == "/die":
            say("out of memory: told to die")
            os._exit(7)
        pages = self.dialect.pages()
        if SCRIPT.get("loading") or self.path not in pages:
            self._reply(503 if SCRIPT.get("loading") else 404, b"{}")
            return
        found = pages[self.path]
        self._reply(200, b"" if found is None else found.encode() if isinstance(found, str) else json.dumps(found).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match SCRIPT.get("token"):
            case "hangs":
                time.sleep(600)
            case "dies":
                say("out of memory: died at the first token")
                os._exit(7)
            case "refused":
                self._reply(400, b'{"error": {"message": "this model has no such endpoint"}}')
                return
            case "unready":
                self._reply(503, b'{"error": "model is not ready"}')
                return
        found = self.dialect.post(self.path, body)
        if found is None:
            self._reply(404, b"{}")
        elif isinstance(found, dict):
            self._reply(200, json.dumps(found).encode())
        else:
            lines = (event if isinstance(event, str) else json.dumps(event) for event in found)
            self._reply(200, b"".join(f"data: {line}\n\n".encode() for line in lines), "text/event-stream")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def leave_daemon() -> None:
    """Double fork, new session: init, or a subreaper, becomes the parent."""
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if SCRIPT.get("daemon_ignores_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(SCRIPT["daemon"]).write_text(str(os.getpid()))
    if SCRIPT.get("daemon_forgets_environment"):
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})  # noqa: S606 - no shell is wanted
    while True:
        time.sleep(60)


def flood(megabytes: float) -> None:
    """Numbered lines of 100 bytes."""
    count = int(megabytes * 10_000)
    for start in range(0, count, 1000):
        os.write(1, b"".join(f"line {number:08d} ".encode().ljust(99, b".") + b"\n" for number in range(start, start + 1000)))
    os.write(1, b"flood over\n")


def misbehave() -> None:
    """Everything that happens before it serves."""
    if SCRIPT.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "port_taken_once" in SCRIPT and not Path(SCRIPT["port_taken_once"]).exists():
        Path(SCRIPT["port_taken_once"]).touch()
        say("OSError: [Errno 98] Address already in use")
        os._exit(1)
    if "say" in SCRIPT:
        say(SCRIPT["say"])
    if "daemon" in SCRIPT:
        leave_daemon()
    if "flood_mb" in SCRIPT:
        flood(SCRIPT["flood_mb"])
    if "signal" in SCRIPT:
        os.kill(os.getpid(), SCRIPT["signal"])
    if "exit" in SCRIPT:
        os._exit(SCRIPT["exit"])
    while SCRIPT.get("never_ready"):
        time.sleep(60)


def serve(dialect: Dialect, port: int, status_file: str | None = None) -> None:
    """Serve for ever."""
    Handler.dialect = dialect
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    say(f"listening at {address}")
    if status_file is not None:
        part = Path(status_file + ".part")
        part.write_text(json.dumps({"address": address, "version": "1.2", "devices": ["test CPU"]}))
        part.replace(status_file)
    server.serve_forever()


# --- said by a test ---------------------------------------------------------------------------------------------------


def script(patch: pytest.MonkeyPatch, **behaviour: Any) -> None:
    """What the scripted engine will do."""
    patch.setenv("SCRIPTED_ENGINE", json.dumps(behaviour))


def behaviours(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The words of `bench.testing.runners` as scripts."""
    return {
        "good": {},
        "dies_at_start": {"say": "std::bad_alloc: no memory", "exit": 1},
        "never_ready": {"never_ready": True},
        "leaves_daemon": {"daemon": str(tmp_path / "daemon"), "daemon_ignores_sigterm": True},
        "ignores_sigterm": {"ignore_sigterm": True},
        "floods": {"flood_mb": 12},
        "hangs_at_token": {"token": "hangs"},
        "dies_at_token": {"token": "dies"},
        "refuses_token": {"token": "refused"},
        "port_taken_once": {"port_taken_once": str(tmp_path / "taken")},
    }
