"""The project's precisions as SGLang's flags, and SGLang's words back. Pure.

Source: SGLang, `srt/layers/quantization` (of its methods only fp8 quantises plain weights as they load) and
`srt/configs/model_config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench.precision import read_back, spelled
from bench.runners.checkpoint import Checkpoint
from bench.runners.sglang.facts import Sglang
from bench.runners.weights import Menu

_TF32 = "--enable-tf32-matmul"
_STORED = ("fp8", "int8", "w4a16", "awq", "gptq", "int4", "fp4", "mxfp4", "nvfp4")
_METHODS = {
    **dict.fromkeys(("fp8", "w8a8_fp8", "modelopt_fp8"), "fp8"),
    **dict.fromkeys(("awq", "awq_marlin"), "awq"),
    **dict.fromkeys(("gptq", "gptq_marlin"), "gptq"),
    **dict.fromkeys(("modelopt_fp4", "petit_nvfp4"), "nvfp4"),
    **dict.fromkeys(("mxfp4", "quark_mxfp4"), "mxfp4"),
    "w8a8_int8": "int8",
}
_NO_BF16 = "Use float16 due to lack of bfloat16 support"
_CACHE_DTYPE = re.compile(r"KV Cache (?:is allocated|VA upper bound)\. dtype: (?:torch\.)?(\w+)")
_WEIGHT_DTYPE = re.compile(r"Load weight end\..{0,200}\bdtype=(?:torch\.)?(\w+)")
"""Of older versions; later ones do not say it there."""


def menu(found: Sglang) -> Menu:
    """What this SGLang runs where it is."""
    plain: dict[str, tuple[str, ...]] = {
        word: ("--dtype", name) for word, name in (("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16"))
    }
    if found.platform == "cuda" and found.flags.find(_TF32):
        plain["tf32"] = ("--dtype", "float32", _TF32)
    fp8 = tuple(found.flags.known("--quantization", "fp8"))
    return Menu(engine="sglang", plain=plain, made={"fp8": fp8} if fp8 else {}, stored=_STORED)


def told(info: Mapping[str, Any], log: str, asked: str | None, weights: Checkpoint) -> str | None:
    """The precision that runs, from what the server says of its configuration and from its log; None where neither tells."""
    method = info.get("quantization")
    if isinstance(method, str) and method not in ("unquant", ""):
        return read_back(asked, weights.quantisation or _METHODS.get(method, method))
    if weights.quantisation is not None:
        return read_back(asked, weights.quantisation)
    dtype = _dtype(info, log)
    if dtype is not None and spelled(dtype) == "fp32" and info.get("enable_tf32_matmul") is True:
        dtype = "tf32"
    return read_back(asked, dtype)


def _dtype(info: Mapping[str, Any], log: str) -> str | None:
    """Of plain weights. The KV cache has it too where no other is asked for, and the cache is what is there."""
    if _NO_BF16 in log:
        return "fp16"
    in_weights, in_cache = _WEIGHT_DTYPE.search(log), _CACHE_DTYPE.search(log)
    if in_weights is not None:
        return in_weights[1]
    if in_cache is not None and info.get("kv_cache_dtype") == "auto":
        return in_cache[1]
    configured = info.get("dtype")
    return configured if isinstance(configured, str) and configured != "auto" else None
