"""A scripted `mlx_lm.server`: its argument parser (the options of a real version) and its pages; it has no counters."""

from __future__ import annotations

import sys
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, serve
from tests.runners.flag_files import document, parser_of


class Mlx(Dialect):
    """It knows its model by one name only, and takes text."""

    def pages(self) -> dict[str, Any]:
        return {"/health": {"status": "ok"}, "/v1/models": {"object": "list", "data": [{"id": self.alias, "object": "model"}]}}

    def post(self, path: str, body: dict[str, Any]) -> list[Any] | dict[str, Any] | None:
        known = body.get("model") == "default_model" and isinstance(body.get("prompt", ""), str)
        return super().post(path, body) if known else None


def main() -> None:
    """`mlx_lm.server --model FOLDER ...`."""
    args = parser_of(document(SCRIPT.get("flags", "mlx-0.32.2"))).parse_args(sys.argv[1:])
    misbehave()
    serve(Mlx(args.model), int(args.port))


MODULES = {"mlx_lm.server": "from tests.runners.dialects.mlx import main\nmain()\n"}
