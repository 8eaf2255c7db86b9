"""A scripted LMDeploy: its argument parser (the options of a real version), its pages, its metrics, its log.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `falls_back` (turbomind does not know the model).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve
from tests.runners.flag_files import document, parser_of

FELL_BACK = (
    "2026-11-30 20:34:58,001 - lmdeploy - WARNING - archs.py:41 - Fallback to pytorch engine because '/models/tiny' not "
    "supported by turbomind engine."
)


class LMDeploy(Dialect):
    """LMDeploy's api_server. Its completions take a list for several prompts: a list of token ids is none of them."""

    def pages(self) -> dict[str, Any]:
        label = f'{{engine="0",model_name="{self.alias}"}}'
        metrics = {
            "lmdeploy:prompt_tokens_total": self.prompt_tokens,
            "lmdeploy:generation_tokens_total": self.generated_tokens,
            "lmdeploy:cached_tokens_total": 0,
            "lmdeploy:num_requests_running": 1,
            "lmdeploy:num_requests_waiting": 2,
            "lmdeploy:num_api_requests_waiting": 3,
            "lmdeploy:gpu_cache_usage_perc": 0.25,
        }
        card = {"id": self.alias, "object": "model", "owned_by": "lmdeploy", "root": self.alias, "permission": []}
        return {
            "/health": {"status": "healthy"},
            "/v1/models": {"object": "list", "data": [card]},
            "/metrics": "".join(f"# TYPE {name} gauge\n{name}{label} {float(value)}\n" for name, value in metrics.items()),
        }

    def post(self, path: str, body: dict[str, Any]) -> list[Any] | dict[str, Any] | None:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and not all(isinstance(one, str) for one in prompt):
            return None
        return super().post(path, body)


def command() -> argparse.ArgumentParser:
    """`lmdeploy` with its subcommands, as the real one has them."""
    parser = argparse.ArgumentParser(prog="lmdeploy")
    serve_parser = parser.add_subparsers().add_parser("serve")
    sample = parser_of(document(SCRIPT.get("flags", "lmdeploy-0.18.0")))
    serve_parser.add_subparsers().add_parser("api_server", parents=[sample], add_help=False, allow_abbrev=False)
    return parser


def main() -> None:
    """`python -m lmdeploy serve api_server MODEL ...`."""
    args = command().parse_args(sys.argv[1:])
    if SCRIPT.get("falls_back") and args.backend == "turbomind":
        say(FELL_BACK)
    misbehave()
    serve(LMDeploy(args.model_name), int(args.server_port))


MODULES = {"lmdeploy.__main__": "from tests.runners.dialects.lmdeploy import main\nmain()\n"}
