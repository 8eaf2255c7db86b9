"""A scripted vLLM: its argument parser (the options of a real version), its pages, its metrics, its log.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `platform` (what `current_platform` is), `dtype` and
`quantization` (what it runs in the end, whatever was asked), and `import_error`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve
from tests.runners.flag_files import document, parser_of

CONFIG = (
    "(EngineCore pid={pid}) INFO 11-30 20:34:58 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
    "model='{model}', speculative_config=None, dtype=torch.{dtype}, max_seq_len={length}, load_format=auto, "
    "quantization={quantization}, enforce_eager=False, kv_cache_dtype=auto, device_config=cpu, served_model_name={alias}, "
    "enable_prefix_caching=True, enable_chunked_prefill=True"
)


class Vllm(Dialect):
    """vLLM's OpenAI server."""

    def __init__(self, alias: str, max_model_len: int) -> None:
        super().__init__(alias)
        self.max_model_len = max_model_len

    def pages(self) -> dict[str, Any]:
        label = f'{{engine="0",model_name="{self.alias}"}}'
        metrics = {
            "vllm:prompt_tokens_total": self.prompt_tokens,
            "vllm:generation_tokens_total": self.generated_tokens,
            "vllm:num_requests_running": 0,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": SCRIPT.get("kv_cache_util", 0.25),
            "vllm:prefix_cache_hits_total": 0,
            "vllm:num_preemptions_total": 0,
        }
        return {
            "/health": None,
            "/version": {"version": "0.32.0"},
            "/v1/models": {
                "object": "list",
                "data": [{"id": self.alias, "object": "model", "owned_by": "vllm", "max_model_len": self.max_model_len}],
            },
            "/metrics": "".join(f"# TYPE {name} gauge\n{name}{label} {float(value)}\n" for name, value in metrics.items()),
        }


def main() -> None:
    """`vllm serve MODEL ...` or `python -m vllm.entrypoints.openai.api_server --model MODEL ...`."""
    by_command = sys.argv[1:2] == ["serve"]
    parser = parser_of(document(SCRIPT.get("flags", "vllm-0.32.0")), positionals=by_command)
    for flag in SCRIPT.get("more_flags", ()):
        parser.add_argument(flag)
    args = parser.parse_args(sys.argv[2:] if by_command else sys.argv[1:])
    asked = args.dtype or "auto"
    alias, length = args.served_model_name[0], int(args.max_model_len)
    say(
        CONFIG.format(
            pid=os.getpid(),
            model=args.model_tag if by_command else args.model,
            dtype=SCRIPT.get("dtype", "bfloat16" if asked == "auto" else asked),
            length=length,
            quantization=SCRIPT.get("quantization", args.quantization),
            alias=alias,
        )
    )
    say("(Worker pid=1) INFO 11-30 20:35:15 [default_loader.py:501] Loading weights took 0.79 seconds")
    misbehave()
    serve(Vllm(alias, length), int(args.port))


PLATFORM = """
from bench.testing.scripted_engine import SCRIPT
if SCRIPT.get("import_error"):
    raise RuntimeError(SCRIPT["import_error"])
class _Enum:
    def __init__(self, name): self.name = name
class CpuPlatform:
    _enum = _Enum("CPU"); device_name = "cpu"; device_type = "cpu"; supported_quantization = []
current_platform = CpuPlatform()
for name, value in SCRIPT.get("platform", {}).items():
    if name == "module":
        CpuPlatform.__module__ = value
    else:
        setattr(current_platform, name, _Enum(value) if name == "_enum" else value)
"""
METHODS = ["awq", "gptq", "fp8", "compressed-tensors", "experts_int8", "mxfp4", "int8_per_channel_weight_only", "nvfp4_per_token"]
MODULES = {
    "vllm.platforms": PLATFORM,
    "vllm.envs": "environment_variables = {'VLLM_FLOAT32_MATMUL_PRECISION': None}\n",
    "vllm.model_executor.layers.quantization": f"QUANTIZATION_METHODS = {METHODS!r}\n",
    "vllm.entrypoints.openai.api_server": "from tests.runners.dialects.vllm import main\nmain()\n",
    "vllm.entrypoints.cli.main": "from tests.runners.dialects.vllm import main\nmain()\n",
}
