"""The project's precisions as vLLM's flags, and vLLM's words back. Pure.

Source: vLLM, `config/model.py` (dtypes), `model_executor/layers/quantization` (methods; some quantise plain weights as they load,
the others want a checkpoint that was quantised so).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.errors import UsageError
from bench.precision import FLOATS, GGUF, QUANTISED, nearest, read_back, same_precision, spelled
from bench.records import Scalar
from bench.runners.checkpoint import Checkpoint
from bench.runners.vllm.facts import TF32_VARIABLE, Platform

_DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_AS_THEY_LOAD = {"fp8": "fp8", "int8": "int8_per_channel_weight_only", "nvfp4": "nvfp4_per_token"}
"""Methods that quantise plain weights."""
_METHODS = {
    **dict.fromkeys(("fp8", "fbgemm_fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "ptpc_fp8", "modelopt"), "fp8"),
    **dict.fromkeys(("int8_per_channel_weight_only", "experts_int8", "tpu_int8"), "int8"),
    **dict.fromkeys(("awq", "awq_marlin", "auto_awq"), "awq"),
    **dict.fromkeys(("gptq", "gptq_marlin", "auto_gptq", "gptq_bitblas"), "gptq"),
    **dict.fromkeys(("nvfp4_per_token", "modelopt_fp4", "nvfp4"), "nvfp4"),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), "mxfp4"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a precision is asked for: flags, and variables of the environment."""

    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


def check_word(precision: str | None, platform: Platform) -> None:
    """Refuse what vLLM can't run here whatever the weights are. Raises: UsageError with what it supports."""
    word = None if precision is None else spelled(precision)
    if word is None or (word in (*FLOATS, *QUANTISED) and (word != "tf32" or _has_tf32(platform))):
        return
    if word in GGUF:
        raise UsageError(
            f"vllm does not run GGUF's {word}",
            hint="take safetensors: precision bf16, or a checkpoint that is quantised (fp8, awq, gptq, ...)",
        )
    if word == "tf32":
        raise UsageError(
            f"this vllm runs no tf32 on {platform.name}", hint="tf32 needs CUDA and a version that knows " + TF32_VARIABLE
        )
    near = nearest(word, (*FLOATS, *QUANTISED))
    did_you_mean = f" Did you mean {near!r}?" if near else ""
    raise UsageError(f"vllm has no precision {precision!r}.{did_you_mean}", hint=f"known: {', '.join((*FLOATS, *QUANTISED))}")


def ask_for(precision: str | None, weights: Checkpoint, platform: Platform) -> Asked:
    """The flags that make vLLM run `weights` in `precision`; none where that is what they are.

    Raises: UsageError where the weights are of another format and vLLM does not convert them.
    """
    if precision is None:
        return Asked()
    word = spelled(precision)
    if word in _DTYPES:
        if weights.quantisation is not None:
            raise _other_weights(precision, weights)
        env = {TF32_VARIABLE: "high"} if word == "tf32" else {}
        return Asked(flags=("--dtype", _DTYPES[word]), env=env)
    if platform.name == "ascend" and word == "int8" and weights.method in (None, "modelslim"):
        return Asked(flags=("--quantization", "ascend"))  # weights of Huawei's own tool may say so in a file of their own
    if weights.quantisation is not None:
        if not same_precision(word, weights.quantisation):
            raise _other_weights(precision, weights)
        return Asked()
    method = _AS_THEY_LOAD.get(word)
    if method is None or not platform.has(method):
        raise UsageError(
            f"this vllm does not make {precision} of plain weights on {platform.name}",
            hint=f"choose weights that are quantised to {precision}; as it loads it can make: {_made(platform)}",
        )
    return Asked(flags=("--quantization", method))


def told(log: str, asked: str | None, weights: Checkpoint, env: Mapping[str, Scalar]) -> str | None:
    """The precision that runs, from the configuration that vLLM logs as it starts; None where it does not."""
    dtype = re.search(r"\bdtype=(?:torch\.)?(\w+)", log)
    method = re.search(r"\bquantization=([\w-]+)", log)
    if dtype is None:
        return None
    if method is not None and method[1] != "None":
        found = _METHODS.get(method[1]) or weights.quantisation or ("int8" if method[1] == "ascend" else method[1])
    else:
        found = spelled(dtype[1])
        if found == "fp32" and env.get(TF32_VARIABLE) in ("high", "medium"):
            found = "tf32"
    return read_back(asked, found)


def _has_tf32(platform: Platform) -> bool:
    return platform.name == "cuda" and TF32_VARIABLE in platform.variables


def _made(platform: Platform) -> str:
    return ", ".join([*(word for word, method in _AS_THEY_LOAD.items() if platform.has(method)), "fp32", "bf16", "fp16"])


def _other_weights(precision: str, weights: Checkpoint) -> UsageError:
    return UsageError(
        f"the weights are {weights.quantisation} ({weights.method}), and the case asks for {precision}",
        hint=f"choose weights in {precision}, or write precision: {weights.quantisation}",
    )
