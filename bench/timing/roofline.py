"""What a token costs in arithmetic and in bytes, and how fast chips could do it at best: the roofline. Pure.

The models are the usual ones. A token goes through every active weight once, a multiply and an add: 2 * N. Attention adds
4 * layers * heads * head_dim FLOP for each token before it, of which a prompt token has half the prompt on average (it looks only
back). A step of decoding reads the weights once for all of its sequences, and each sequence's cache. Embeddings count as weights,
as in published MFU figures. Peaks are dense ones.

Source: Chowdhery et al., PaLM, appendix B (MFU); Databricks, LLM Inference Performance Engineering (MBU); Williams et al.,
Roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.catalog.chips import Chip, Confidence, Figure, Format
from bench.precision import GGUF, normal_precision
from bench.records import ModelShape

By = Literal["compute", "memory"]
KV_B = 2.0
"""Bytes of a number in the cache, unless the engine says that it keeps it in 8 bits."""
CACHE_B = 4 * 256e6
"""Weights of fewer bytes than this per chip may come out of a cache: four times the largest last-level cache of any chip here
(AMD's MI300 series), so that almost none of more stays in it from step to step.
"""
CACHED = "so few weights may come out of a cache, which the bandwidth of the memory does not bound"
_BYTES: dict[str, float] = {
    **dict.fromkeys(("fp32", "tf32"), 4.0),
    **dict.fromkeys(("bf16", "fp16"), 2.0),
    **dict.fromkeys(("fp8", "int8"), 1.0),
    "fp6": 0.75,
    **dict.fromkeys(("fp4", "mxfp4", "nvfp4", "int4", "w4a16", "awq", "gptq"), 0.5),
}
"""Of one weight, without scales."""
_ARITHMETIC: dict[str, Format] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
    "fp6": "fp6",
    **dict.fromkeys(("fp4", "mxfp4", "nvfp4"), "fp4"),
}
"""Formats that chips multiply in. What is not here is unpacked to 16 bits first."""
_SIXTEEN: tuple[Format, ...] = ("fp16", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What tokens of one model cost. `routed`: weights of the experts among `parameters`, of which a token meets
    `expert_share`. `attention_flop`: per token and token before it; `kv_b`: cache of one token [bytes]; `weight_b`: a weight.
    """

    parameters: float
    active: float
    routed: float = 0.0
    expert_share: float = 1.0
    attention_flop: float
    kv_b: float
    weight_b: float

    def flop(self, context: float) -> float:
        """FLOP of one token with `context` tokens before it."""
        return 2.0 * self.active + self.attention_flop * context

    def request_flop(self, input_tokens: float, output_tokens: float) -> float:
        """FLOP of a whole request."""
        return input_tokens * self.flop(input_tokens / 2) + output_tokens * self.flop(input_tokens + output_tokens / 2)

    def weights_read_b(self, sequences: float) -> float:
        """Bytes of weights that a step reads for `sequences` tokens. Experts are met evenly: with k of E a token, B tokens
        leave out (1 - k / E) ** B of them.
        """
        untouched = self.routed * (1.0 - self.expert_share) ** sequences if self.routed else 0.0
        return (self.parameters - untouched) * self.weight_b

    def step_b(self, sequences: float, context: float) -> float:
        """Bytes that a step of decoding reads."""
        return self.weights_read_b(sequences) + sequences * context * self.kv_b


def costs(shape: ModelShape, precision: str | None, *, size_b: int | None = None, kv_b: float = KV_B) -> Costs | str:
    """The costs of a model in a precision, or why they can't be told. `size_b`: of weights in GGUF blocks, whose files are as
    they are in memory.
    """
    needed = {"parameters": shape.parameters, "layers": shape.layers, "heads": shape.heads, "head_dim": shape.head_dim}
    missing = [name for name, value in needed.items() if value is None]
    if shape.kv_width is None and shape.kv_heads is None:
        missing.append("kv_heads")
    if missing:
        return f"the model's shape is not known ({', '.join(missing)})"
    if shape.experts and not _tells_experts(shape):
        return f"a mixture of {shape.experts} experts of which it is not known how many weights a token meets"
    assert shape.parameters is not None
    assert shape.layers is not None
    assert shape.heads is not None
    assert shape.head_dim is not None
    weight_b = _weight_b(precision, shape.parameters, size_b)
    if weight_b is None:
        return f"the weights are in {precision or 'an unknown precision'}, whose bytes are not known"
    active = shape.active_parameters or shape.parameters
    share = shape.experts_used / shape.experts if shape.experts and shape.experts_used else 1.0
    width = shape.kv_width or 2 * (shape.kv_heads or 0) * shape.head_dim
    return Costs(
        parameters=shape.parameters,
        active=active,
        routed=(shape.parameters - active) / (1.0 - share) if share < 1.0 else 0.0,
        expert_share=share,
        attention_flop=4.0 * shape.layers * shape.heads * shape.head_dim,
        kv_b=shape.layers * width * kv_b,
        weight_b=weight_b,
    )


def _tells_experts(shape: ModelShape) -> bool:
    """Whether a mixture's shape says what a token meets, and does not contradict itself."""
    used, active = shape.experts_used, shape.active_parameters
    return bool(used and active and used <= (shape.experts or 0) and active <= (shape.parameters or 0))


def _weight_b(precision: str | None, parameters: int, size_b: int | None) -> float | None:
    word = normal_precision(precision)
    if word in GGUF:
        return None if size_b is None else size_b / parameters
    return _BYTES.get(word or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What chips can do together: FLOP/s in one format, bytes/s from memory. None with its reason where that isn't known."""

    flop_per_s: float | None
    bytes_per_s: float | None
    format: str
    flop_reason: str | None = None
    bytes_reason: str | None = None


def peaks(chips: Sequence[Chip], precision: str | None) -> Peaks:
    """The sums of the chips' bandwidths, and of their dense peaks in the format in which such weights are multiplied."""
    formats = [peak_format(chip, precision) for chip in chips]
    flop_missing = sorted({chip.name for chip, found in zip(chips, formats, strict=True) if found is None})
    bytes_missing = sorted({chip.name for chip in chips if chip.bandwidth_tb_s is None})
    tflops = [chip.tflops[found] for chip, found in zip(chips, formats, strict=True) if found]
    return Peaks(
        flop_per_s=None if flop_missing else sum(tflops) * 1e12,
        bytes_per_s=None if bytes_missing else sum(chip.bandwidth_tb_s or 0.0 for chip in chips) * 1e12,
        format=" and ".join(dict.fromkeys(found for found in formats if found)),
        flop_reason=_no_figure(f"dense {precision or '(unknown precision)'} peak", flop_missing),
        bytes_reason=_no_figure("memory bandwidth", bytes_missing),
    )


def _no_figure(what: str, chips: Sequence[str]) -> str | None:
    return f"the catalogue has no {what} of {', '.join(chips)}" if chips else None


def peak_format(chip: Chip, precision: str | None) -> Format | None:
    """The format whose peak counts for weights of a precision: its own where the chip multiplies in it, else 16 bits, to which
    they are unpacked. fp16 and bf16 have one peak on every chip that has both.
    """
    word = normal_precision(precision)
    if word is None:
        return None
    own = _ARITHMETIC.get(word)
    if own in chip.tflops:
        return own
    if own in ("fp32", "tf32"):
        return None
    return next((form for form in _SIXTEEN if form in chip.tflops), None)


def highest_peak(chips: Sequence[Chip]) -> float:
    """FLOP/s that no arithmetic of these chips can pass."""
    return sum(max(chip.tflops.values(), default=float("inf")) for chip in chips) * 1e12


def least_sure(chips: Sequence[Chip], figure: Figure) -> Confidence:
    """How sure a figure of several chips is: as sure as the worst."""
    order: tuple[Confidence, ...] = ("datasheet", "press", "estimate")
    return max((chip.confidence_of(figure) for chip in chips), key=order.index)


def may_be_cached(cost: Costs, chips: float, replicas: int = 1) -> bool:
    """Whether what a step reads of the weights may stay in the caches of so many chips: then their memory bounds nothing."""
    return cost.active * cost.weight_b * replicas <= CACHE_B * chips


# --- bounds -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least time that something takes [s], and what it waits for."""

    seconds: float
    by: By


def _slower(compute_s: float, memory_s: float) -> Bound:
    return Bound(seconds=compute_s, by="compute") if compute_s >= memory_s else Bound(seconds=memory_s, by="memory")


def prefill_bound(cost: Costs, flop_per_s: float, bytes_per_s: float, tokens: float) -> Bound:
    """The least time for a prompt of `tokens` alone: its arithmetic, or the weights once."""
    return _slower(tokens * cost.flop(tokens / 2) / flop_per_s, cost.weights_read_b(tokens) / bytes_per_s)


def decode_bound(cost: Costs, flop_per_s: float, bytes_per_s: float, *, sequences: float, context: float) -> Bound:
    """The least time for one step of `sequences` at once."""
    return _slower(sequences * cost.flop(context) / flop_per_s, cost.step_b(sequences, context) / bytes_per_s)


def output_bound(
    cost: Costs, flop_per_s: float, bytes_per_s: float, *, sequences: float, input_tokens: float, output_tokens: float
) -> Bound:
    """The least time per output token, prompts included, with `sequences` decoded at once: arithmetic and reading may overlap,
    and prompts may go along in steps that read the weights anyway.
    """
    context = input_tokens + output_tokens / 2
    return _slower(
        cost.request_flop(input_tokens, output_tokens) / output_tokens / flop_per_s,
        cost.step_b(sequences, context) / sequences / bytes_per_s,
    )
