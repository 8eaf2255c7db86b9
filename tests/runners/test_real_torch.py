"""The real torch and transformers with a real model, on this machine's CPU, against transformers' own `generate`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.errors import EngineStartError
from bench.ports import Engine
from bench.records import LengthSpec, LoadSpec, LocalModel
from bench.runners.torch.runner import TorchRunner
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import ROOT
from bench.testing.processes import tree
from tests.runners.vllm_venv import ensure, has_build

NAMED = os.environ.get("BENCH_TORCH_PYTHON") or os.environ.get("BENCH_VLLM_PYTHON")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.heavy,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not NAMED and not has_build(), reason="name a Python with torch and transformers in BENCH_TORCH_PYTHON"),
]

PROMPTS = ([504, 3575, 282, 4649, 314], [7899, 3123, 253, 655, 665, 436, 253, 1365], [33, 34, 35])
LENGTHS = (7, 2, 4)
"""Tokens to be made: the rows of a batch end one after the other."""
GENERATE = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
found = []
for ids, count in json.loads(sys.argv[2]):
    ids = torch.tensor([ids])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
    found.append(out[0, ids.shape[1]:].tolist())
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The Python that has torch and transformers: vLLM's has both."""
    return NAMED or ensure()


@pytest.fixture(scope="session")
def folder(torch_python: str) -> str:
    """SmolLM2 135M as safetensors: named by BENCH_TEST_SAFETENSORS, else made of the catalogue's GGUF file."""
    named = os.environ.get("BENCH_TEST_SAFETENSORS")
    if named:
        return named
    convert = [sys.executable, "-m", "bench", "models", "convert", "smollm2-135m-instruct", "--to", "safetensors"]
    made = subprocess.run([*convert, "--python", torch_python], stdout=subprocess.PIPE, text=True, check=True, timeout=800)
    return made.stdout.strip().splitlines()[-1]


@pytest.fixture
def model(folder: str) -> LocalModel:
    return safetensors(folder)


@pytest.fixture(scope="session")
def reference(torch_python: str, folder: str) -> list[list[int]]:
    """What transformers itself makes of each prompt alone."""
    asked = json.dumps(list(zip(PROMPTS, LENGTHS, strict=True)))
    told = subprocess.run(
        [torch_python, "-c", GENERATE, folder, asked], stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    found = json.loads(told.stdout.splitlines()[-1])
    assert isinstance(found, list)
    return found


def tokens(engine: Engine, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens of one completion, by their events."""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": True}
    asked = urllib.request.Request(
        engine.target.base_url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=300) as reply:
        events = [line.removeprefix(b"data: ") for line in reply.read().splitlines() if line]
    assert events.pop() == b"[DONE]"
    return [token for event in events for token in json.loads(event)["choices"][0]["token_ids"]]


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_a_batch_gives_what_each_prompt_gives_alone(
    tmp_path: Path, tree_name: str, torch_python: str, model: LocalModel, reference: list[list[int]], batching: Any
) -> None:
    wanted = case(
        engine="torch",
        engine_python=torch_python,
        engine_args={"device": "cpu", "threads": 1},
        precision="fp32",
        protocol="openai-completions",
        load=LoadSpec(kind="closed", batch_size=2, num_prompts=3),
        batching=batching,
    )
    with TorchRunner().start(request(tmp_path / "work", wanted, model=model, timeout_s=600.0)) as engine:
        handle, target = engine.handle, engine.target
        assert (handle.precision, handle.settings["device"], handle.settings["batching"]) == ("fp32", "cpu", batching)
        assert handle.settings["architecture"] == "LlamaForCausalLM"
        assert handle.version
        assert handle.load_s
        assert (target.token_ids, target.vocab_size) == (True, 49152)
        before = engine.server_metrics()
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda prompt, count: tokens(engine, prompt, count), PROMPTS, LENGTHS))
        assert found == reference
        after = engine.server_metrics()
        assert after["generation_tokens_total"] - before["generation_tokens_total"] == sum(LENGTHS)
        assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == sum(map(len, PROMPTS))
        assert (after["requests_running"], after["requests_waiting"]) == (0.0, 0.0)
    assert not tree(tree_name)


def test_more_context_than_the_model_has_is_refused(tmp_path: Path, tree_name: str, torch_python: str, model: LocalModel) -> None:
    wanted = case(engine="torch", engine_python=torch_python, engine_args={"device": "cpu"})
    wanted = replace(wanted, input_tokens=LengthSpec(mean=9000))
    with pytest.raises(EngineStartError, match="more context than the model has") as caught:
        TorchRunner().start(request(tmp_path / "work", wanted, model=model, timeout_s=600.0))
    assert "shorten" in str(caught.value.hint)
    assert not tree(tree_name)


@pytest.fixture(scope="session")
def outcomes(torch_python: str) -> dict[str, str]:
    """What came of each kind of model."""
    program = [
        torch_python,
        str(ROOT / "tests" / "runners" / "torch_architectures.py"),
        str(ROOT / "bench" / "runners" / "shims"),
    ]
    told = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
    found = json.loads(told.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("kind", ["gpt2", "opt", "qwen3", "mistral", "gpt_oss", "gemma2", "deepseek_v3", "llama4_text"])
def test_rows_that_come_and_go_change_no_answer_of_any_kind_of_model(outcomes: dict[str, str], kind: str) -> None:
    assert outcomes[kind] == "same"


def test_sampling_follows_temperature_nucleus_and_seed(outcomes: dict[str, str]) -> None:
    assert outcomes["sampling"] == "same"


@pytest.mark.parametrize("kind", ["bloom", "mamba", "lfm2"])
def test_models_whose_rows_can_not_be_padded_are_refused(outcomes: dict[str, str], kind: str) -> None:
    assert outcomes[kind].startswith("refused: torch_server: unsupported model")
