"""An engine that does what `SCRIPTED_ENGINE` (JSON) says. Standard library only: the tests start it as a program.

`say`: printed first. `exit`/`signal`: end at once like that. `never_ready`: run, serve nothing. `loading`: answer 503.
`daemon`: leave a double-forked child in a session of its own behind; `daemon_ignores_sigterm`,
`daemon_forgets_environment`. `ignore_sigterm`.
`flood_mb`: print that much, with numbered lines, before serving. A GET of /die ends it in mid-run.

It takes the place of three programs: itself (`--port N`), `llama-server` (its flags), and the Python that runs the xllamacpp
shim.
"""

from __future__ import annotations

import http.server
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

SCRIPT: dict[str, Any] = json.loads(os.environ.get("SCRIPTED_ENGINE", "{}"))
HELP = (
    "--model --alias --host --port --parallel --ctx-size --metrics --no-webui --no-cache-prompt -fa, --flash-attn [on|off|auto]"
)
METRICS = "llamacpp:prompt_tokens_total 7\nllamacpp:prompt_tokens_cached_total 3\nllamacpp:tokens_predicted_total 11\n"


def say(text: str) -> None:
    """A line of log, at once."""
    os.write(1, f"{text}\n".encode())


class Handler(http.server.BaseHTTPRequestHandler):
    """The pages of a llama.cpp server that a runner looks at."""

    slots = 1
    slot_tokens = 4096
    alias = "scripted"

    def do_GET(self) -> None:
        if self.path == "/die":
            say("out of memory: told to die")
            os._exit(7)
        meta = {"n_vocab": 1000, "n_params": 5, "n_ctx_train": 8192, "ftype": "Q4_1"}
        pages: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/v1/models": {"data": [{"id": self.alias, "owned_by": "llamacpp", "meta": meta}]},
            "/props": {
                "total_slots": self.slots,
                "default_generation_settings": {"n_ctx": SCRIPT.get("slot_tokens", self.slot_tokens)},
                "build_info": "b1-test",
            },
        }
        if self.path == "/metrics":
            self._reply(200, METRICS.encode())
        elif SCRIPT.get("loading") or self.path not in pages:
            self._reply(503 if SCRIPT.get("loading") else 404, b"{}")
        else:
            self._reply(200, json.dumps(pages[self.path]).encode())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
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
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
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


def serve(port: int, status_file: str | None) -> None:
    """Serve for ever."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    say(f"listening at {address}")
    if status_file is not None:
        part = Path(status_file + ".part")
        part.write_text(json.dumps({"address": address, "version": "1.2", "devices": ["test CPU"]}))
        part.replace(status_file)
    server.serve_forever()


def main() -> None:
    """Find out which program it is taken for."""
    args = sys.argv[1:]
    if args[:1] in (["--help"], ["--version"]):
        say(HELP if args == ["--help"] else "version: 6729 (3b3a9481)\nbuilt with cc")
        return
    if args[:1] == ["-c"]:  # "is xllamacpp installed?"
        return
    if args[:1] == ["-u"]:
        order = json.loads(args[2])
        Handler.alias, Handler.slots = order["alias"], order["slots"]
        misbehave()
        serve(0, order["status_file"])
        return
    flags = dict(itertools.pairwise(args))
    Handler.alias, Handler.slots = flags.get("--alias", "scripted"), int(flags.get("--parallel", "1"))
    misbehave()
    serve(int(flags.get("--port", "0")), flags.get("--status-file"))


if __name__ == "__main__":
    main()
