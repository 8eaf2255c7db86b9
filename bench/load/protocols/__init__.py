"""Wire protocols: one module each, chosen by the name in `Target.protocol`."""

from __future__ import annotations

import importlib

from bench.errors import UsageError
from bench.load.protocols.base import Answer, WireProtocol

PROTOCOLS = {
    "openai-chat": "bench.load.protocols.openai_chat:OpenAIChat",
    "openai-completions": "bench.load.protocols.openai_completions:OpenAICompletions",
    "vllm-completions": "bench.load.protocols.vllm_completions:VllmCompletions",
    "sglang-generate": "bench.load.protocols.sglang_generate:SglangGenerate",
    "llamacpp-completion": "bench.load.protocols.llamacpp_completion:LlamaCppCompletion",
    "kserve-generate": "bench.load.protocols.kserve_generate:KserveGenerate",
}


def wire_protocol(name: str) -> WireProtocol:
    """The protocol called `name`. Raises: UsageError for one that is not known."""
    spec = PROTOCOLS.get(name)
    if spec is None:
        raise UsageError(f"unknown protocol {name!r}", hint=f"known: {', '.join(PROTOCOLS)}")
    module, _, attribute = spec.partition(":")
    protocol: WireProtocol = getattr(importlib.import_module(module), attribute)()
    return protocol


__all__ = ["PROTOCOLS", "Answer", "WireProtocol", "wire_protocol"]
