"""Takes the place of `acme-serve`: its options, pages and counters over a scripted engine."""

from __future__ import annotations

import argparse
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve


class Acme(Dialect):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options.name)
        self.options = options

    def pages(self) -> dict[str, Any]:
        counters = {
            "acme_tokens_in_total": self.prompt_tokens,
            "acme_tokens_out_total": self.generated_tokens,
            "acme_lanes_busy": 0,
        }
        return {
            "/ready": None,
            "/about": {"version": "7.1", "format": SCRIPT.get("format", self.options.format), "lanes": self.options.lanes},
            "/v1/models": {"object": "list", "data": [{"id": self.alias, "object": "model"}]},
            "/stats": "".join(f"{name} {value}\n" for name, value in counters.items()),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("weights")
    parser.add_argument("--name", required=True)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--format", choices=("half", "single"), default="half")
    options = parser.parse_args()
    say(f"acme: loading {options.weights}")
    misbehave()
    serve(Acme(options), options.listen)


if __name__ == "__main__":
    main()
