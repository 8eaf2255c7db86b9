"""Shapes from `config.json` and shard headers, hostile ones among them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from bench.models import safetensors
from bench.records import ModelShape
from tests.models.samples import CONFIG, safetensors_bytes


def _shape(folder: Path, config: object, *shards: bytes) -> ModelShape:
    (folder / "config.json").write_text(json.dumps(config))
    paths = []
    for i, data in enumerate(shards):
        paths.append(folder / f"{i}.safetensors")
        paths[-1].write_bytes(data)
    return safetensors.shape(folder, paths)


def test_shape(tmp_path: Path) -> None:
    shards = (
        safetensors_bytes({"w": (10, 10), "model.layers.0.self_attn.rotary_emb.inv_freq": (8,)}),
        safetensors_bytes({"s": ()}),
    )
    assert _shape(tmp_path, CONFIG, *shards) == ModelShape(
        parameters=101, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocab=100
    )


def test_head_dim_and_kv_heads_as_given_or_as_they_follow(tmp_path: Path) -> None:
    given = _shape(tmp_path, {**CONFIG, "head_dim": 128})
    old = _shape(tmp_path, {k: v for k, v in CONFIG.items() if k != "num_key_value_heads"})
    uneven = _shape(tmp_path, {"hidden_size": 65, "num_attention_heads": 4})
    assert (given.head_dim, old.kv_heads, uneven.head_dim) == (128, 4, None)


def test_a_model_that_also_sees(tmp_path: Path) -> None:
    assert _shape(tmp_path, {"vision_config": {}, "text_config": CONFIG}).hidden == 64


@pytest.mark.parametrize("config", [[], {"hidden_size": "64"}, {"hidden_size": -1}, {"hidden_size": True}, {"text_config": 3}])
def test_a_config_that_says_nothing_usable(tmp_path: Path, config: object) -> None:
    assert _shape(tmp_path, config) == ModelShape()


def test_no_config(tmp_path: Path) -> None:
    assert safetensors.shape(tmp_path, []) == ModelShape()


@pytest.mark.parametrize(
    "shard",
    [
        b"",
        b"\x01",
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 4) + b"nope",
        struct.pack("<Q", 2) + b"[]",
        safetensors_bytes({"w": (2, -3)}),
        safetensors_bytes({"w": (8,)}, dtype="I32"),
        safetensors_bytes({"w": (8,)}, dtype="F8_E4M3"),
    ],
    ids=["empty", "short", "endless header", "no json", "a list", "negative", "packed", "fp8 with scales"],
)
def test_parameters_unknown_rather_than_wrong(tmp_path: Path, shard: bytes) -> None:
    assert _shape(tmp_path, CONFIG, safetensors_bytes({"w": (3,)}), shard).parameters is None


MIXTURE = {**CONFIG, "num_local_experts": 8, "num_experts_per_tok": 2}
EXPERTS = {f"model.layers.0.mlp.experts.{i}.w1.weight": (10, 10) for i in range(8)}


@pytest.mark.parametrize("name", ["num_local_experts", "num_experts", "n_routed_experts"])
def test_a_mixture_of_experts_tells_what_a_token_meets(tmp_path: Path, name: str) -> None:
    config = {**CONFIG, name: 8, "num_experts_per_tok": 2}
    shared = {"model.layers.0.mlp.shared_experts.w1.weight": (10, 5), "embed": (4, 5)}
    found = _shape(tmp_path, config, safetensors_bytes(EXPERTS), safetensors_bytes(shared))
    assert (found.experts, found.experts_used, found.parameters, found.active_parameters) == (8, 2, 870, 270)


def test_experts_that_contradict_themselves_leave_no_active_weights(tmp_path: Path) -> None:
    assert _shape(tmp_path, {**MIXTURE, "num_experts_per_tok": 9}, safetensors_bytes(EXPERTS)).active_parameters is None
    assert _shape(tmp_path, MIXTURE, safetensors_bytes({"w": (3,)})).active_parameters is None


def test_latent_attention_tells_what_it_keeps(tmp_path: Path) -> None:
    assert _shape(tmp_path, {**CONFIG, "kv_lora_rank": 512, "qk_rope_head_dim": 64}).kv_width == 576
    assert _shape(tmp_path, CONFIG).kv_width is None
