"""The real OpenVINO GenAI with a real model, on this machine's CPU: against its own pipeline."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.records import LoadSpec, ModelShape
from bench.runners.openvino.runner import OpenVINORunner
from bench.testing.cases import case, gguf, request
from bench.testing.processes import tree
from tests.runners.openvino_venv import ensure, has_build
from tests.runners.test_openvino import ask
from tests.runners.test_real_llamacpp import gguf_path

__all__ = ["gguf_path"]
NAMED = os.environ.get("BENCH_OPENVINO_PYTHON")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.heavy,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not NAMED and not has_build(), reason="name a Python with openvino-genai in BENCH_OPENVINO_PYTHON"),
]

PROMPTS = ([504, 3575, 282, 4649, 314], [7899, 3123, 253, 655, 665, 436, 253, 1365], [33, 34, 35])
LENGTHS = (7, 2, 4)
GENERATE = """
import json, sys, openvino, openvino_genai
pipe = openvino_genai.LLMPipeline(sys.argv[1], "CPU", ATTENTION_BACKEND="SDPA", INFERENCE_PRECISION_HINT="f32")
found = []
for ids, count in json.loads(sys.argv[2]):
    config = openvino_genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
    found.append(pipe.generate(openvino.Tensor([ids]), config).tokens[0])
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def openvino_python() -> str:
    return NAMED or ensure()


def test_a_batch_gives_what_each_prompt_gives_alone(
    tmp_path: Path, tree_name: str, openvino_python: str, gguf_path: Path
) -> None:
    asked = json.dumps(list(zip(PROMPTS, LENGTHS, strict=True)))
    command = [openvino_python, "-c", GENERATE, str(gguf_path), asked]
    reference = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout.splitlines()[-1]
    )
    model = gguf(gguf_path, shape=ModelShape(vocab=49152))
    wanted: dict[str, Any] = {"precision": "q4_1", "load": LoadSpec(kind="closed", batch_size=2), "devices": ("cpu",)}
    asked_for = case(engine="openvino", engine_python=openvino_python, protocol="openai-completions", **wanted)
    with OpenVINORunner().start(request(tmp_path / "work", asked_for, model=model, timeout_s=600.0)) as engine:
        handle = engine.handle
        assert (handle.precision, handle.settings["weights"]) == ("q4_1", "q4_1")
        assert handle.settings["execution_devices"] == "CPU"
        assert handle.settings["inference_precision"] in ("f32", "bf16", "f16")
        assert handle.settings["slots"] == 2
        assert handle.version
        assert handle.load_s
        before = engine.server_metrics()
        with ThreadPoolExecutor(3) as pool:
            found = list(
                pool.map(lambda prompt, count: ask(engine, prompt=prompt, max_tokens=count, ignore_eos=True), PROMPTS, LENGTHS)
            )
        assert [[token for tokens, _ in events for token in tokens] for events in found] == reference
        assert [events[-1][1] for events in found] == ["length"] * 3
        after = engine.server_metrics()
        assert after["generation_tokens_total"] - before["generation_tokens_total"] == sum(LENGTHS)
        assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == sum(map(len, PROMPTS))
    assert not tree(tree_name)


def test_weights_that_are_not_what_was_asked_for_are_refused(tmp_path: Path, openvino_python: str, gguf_path: Path) -> None:
    wanted = case(engine="openvino", engine_python=openvino_python, precision="fp32", devices=("cpu",))
    with pytest.raises(UsageError, match="the weights are q4_1"):
        OpenVINORunner().start(request(tmp_path / "work", wanted, model=gguf(gguf_path)))
