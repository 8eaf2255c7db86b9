"""OpenAI completions as vLLM extends them: each chunk brings its token ids, so that tokens per chunk are known and not guessed.

Source: `return_token_ids` of vLLM's completion request; servers of the strict kind that don't know it refuse the request.
"""

from __future__ import annotations

from typing import Any

from bench.load.protocols.openai_completions import OpenAICompletions
from bench.records import Case, Target


class VllmCompletions(OpenAICompletions):
    """Completions with `return_token_ids`; prompts are text or token ids."""

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        return {**super().body(target, case, prompt, output_tokens, exact=exact), "return_token_ids": True}
