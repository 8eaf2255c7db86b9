"""Small random models of many kinds: each prompt alone with `generate`, and all of them in a batch that rows join and leave.

    python torch_architectures.py FOLDER-OF-THE-SHIMS

Run by a Python that has torch and transformers; prints what came of each kind as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import transformers

sys.path.insert(0, sys.argv[1])
import torch_server
from batching import Batcher
from openai_http import Request

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
EXPERTS = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.5},
    "qwen3": {"head_dim": 8},
    "mistral": {"sliding_window": 4},
    "gpt_oss": {"sliding_window": 4, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma2": {"sliding_window": 4, "head_dim": 8},
    "deepseek_v3": {**LATENT, **EXPERTS, "num_key_value_heads": 4, "first_k_dense_replace": 1},
    "llama4_text": {"attention_chunk_size": 8, "head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 48},
    "bloom": {"n_head": 4, "n_layer": 3},
    "mamba": {"state_size": 4},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
}
PROMPTS = ([5, 6, 7, 8, 9, 10, 11], [20, 21], [30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40], [50])
LENGTHS = (9, 4, 6, 12)


def alone(model: Any) -> list[list[int]]:
    """What transformers makes of each prompt."""
    found = []
    for prompt, count in zip(PROMPTS, LENGTHS, strict=True):
        ids = torch.tensor([prompt])
        ends = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        out = model.generate(ids, attention_mask=torch.ones_like(ids), **ends)
        found.append(out[0, len(prompt) :].tolist())
    return found


def together(model: Any) -> list[list[int]]:
    """The same from a batch: the first runs for a while before the others come, and there is one slot too few."""
    requests = [Request(ids=ids, max_tokens=count, ignore_eos=True) for ids, count in zip(PROMPTS, LENGTHS, strict=True)]
    batcher = Batcher(torch_server.TorchRows(model, "cpu"), slots=3, prefill_tokens=30)
    with torch.inference_mode():
        batcher.submit(requests[0])
        for _ in range(3):
            batcher.turn()
        for request in requests[1:]:
            batcher.submit(request)
        while any(request.made < request.max_tokens for request in requests):
            batcher.turn()
    return [[request.events.get()[0] for _ in range(request.max_tokens)] for request in requests]


def outcome(kind: str) -> str:
    """`same`, `refused: ...`, or both answers."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **KINDS[kind]})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    try:
        torch_server.refuse_unsteppable(model)
    except SystemExit as refused:
        return f"refused: {refused}"
    want, got = alone(model), together(model)
    return "same" if got == want else f"alone {want}, together {got}"


def sampling() -> str:
    """`same` where draws follow temperature and nucleus, and the same seed draws the same."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])

    def draws(count: int, **how: Any) -> list[int]:
        requests = [Request(ids=[1], max_tokens=count, made=made, **how) for made in range(count)]
        return [int(torch_server.sampled(logits, request, "cpu")) for request in requests]

    torch.manual_seed(0)
    many = draws(4000, temperature=0.5)
    shares = torch.bincount(torch.tensor(many), minlength=4) / len(many)
    right = {
        "temperature": bool((shares - torch.softmax(logits / 0.5, dim=-1)).abs().max() < 0.03),
        "nucleus": set(draws(200, temperature=1.0, top_p=0.7)) == {0, 1} and set(draws(50, temperature=9.0, top_p=0.01)) == {0},
        "seed": draws(50, temperature=1.0, seed=3) == draws(50, temperature=1.0, seed=3) != draws(50, temperature=1.0, seed=4),
    }
    return "same" if all(right.values()) else str(right)


print(json.dumps({"sampling": sampling(), **{kind: outcome(kind) for kind in KINDS}}))  # noqa: T201 - this is how it answers
