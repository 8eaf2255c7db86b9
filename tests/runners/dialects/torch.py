"""A scripted torch: what is asked of it, and our server of it by its pages. Where the server would import torch, the script is in
its place.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `device` (torch's word for an accelerator that is there), `hip`,
`dtype` (what it runs in the end, whatever was asked) and `import_error`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve


class Torch(Dialect):
    """The pages of `shims/torch_server.py`."""

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(order["name"])
        self.order = order

    def pages(self) -> dict[str, Any]:
        words = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", None: "bfloat16"}
        info = {
            "engine": "torch_server",
            "torch": "2.13.0+cpu",
            "load_s": 1.5,
            "device": self.order["device"],
            "dtype": SCRIPT.get("dtype", words[self.order["precision"]]),
            "float32_matmul": "high" if self.order["precision"] == "tf32" else "highest",
            "slots": self.order["slots"],
            "context": 8192,
            "n_vocab": 1000,
        }
        metrics = {"prompt_tokens_total": self.prompt_tokens, "generation_tokens_total": self.generated_tokens}
        return {
            "/health": {"status": "ok"},
            "/info": info,
            "/v1/models": {"data": [{"id": self.alias}]},
            "/metrics": "".join(f"torch_server:{name} {value}\n" for name, value in metrics.items()),
        }


def main() -> None:
    """`python -u torch_server.py ORDER`."""
    order = json.loads(sys.argv[1])
    say("torch_server: loading")
    misbehave()
    serve(Torch(order), order["port"])


TORCH = """
import sys
if sys.argv[0].endswith("torch_server.py"):
    from tests.runners.dialects.torch import main
    main()
from bench.testing.scripted_engine import SCRIPT
if SCRIPT.get("import_error"):
    raise ImportError(SCRIPT["import_error"])
class version:
    hip = SCRIPT.get("hip")
    git_version = "abc123"
class _Device:
    is_available = staticmethod(lambda: True)
class backends:
    mps = _Device if SCRIPT.get("device") == "mps" else None
if SCRIPT.get("device"):
    globals()[SCRIPT["device"]] = _Device
"""
MODULES = {"torch.__init__": TORCH}
BESIDE = {"transformers": "5.19.0", "accelerate": "1.15.0"}
