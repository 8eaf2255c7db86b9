"""The one vocabulary of number formats: how each is written, which words mean the same, and which word covers which. Pure.

A case names the format of the *weights* (and, for `fp8` and `int8`, usually of the activations with them). Runners map these
words to their engine's flags or refuse them; what an engine says that it runs is compared in these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

FLOATS = ("fp32", "tf32", "bf16", "fp16")
"""Plain floating-point weights. `tf32`: fp32 weights, multiplied with 10 bits of mantissa."""
QUANTISED = ("fp8", "int8", "fp6", "w4a16", "awq", "gptq", "int4", "fp4", "mxfp4", "nvfp4")
"""`w4a16`: 4-bit integers with 16-bit activations, of which `awq` and `gptq` are kinds; `fp4` has the kinds `mxfp4`, `nvfp4`."""
_K_SIZES = ("", "_s", "_m", "_l")
GGUF = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0"),
    *(f"q{bits}_k{size}" for bits in (2, 3, 4, 5) for size in _K_SIZES),
    "q6_k",
    *("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m", "iq4_nl", "iq4_xs"),
)
"""Block formats of GGUF files, which hold `fp32`, `fp16`, `bf16`, `mxfp4` and `nvfp4` weights as well."""
NAMES = (*FLOATS, *QUANTISED, *GGUF)

_SAME = {
    **dict.fromkeys(("f32", "float32", "float"), "fp32"),
    **dict.fromkeys(("f16", "float16", "half"), "fp16"),
    "bfloat16": "bf16",
    **dict.fromkeys(("float8", "e4m3", "e5m2", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fn", "float8_e4m3fn", "float8_e5m2"), "fp8"),
    **dict.fromkeys(("w8a8", "w8a16"), "int8"),
}
_COVERS = {
    "w4a16": ("awq", "gptq"),
    "int4": ("w4a16", "awq", "gptq", *(name for name in GGUF if re.match(r"i?q4", name))),
    "fp4": ("mxfp4", "nvfp4"),
    "int8": ("q8_0",),
}
_UNSAID = frozenset({"", "auto", "default", "unknown", "none"})
_SIZES = {"small": "s", "medium": "m", "large": "l"}


def spelled(name: str) -> str:
    """The vocabulary's word for `name`: `torch.float16`, `half` and `all F16` are `fp16`, `Q4_K - Medium` is `q4_k_m`. What
    it does not have comes back in lower case.

    Source: torch's dtypes; llama.cpp, `llama_model_ftype_name`.
    """
    text = name.strip().lower().removesuffix("(guessed)").removeprefix("(guessed)").strip().removeprefix("all ")
    base, _, detail = text.removeprefix("torch.").partition(" - ")
    words = base.replace("-", "_").split() or [base]
    size = _SIZES.get(detail.strip())
    word = f"{words[0]}_{size}" if size else words[0]
    return _SAME.get(word, word)


def normal_precision(name: str | None) -> str | None:
    """`spelled`, but None where nothing is said (`auto`, `default`, an empty text)."""
    word = spelled(name or "")
    return None if word in _UNSAID else word


def same_precision(asked: str | None, found: str | None) -> bool:
    """Whether an engine that runs `found` runs what was asked. Unknown on either side is no contradiction, and neither is a word
    that covers the other: `int4` and `q4_1`, `w4a16` and `awq`.
    """
    want, have = normal_precision(asked), normal_precision(found)
    if want is None or have is None or want == have:
        return True
    return have in _COVERS.get(want, ()) or want in _COVERS.get(have, ())


def read_back(asked: str | None, told: str | None) -> str | None:
    """The precision that runs: in the words of the case where it is what was asked for, else as the engine `told` it."""
    if told is None:
        return None
    found = spelled(told)
    return asked if asked is not None and spelled(asked) == found else found


def nearest(name: str, among: Iterable[str] = NAMES) -> str | None:
    """The word of `among` most like `name`; None if none is close."""
    near = get_close_matches(spelled(name), list(among), n=1)
    return near[0] if near else None
