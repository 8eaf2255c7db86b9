"""Names of number formats, made comparable. Pure."""

from __future__ import annotations

import re

_SAME = {
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "fp8e4m3": "fp8",
    "fp8e5m2": "fp8",
    "fp8e4m3fn": "fp8",
    "float8e4m3fn": "fp8",
    "float8": "fp8",
    "w8a8": "int8",
    "w8a16": "int8",
    "w4a16": "int4",
    "awq": "int4",
    "gptq": "int4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
}
_UNSAID = frozenset({"", "auto", "default", "unknown", "none"})
_WIDTHS = {"q4": "int4", "iq4": "int4", "q5": "int5", "q6": "int6", "q8": "int8", "q3": "int3", "q2": "int2"}
_GGUF = re.compile(r"(i?q\d)(.*)")
_GGUF_SIZES = {"small": "s", "medium": "m", "large": "l"}


def normal_precision(name: str | None) -> str | None:
    """`torch.float16`, `half` and `F16` as `fp16`; `Q4_K - Medium` as `q4km`. None when nothing was said."""
    plain = re.sub(r"[^a-z0-9]", "", (name or "").lower().removeprefix("torch."))
    if plain in _UNSAID:
        return None
    for size, letter in _GGUF_SIZES.items():
        if _GGUF.fullmatch(plain) and plain.endswith(size):
            plain = plain.removesuffix(size) + letter
    return _SAME.get(plain, plain)


def same_precision(asked: str | None, found: str | None) -> bool:
    """Whether an engine runs what was asked. Unknown on either side is no contradiction; `int4` covers `q4_1` and the like."""
    want, have = normal_precision(asked), normal_precision(found)
    if want is None or have is None or want == have:
        return True
    quantised = _GGUF.fullmatch(have)
    return quantised is not None and _WIDTHS.get(quantised[1]) == want
