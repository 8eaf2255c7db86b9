"""Shapes of the Llama architecture and their tensors, filled with numbers that no training made. Pure.

Source of names and order: transformers' `modeling_llama.py` and llama.cpp's `convert_hf_to_gguf.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.catalog.models import CatalogModel, all_models
from bench.errors import UsageError

BF16_B, F32_B = 2, 4
STD = 0.02
"""Standard deviation of the weights: what transformers starts a training with (`initializer_range`)."""
_BLOCK = 1 << 22
"""Weights that are made at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Sizes of a model; `ffn` is the width of the feed-forward layer. `tied`: the embedding is the output matrix too."""

    name: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    ffn: int
    tied: bool = False

    @property
    def parameters(self) -> int:
        """Every weight, once."""
        return sum(math.prod(tensor.dims) for tensor in self.tensors())

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, in the order in which they are written."""
        matrix = (self.vocab, self.hidden)
        yield Tensor(hf="model.embed_tokens.weight", gguf="token_embd.weight", dims=matrix)
        for layer in range(self.layers):
            yield from self._layer(f"model.layers.{layer}", f"blk.{layer}")
        yield Tensor(hf="model.norm.weight", gguf="output_norm.weight", dims=(self.hidden,))
        if not self.tied:
            yield Tensor(hf="lm_head.weight", gguf="output.weight", dims=matrix)

    def _layer(self, hf: str, gguf: str) -> Iterator[Tensor]:
        h, f, q, kv = self.hidden, self.ffn, self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows = (
            ("input_layernorm", "attn_norm", (h,)),
            ("self_attn.q_proj", "attn_q", (q, h)),
            ("self_attn.k_proj", "attn_k", (kv, h)),
            ("self_attn.v_proj", "attn_v", (kv, h)),
            ("self_attn.o_proj", "attn_output", (h, q)),
            ("post_attention_layernorm", "ffn_norm", (h,)),
            ("mlp.gate_proj", "ffn_gate", (f, h)),
            ("mlp.up_proj", "ffn_up", (f, h)),
            ("mlp.down_proj", "ffn_down", (h, f)),
        )
        for theirs, ours, dims in rows:
            turned = self.head_dim if ours in ("attn_q", "attn_k") else None
            yield Tensor(hf=f"{hf}.{theirs}.weight", gguf=f"{gguf}.{ours}.weight", dims=dims, rotary=turned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: its name in either format, its rows and columns. `rotary`: rows of a head, where positions turn them."""

    hf: str
    gguf: str
    dims: tuple[int, ...]
    rotary: int | None = None

    @property
    def is_norm(self) -> bool:
        """Whether it is a vector of a normalisation: all ones."""
        return len(self.dims) == 1

    def blocks(self, shape_name: str, *, to_gguf: bool) -> Iterator[NDArray[Any]]:
        """The weights, some rows at a time, as bf16 in 16 bits; norms of a GGUF as fp32. The same on every machine: what numpy
        promises not to change is the stream of bits, not its normal numbers, so those are looked up in a table.
        """
        if self.is_norm:
            yield np.ones(self.dims, "<f4") if to_gguf else np.full(self.dims, _bf16(np.ones(1))[0])
            return
        rows, columns = self.dims
        seed = hashlib.sha256(f"{shape_name} {self.hf}".encode()).digest()[:16]
        bits, table = np.random.PCG64(int.from_bytes(seed, "little")), _normal_table()
        step = self.rotary or max(1, _BLOCK // columns)
        for first in range(0, rows, step):
            taken = min(step, rows - first)
            words = bits.random_raw(-(-taken * columns // 4)).astype("<u8").view("<u2")
            block = table[words[: taken * columns]].reshape(taken, columns)
            yield _interleaved(block) if to_gguf and self.rotary else block


def _interleaved(head: NDArray[Any]) -> NDArray[Any]:
    """Rows of one head as llama.cpp turns them, in neighbouring pairs; transformers turns one half against the other."""
    rows, columns = head.shape
    return head.reshape(2, rows // 2, columns).swapaxes(0, 1).reshape(rows, columns)


@cache
def _normal_table() -> NDArray[Any]:
    """Normal numbers as bf16: the quantile of the middle of each of 65,536 equal parts."""
    normal = NormalDist(0.0, STD)
    return _bf16(np.array([normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)]))


def _bf16(values: NDArray[Any]) -> NDArray[Any]:
    """Rounded to nearest, ties to even, in 16 bits."""
    bits = values.astype("<f4").view("<u4")
    rounded: NDArray[Any] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return rounded


TINY = LlamaShape(name="tiny", layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocab=49152, ffn=192, tied=True)
"""For trying things out: 6.5 MB of safetensors."""


def shapes() -> dict[str, LlamaShape]:
    """Known shapes by name: `tiny`, and the models of the catalogue that are of this architecture."""
    listed = [shape for model in all_models() if (shape := shape_of(model))]
    return {shape.name: shape for shape in (TINY, *listed)}


def shape_of(model: CatalogModel) -> LlamaShape | None:
    """The shape of a model; None where the catalogue lacks a figure, or its number of weights is not that of a Llama."""
    known = model.shape
    sizes = {name: getattr(known, name) for name in ("layers", "heads", "kv_heads", "head_dim", "hidden", "vocab")}
    if known.experts or known.kv_width or model.ffn is None or None in sizes.values():
        return None
    both = (LlamaShape(name=model.name, ffn=model.ffn, tied=tied, **sizes) for tied in (False, True))
    return next((shape for shape in both if shape.parameters == known.parameters), None)


def lookup(name: str) -> LlamaShape:
    """The shape called `name`. Raises: UsageError with the nearest and all known ones."""
    known = shapes()
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=1)
        did_you_mean = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"unknown shape {name!r}.{did_you_mean}", hint=f"known: {', '.join(known)}")
    return known[name.lower()]
