"""The scripted engine by itself: it takes the place of `llama-server` (its flags), of the Python that runs the xllamacpp shim,
and of an engine of its own (`--port N`).
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve

METRICS = "llamacpp:prompt_tokens_total 7\nllamacpp:prompt_tokens_cached_total 3\nllamacpp:tokens_predicted_total 11\n"


class LlamaCpp(Dialect):
    """The pages of a llama.cpp server that a runner looks at."""

    slots = 1
    slot_tokens = 4096

    def pages(self) -> dict[str, Any]:
        meta = {"n_vocab": 1000, "n_params": 5, "n_ctx_train": 8192, "ftype": "Q4_1"}
        return {
            "/health": {"status": "ok"},
            "/v1/models": {"data": [{"id": self.alias, "owned_by": "llamacpp", "meta": meta}]},
            "/props": {
                "total_slots": self.slots,
                "default_generation_settings": {"n_ctx": SCRIPT.get("slot_tokens", self.slot_tokens)},
                "build_info": "b1-test",
            },
            "/metrics": METRICS,
        }


HELP = (
    "--model --alias --host --port --parallel --ctx-size --metrics --no-webui --no-cache-prompt -fa, --flash-attn [on|off|auto]"
)


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
        dialect = LlamaCpp(order["alias"])
        dialect.slots = order["slots"]
        misbehave()
        serve(dialect, 0, order["status_file"])
        return
    flags = dict(itertools.pairwise(args))
    dialect = LlamaCpp(flags.get("--alias", "scripted"))
    dialect.slots = int(flags.get("--parallel", "1"))
    misbehave()
    serve(dialect, int(flags.get("--port", "0")), flags.get("--status-file"))


if __name__ == "__main__":
    main()
