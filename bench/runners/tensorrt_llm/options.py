"""TensorRT-LLM's LLM API options, which it reads from a YAML file beside its command line, and the precision among them.

Source: TensorRT-LLM, `commands/serve.py` (the file overrides the command line), `llmapi/llm_args.py`, `llmapi/llm_utils.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from bench.errors import UsageError
from bench.precision import read_back
from bench.records import Case
from bench.runners.checkpoint import Checkpoint
from bench.runners.weights import Menu

FILES = ("config", "extra_llm_api_options")
"""Engine arguments that name a file of such options."""
MENU = Menu(
    engine="tensorrt-llm",
    plain={"bf16": ("bfloat16",), "fp16": ("float16",)},
    stored=("fp8", "w4a16", "awq", "gptq", "int4", "fp4", "nvfp4", "mxfp4"),
)
"""Of a float format the value of `dtype`. Its pytorch backend takes quantised weights as they are, and makes none."""
OURS = {
    "model": "write 'model'",
    **dict.fromkeys(("dtype", "quant_config"), "write 'precision'"),
    "tensor_parallel_size": "write 'tp'",
    "pipeline_parallel_size": "write 'pp'",
    "moe_expert_parallel_size": "write 'ep'",
    "enable_attention_dp": "write 'dp'",
    "return_perf_metrics": "bench switches its counters on",
}
"""Options of the file that are keys of a case, or bench's own."""
_ALGORITHMS = {
    **dict.fromkeys(("FP8", "FP8_BLOCK_SCALES", "FP8_PER_CHANNEL_PER_TOKEN"), "fp8"),
    **dict.fromkeys(("W4A16_AWQ", "W4A8_AWQ"), "awq"),
    **dict.fromkeys(("W4A16_MXFP4", "W4A8_MXFP4_FP8", "W4A8_MXFP4_MXFP8"), "mxfp4"),
    "W4A16_GPTQ": "gptq",
    "NVFP4": "nvfp4",
}
_ALGORITHM = re.compile(r"Setting quant_algo=(?:QuantAlgo\.)?(\w+) (?:form|from) HF quant config")
_QUOTED = 200


def options_of(case: Case, weights: Checkpoint) -> dict[str, Any]:
    """The options of a case: those of the file that it names, and what its precision and ranks take.

    Raises: UsageError where the file can't be read, holds bench's own, or the weights are of another format.
    """
    options = _named(case)
    for name, instead in OURS.items():
        if name in options:
            raise UsageError(f"option {name!r} of tensorrt-llm's file: bench sets it", hint=instead)
    dtype = MENU.flags(case.precision, weights)
    if dtype:
        options["dtype"] = dtype[0]
    if case.parallel.dp > 1:
        options["enable_attention_dp"] = True
    return {**options, "return_perf_metrics": True}


def _named(case: Case) -> dict[str, Any]:
    path = next((case.engine_args[name] for name in FILES if case.engine_args.get(name) is not None), None)
    if path is None:
        return {}
    try:
        found = yaml.safe_load(Path(str(path)).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())[:_QUOTED]
        raise UsageError(f"tensorrt-llm's options can't be read: {why}", hint="give the path of a YAML file") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no options of tensorrt-llm's", hint="it holds `name: value` lines")
    return found


def told(log: str, asked: str | None) -> str | None:
    """The format of quantised weights as its log has it; None where they are plain, of which it says nothing."""
    found = _ALGORITHM.search(log)
    return read_back(asked, _ALGORITHMS.get(found[1], found[1].lower())) if found else None
