"""OpenVINO GenAI's pipeline, in a process of its own: it holds Python's lock while it steps, so what serves its tokens is another
process (`openvino_server.py`), which starts this one with the number of a socket.

    python openvino_pipeline.py FD '{"model": "/models/tiny.gguf", "device": "CPU", "paged": true, "slots": 8, ...}'

In: requests (`id`, `ids`, `max_tokens`, ...) and `{"cancel": id}`. Out: `{"loaded": {...}}`, then after each step `made` (for
each request its id, new tokens and finish reason) with how many are `running` and `waiting`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any

import openvino
import openvino_genai
from line_socket import LineSocket

Made = list[tuple[int, list[int], str | None]]


class Paged:
    """Continuous batching over a paged KV cache, by the library's own scheduler: CPUs and GPUs."""

    def __init__(self, order: dict[str, Any], link: LineSocket) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs = order["slots"]
        scheduler.max_num_batched_tokens = order["prefill_tokens"]
        scheduler.enable_prefix_caching = order["prefix_cache"]
        scheduler.cache_size = order["cache_gb"]
        self._pipe = openvino_genai.ContinuousBatchingPipeline(order["model"], scheduler, order["device"], order["properties"])
        self._usual = self._pipe.get_config()
        self._has_fixed_cache = order["cache_gb"] > 0
        self._link = link
        self._open: dict[int, Any] = {}

    def turn(self) -> None:
        """Let requests join and leave, and make one step; waits where there are none."""
        for asked in received(self._link, wait=not self._open):
            if "cancel" in asked:
                handle = self._open.pop(asked["cancel"], None)
                if handle is not None:
                    handle.cancel()
            else:
                ids = openvino.Tensor([asked["ids"]])
                self._open[asked["id"]] = self._pipe.add_request(asked["id"], ids, config_of(asked, self._usual))
        if self._pipe.has_non_finished_requests():
            self._pipe.step()
        self._tell(self._made())

    def _made(self) -> Made:
        made: Made = []
        for number, handle in self._open.items():
            if handle.can_read():
                for one in handle.read().values():
                    made.append((number, [int(token) for token in one.generated_ids], reason_of(one.finish_reason)))
        for number, _, reason in made:
            if reason is not None:
                del self._open[number]
        return made

    def _tell(self, made: Made) -> None:
        metrics = self._pipe.get_metrics()
        running = min(len(self._open), metrics.scheduled_requests)
        cache = metrics.cache_usage / 100 if self._open else 0.0
        told = {"made": made, "running": running, "waiting": len(self._open) - running}
        self._link.send({**told, "cache": cache} if self._has_fixed_cache else told)


class OneByOne(openvino_genai.StreamerBase):  # type: ignore[misc]
    """One request after the other, with a KV cache inside the model: an NPU has no paged attention."""

    def __init__(self, order: dict[str, Any], link: LineSocket) -> None:
        super().__init__()
        self._pipe = openvino_genai.LLMPipeline(order["model"], order["device"], ATTENTION_BACKEND="SDPA", **order["properties"])
        self._usual = self._pipe.get_generation_config()
        self._link = link
        self._line: list[dict[str, Any]] = []
        self._now: dict[str, Any] = {}
        self._left = 0

    def turn(self) -> None:
        """Answer the next one."""
        self._hear(wait=not self._line)
        if self._line:
            self._now = self._line.pop(0)
            self._left = self._now["max_tokens"]
            self._pipe.generate(openvino.Tensor([self._now["ids"]]), config_of(self._now, self._usual), self)
            self._now = {}
            self._link.send({"made": [], "running": 0, "waiting": len(self._line)})

    def write(self, token: Any) -> Any:
        """Called by the library with each token, or several of them, as they are there."""
        tokens = [int(one) for one in token] if isinstance(token, list) else [int(token)]
        self._left -= len(tokens)
        ends = not self._now["ignore_eos"] and tokens[-1] in self._usual.stop_token_ids
        reason = "stop" if ends else "length" if self._left <= 0 else None
        self._link.send({"made": [(self._now["id"], tokens, reason)], "running": 1, "waiting": len(self._line)})
        is_wanted = self._hear(wait=False)
        return openvino_genai.StreamingStatus.RUNNING if is_wanted else openvino_genai.StreamingStatus.CANCEL

    def end(self) -> None:
        """Called by the library after the last token."""

    def _hear(self, *, wait: bool) -> bool:
        """Take in what has come; whether the present request is still wanted."""
        asked = received(self._link, wait=wait)
        dropped = {one["cancel"] for one in asked if "cancel" in one}
        self._line += [one for one in asked if "cancel" not in one]
        self._line = [one for one in self._line if one["id"] not in dropped]
        return self._now.get("id") not in dropped


def received(link: LineSocket, *, wait: bool) -> list[dict[str, Any]]:
    """What the server says; without a server there is nothing left to do."""
    found: list[dict[str, Any]] | None = link.receive(wait=wait)
    if found is None:
        os._exit(0)
    return found


def config_of(asked: dict[str, Any], usual: Any) -> Any:
    """How one request is to be continued; only where an answer ends is the model's own."""
    config = openvino_genai.GenerationConfig()
    config.stop_token_ids = usual.stop_token_ids
    config.eos_token_id = usual.eos_token_id
    config.max_new_tokens = asked["max_tokens"]
    config.min_new_tokens = asked["min_tokens"]
    config.ignore_eos = asked["ignore_eos"]
    config.do_sample = asked["temperature"] > 0
    if config.do_sample:
        config.temperature = asked["temperature"]
        config.top_p = asked["top_p"]
        config.rng_seed = asked["seed"] if asked["seed"] is not None else int.from_bytes(os.urandom(4), "little")
    return config


def reason_of(finish: Any) -> str | None:
    """OpenAI's word for why an answer ended; None while it goes on."""
    words = {openvino_genai.GenerationFinishReason.STOP: "stop", openvino_genai.GenerationFinishReason.LENGTH: "length"}
    return words.get(finish)


def main() -> None:
    """Step until the server is gone."""
    link, order = LineSocket(socket.socket(fileno=int(sys.argv[1]))), json.loads(sys.argv[2])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    began_s = time.monotonic()
    pipe = Paged(order, link) if order["paged"] else OneByOne(order, link)
    versions = {"genai": openvino_genai.__version__, "openvino": openvino.get_version()}
    link.send({"loaded": {"load_s": time.monotonic() - began_s, **versions}})
    while True:
        pipe.turn()


if __name__ == "__main__":
    main()
