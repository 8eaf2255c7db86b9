"""A scripted SGLang: its argument parser (the options of a real version), its pages, its metrics, its log.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `device` (what `get_device` gives, an error where it is None),
`hip`, `import_error`, and `info` (over what `/server_info` says).
"""

from __future__ import annotations

import sys
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve
from tests.runners.flag_files import document, parser_of

LOADED = (
    "[2026-11-30 20:34:58 TP0] Load weight end. elapsed=1.25 s, type=LlamaForCausalLM, avail mem=77.40 GB, mem usage=0.28 GB.\n"
    "[2026-11-30 20:34:58 TP1] Load weight end. elapsed=0.79 s, type=LlamaForCausalLM, avail mem=77.40 GB, mem usage=0.28 GB.\n"
    "[2026-11-30 20:34:59 TP0] KV Cache is allocated. dtype: torch.{dtype}, #tokens: 43690, K size: 1.00 GB, V size: 1.00 GB"
)


class Sglang(Dialect):
    """SGLang's HTTP server."""

    def __init__(self, alias: str, context: int, info: dict[str, Any], *, has_metrics: bool) -> None:
        super().__init__(alias)
        self.context = context
        self.info = info
        self.has_metrics = has_metrics

    def pages(self) -> dict[str, Any]:
        label = f'{{engine_type="unified",model_name="{self.alias}",tp_rank="0"}}'
        metrics = {
            "sglang:prompt_tokens_total": self.prompt_tokens,
            "sglang:generation_tokens_total": self.generated_tokens,
            "sglang:cached_tokens_total": 0,
            "sglang:num_running_reqs": 0,
            "sglang:num_queue_reqs": 0,
            "sglang:num_retracted_requests_total": 0,
            "sglang:token_usage": 0.25,
        }
        card = {"id": self.alias, "object": "model", "owned_by": "sglang", "root": self.alias, "max_model_len": self.context}
        pages: dict[str, Any] = {
            "/health": None,
            SCRIPT.get("info_page", "/server_info"): {**self.info, **SCRIPT.get("info", {})},
            "/v1/models": {"object": "list", "data": [card]},
        }
        if self.has_metrics:
            pages["/metrics"] = "".join(f"# TYPE {name} gauge\n{name}{label} {float(value)}\n" for name, value in metrics.items())
        return pages


def main() -> None:
    """`python -m sglang.launch_server --model-path MODEL ...`."""
    args = parser_of(document(SCRIPT.get("flags", "sglang-0.5.23"))).parse_args(sys.argv[1:])
    if ":" in args.served_model_name:
        sys.exit("ValueError: served_model_name cannot contain a colon (':') character.")
    asked = args.dtype or "auto"
    say(LOADED.format(dtype=SCRIPT.get("dtype", "bfloat16" if asked == "auto" else asked)))
    misbehave()
    info = {
        "version": "0.5.23",
        "dtype": asked,
        "quantization": args.quantization,
        "kv_cache_dtype": args.kv_cache_dtype or "auto",
        "enable_tf32_matmul": args.enable_tf32_matmul,
        "attention_backend": "fa3",
        "max_total_num_tokens": 43690,
        "api_key": None,
        "launch_command": sys.argv,
    }
    serve(Sglang(args.served_model_name, int(args.context_length), info, has_metrics=args.enable_metrics), int(args.port))


UTILS = """
from bench.testing.scripted_engine import SCRIPT
if SCRIPT.get("import_error"):
    raise ImportError(SCRIPT["import_error"])
def get_device():
    if SCRIPT.get("device", "cuda") is None:
        raise RuntimeError("No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.")
    return SCRIPT.get("device", "cuda")
"""
MODULES = {
    "sglang.srt.utils": UTILS,
    "torch.version": "from bench.testing.scripted_engine import SCRIPT\nhip = SCRIPT.get('hip')\n",
    "sglang.launch_server": "from tests.runners.dialects.sglang import main\nmain()\n",
}
