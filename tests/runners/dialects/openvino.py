"""A scripted OpenVINO GenAI: the library itself, under our own server of it. Its tokens are bytes, and each answer counts on from
the last token of its prompt; byte 0 ends one.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `devices` (OpenVINO's name to what it computes in), `hint` (what
it computes in whatever was asked), `step_s` (how long a step takes, with Python's lock held as the library does) and
`import_error`.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from bench.testing.scripted_engine import SCRIPT, misbehave, say

EOS = 0
DEVICES: dict[str, list[str]] = SCRIPT.get("devices", {"CPU": ["FP32", "INT8"]})
_COMPILED = """Model: {title}
  NETWORK_NAME: Model0
  INFERENCE_NUM_THREADS: 2
  INFERENCE_PRECISION_HINT: {hint}
  EXECUTION_DEVICES: {device}
  KV_CACHE_PRECISION: {kept}
EXECUTION_DEVICES:
 {device}: Scripted {device}"""


class Tensor:
    """Rows of numbers."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.data = rows


class Core:
    """What is there."""

    available_devices: ClassVar[list[str]] = list(DEVICES)

    def get_property(self, device: str, name: str) -> Any:
        return {"FULL_DEVICE_NAME": f"Scripted {device}", "OPTIMIZATION_CAPABILITIES": DEVICES[device]}[name]


class SchedulerConfig:
    """Whatever is set."""

    max_num_seqs: int
    cache_size: int


class GenerationConfig:
    """The model's own to begin with."""

    stop_token_ids: ClassVar[set[int]] = {EOS}
    eos_token_id = EOS
    max_new_tokens: int
    ignore_eos: bool


class GenerationFinishReason(Enum):
    NONE, STOP, LENGTH = range(3)


class StreamingStatus(Enum):
    RUNNING, STOP, CANCEL = range(3)


class StreamerBase:
    """Is told each token."""


class Tokenizer:
    """Bytes."""

    chat_template = "scripted"

    def __init__(self, model: str, properties: dict[str, Any]) -> None:
        del model, properties

    def encode(self, text: str, **_: Any) -> Any:
        if SCRIPT.get("token") == "refused":
            raise ValueError("this model has no such endpoint")

        class Encoded:
            input_ids = Tensor([list(text.encode())])

        return Encoded

    def decode(self, ids: list[int], **_: Any) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return "".join(message["content"] for message in messages)


@dataclass
class Output:
    generated_ids: list[int]
    finish_reason: GenerationFinishReason


@dataclass
class Handle:
    """One request: its last token, and what has not been read yet."""

    last: int
    config: GenerationConfig
    made: int = 0
    unread: list[int] = field(default_factory=list)
    reason: GenerationFinishReason = GenerationFinishReason.NONE
    is_cancelled: bool = False

    def can_read(self) -> bool:
        return bool(self.unread)

    def read(self) -> dict[int, Output]:
        tokens, self.unread = self.unread, []
        return {0: Output(tokens, self.reason)}

    def cancel(self) -> None:
        self.is_cancelled = True

    def step(self) -> int:
        match SCRIPT.get("token"):
            case "hangs":
                time.sleep(600)
            case "dies":
                say("out of memory: died at the first token")
                os._exit(7)
        self.last = (self.last + 1) % 128
        self.made += 1
        self.unread.append(self.last)
        if self.last == EOS and not self.config.ignore_eos:
            self.reason = GenerationFinishReason.STOP
        elif self.made == self.config.max_new_tokens:
            self.reason = GenerationFinishReason.LENGTH
        return self.last


class _Pipeline:
    """What both pipelines do: they load, and say what they were compiled to where they are told to log."""

    def _load(self, title: str, device: str, properties: dict[str, Any]) -> None:
        misbehave()
        asked = properties.get("INFERENCE_PRECISION_HINT", "f32")
        if os.environ.get("OPENVINO_LOG_LEVEL") == "3":
            say(_COMPILED.format(title="OV Tokenizer", hint="f32", device="CPU", kept="u8"))
            kept = properties.get("KV_CACHE_PRECISION", "u8")
            say(_COMPILED.format(title=title, hint=SCRIPT.get("hint", asked), device=device, kept=kept))

    def get_config(self) -> GenerationConfig:
        return GenerationConfig()

    get_generation_config = get_config


class ContinuousBatchingPipeline(_Pipeline):
    """Steps as many as its scheduler may."""

    def __init__(self, model: str, scheduler: SchedulerConfig, device: str, properties: dict[str, Any]) -> None:
        if device == "NPU":
            raise RuntimeError("no paged attention")
        self._most = scheduler.max_num_seqs
        self._open: list[Handle] = []
        self._load("LLM with Paged Attention", device, properties)

    def add_request(self, _: int, ids: Tensor, config: GenerationConfig) -> Handle:
        self._open.append(Handle(ids.data[0][-1], config))
        return self._open[-1]

    def step(self) -> None:
        if "step_s" in SCRIPT:
            sys.setswitchinterval(1000.0)
            end_s = time.monotonic() + SCRIPT["step_s"]
            while time.monotonic() < end_s:
                pass
        for handle in self._open[: self._most]:
            handle.step()
        say(f"step {time.monotonic_ns()}")
        self._open = [h for h in self._open if h.reason is GenerationFinishReason.NONE and not h.is_cancelled]

    def has_non_finished_requests(self) -> bool:
        return bool(self._open)

    def get_metrics(self) -> Any:
        class Metrics:
            requests = len(self._open)
            scheduled_requests = min(len(self._open), self._most)
            cache_usage = 50.0

        return Metrics


class LLMPipeline(_Pipeline):
    """One request after the other."""

    def __init__(self, model: str, device: str, **properties: Any) -> None:
        if device == "NPU" and not {"MAX_PROMPT_LEN", "MIN_RESPONSE_LEN"} <= set(properties):
            raise RuntimeError("an NPU is compiled for lengths")
        self._load("Stateful LLM model", device, properties)

    def generate(self, ids: Tensor, config: GenerationConfig, streamer: Any) -> None:
        handle = Handle(ids.data[0][-1], config)
        while handle.reason is GenerationFinishReason.NONE:
            if streamer.write(handle.step()) is not StreamingStatus.RUNNING:
                return
        streamer.end()


def fail_import() -> None:
    """As a library that is missing ends an import."""
    if SCRIPT.get("import_error"):
        raise ImportError(SCRIPT["import_error"])


_FROM_HERE = "from tests.runners.dialects.openvino import *\n"
MODULES = {
    "openvino.__init__": _FROM_HERE + "get_version = lambda: '2026.4.1-22982'\n",
    "openvino_genai.__init__": _FROM_HERE + "fail_import()\n__version__ = '2026.4.1.0-3408'\n",
}
BESIDE = {"openvino": "2026.4.1", "openvino-tokenizers": "2026.4.1.0"}
