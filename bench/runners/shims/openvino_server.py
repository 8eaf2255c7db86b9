"""Serves weights with OpenVINO GenAI, one step at a time, over the OpenAI protocol.

    python openvino_server.py '{"model": "/models/tiny.gguf", "name": "tiny", "port": 8123, "device": "CPU", "slots": 8, ...}'

Run by the Python that has openvino-genai. The pipeline is in a process beside it (`openvino_pipeline.py`): this one only has the
tokenizer, and each token is sent when it is there. `/health` is good once the model is loaded; `/info` tells what was loaded.
Where the pipeline ends, so does the server, in the same way.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

import openvino_genai
from line_socket import LineSocket
from openai_http import RefusedError, Request, listen

REMEMBERED_TEXTS = 1 << 16
"""Texts of tokens that are kept: the library runs a model of its own to make one."""


class OpenVINOEngine:
    """The tokenizer, and the requests that the pipeline works on. Fills `openai_http.Engine`; nothing is loaded before `load`."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.name: str = order["name"]
        self.info: dict[str, Any] | None = None
        self.context: int = order["context"]
        self.vocabulary: int = order["vocabulary"]
        self._order = order
        self._tokenizer: Any = None
        self._link: LineSocket
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, Request] = {}
        self._done = {"prompt_tokens_total": 0, "generation_tokens_total": 0}
        self._state: dict[str, float] = {"requests_running": 0, "requests_waiting": 0}
        self._decoded = lru_cache(REMEMBERED_TEXTS)(self._decode)

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with what the model begins every text with."""
        return self._encode(text)

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """Tokens of a conversation in the model's own template."""
        if not self._tokenizer.chat_template:
            raise RefusedError("this model has no chat template: use completions (protocol: openai-completions)")
        return self._encode(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True), add_special_tokens=False)

    def decode(self, ids: list[int]) -> str:
        """Their text, without special tokens."""
        return self._decoded(tuple(ids))

    def submit(self, request: Request) -> None:
        """Give it to the pipeline."""
        wanted = ("ids", "max_tokens", "temperature", "top_p", "seed", "ignore_eos", "min_tokens")
        number = next(self._numbers)
        self._open[number] = request
        self._send({"id": number, **{name: getattr(request, name) for name in wanted}})

    def counters(self) -> dict[str, float]:
        """What it has done so far, and what the pipeline is at."""
        return {**self._done, **self._state}

    def load(self, link: LineSocket) -> None:
        """Take the tokenizer, and wait for the pipeline's weights."""
        self._link = link
        self._tokenizer = openvino_genai.Tokenizer(self._order["model"], {"INFERENCE_NUM_THREADS": 1})
        found = link.receive(wait=True)
        if found:
            names = ("device", "slots", "context", "paged", "prefix_cache", "prefill_tokens")
            told = {"engine": "openvino_server", **{name: self._order[name] for name in names}, **found[0]["loaded"]}
            os.write(1, f"openvino_server: loaded: {json.dumps(told)}\n".encode())
            self.info = told

    def deal(self) -> bool:
        """Hand out what the pipeline has made; False once there is no pipeline."""
        found = self._link.receive(wait=True)
        for told in found or ():
            self._state = {"requests_running": told["running"], "requests_waiting": told["waiting"]}
            if "cache" in told:
                self._state["kv_cache_util"] = told["cache"]
            for number, tokens, reason in told["made"]:
                self._give(number, tokens, reason)
        return found is not None

    def _give(self, number: int, tokens: list[int], reason: str | None) -> None:
        request = self._open.get(number)
        if request is None:  # cancelled while this was made
            return
        self._done["prompt_tokens_total"] += 0 if request.made else len(request.ids)
        for place, token in enumerate(tokens, 1):
            request.made += 1
            self._done["generation_tokens_total"] += 1
            request.events.put((token, reason if place == len(tokens) else None))
        if reason is not None or request.cancelled:
            del self._open[number]
        if request.cancelled and reason is None:
            self._send({"cancel": number})

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            self._link.send(message)

    def _encode(self, text: str, **how: Any) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text, **how).input_ids.data[0]]

    def _decode(self, ids: tuple[int, ...]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)) if ids else ""


def end_like(status: int) -> None:
    """End this process as the pipeline's has ended."""
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main() -> None:
    """Serve until SIGTERM."""
    order = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    engine = OpenVINOEngine(order)
    listen(engine, order["port"])
    ours, theirs = socket.socketpair()
    program = Path(__file__).with_name("openvino_pipeline.py")
    command = [sys.executable, "-u", str(program), str(theirs.fileno()), json.dumps(order)]
    pipeline = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
    theirs.close()
    engine.load(LineSocket(ours))
    while engine.deal():
        pass
    end_like(pipeline.wait())


if __name__ == "__main__":
    main()
