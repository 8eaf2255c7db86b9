"""The real llama.cpp with a real model, on this machine's CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench.errors import EngineStartError
from bench.ports import Engine
from bench.records import LengthSpec, LoadSpec, LocalModel
from bench.runners.llamacpp import LlamaCppRunner
from bench.runners.openai import OpenAIRunner
from bench.testing.cases import case, gguf, request
from bench.testing.processes import all_gone, eventually, tree

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

HARNESS = """
import sys, time
from pathlib import Path
from bench.runners.llamacpp import LlamaCppRunner
from bench.testing.cases import case, gguf, request
folder = Path(sys.argv[1])
with LlamaCppRunner().start(request(folder / "work", case(), model=gguf(sys.argv[2]))) as engine:
    (folder / "url").write_text(engine.target.base_url)
    time.sleep(600)
"""


@pytest.fixture(scope="session")
def gguf_path() -> Path:
    """SmolLM2 135M: named by BENCH_TEST_GGUF, else pulled."""
    named = os.environ.get("BENCH_TEST_GGUF")
    if named:
        return Path(named)
    pull = [sys.executable, "-m", "bench", "models", "pull", "smollm2-135m-instruct", "--precision", "q4_1"]
    return Path(subprocess.run(pull, stdout=subprocess.PIPE, text=True, check=True, timeout=570).stdout.strip().splitlines()[-1])


@pytest.fixture
def model(gguf_path: Path) -> LocalModel:
    return gguf(gguf_path)


def complete(engine: Engine, prompt: Any, tokens: int) -> dict[str, Any]:
    """One completion."""
    body = {"model": engine.target.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    asked = urllib.request.Request(
        engine.target.base_url.removesuffix("/v1") + "/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=120) as reply:
        found = json.loads(reply.read())
    assert isinstance(found, dict)
    return found


def test_it_serves_and_tells_how(tmp_path: Path, tree_name: str, model: LocalModel) -> None:
    wanted = case(
        protocol="openai-completions",
        precision="q4_1",
        load=LoadSpec(kind="closed", batch_size=3),
        engine_args={
            "threads": 1,
            "n_batch": 128,
            "n_ubatch": 64,
            "flash_attn": "on",
            "cache_type_k": "q8_0",
            "cache_type_v": "q8_0",
        },
    )
    with LlamaCppRunner().start(request(tmp_path / "work", wanted, model=model)) as engine:
        handle, target = engine.handle, engine.target
        assert (handle.precision, handle.settings["ftype"], handle.settings["n_slots"]) == ("q4_1", "Q4_1", 3)
        assert handle.settings["n_params"] == 134_515_008
        assert handle.settings["threads"] == 1
        slot_tokens = handle.settings["n_ctx_slot"]
        assert isinstance(slot_tokens, int)
        assert slot_tokens >= 64 + 32
        assert handle.version
        assert (target.token_ids, target.vocab_size, target.model) == (True, 49152, "tiny")
        before = engine.server_metrics()  # the first token of all counts too
        prompt = list(range(1000, 1064))
        for _ in range(2):
            usage = complete(engine, prompt, 16)["usage"]
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (64, 16)
        counters = engine.server_metrics()
        assert counters["prompt_tokens_total"] - before["prompt_tokens_total"] == 128.0
        assert counters["generation_tokens_total"] - before["generation_tokens_total"] == 32.0
        assert counters["prompt_tokens_cached_total"] == 0.0  # the same prompt twice: the prompt cache is off
        attached = OpenAIRunner().start(request(tmp_path, case(engine="openai", base_url=target.base_url)))
        assert attached.server_metrics() == counters
        assert attached.target.vocab_size == 49152
    assert not tree(tree_name)


def test_an_asked_prompt_cache_is_on(tmp_path: Path, tree_name: str, model: LocalModel) -> None:
    with LlamaCppRunner().start(request(tmp_path / "work", case(engine_args={"prompt_cache": True}), model=model)) as engine:
        before = engine.server_metrics()
        for _ in range(2):
            complete(engine, list(range(1000, 1064)), 4)
        counters = engine.server_metrics()
        assert counters["prompt_tokens_cached_total"] > before["prompt_tokens_cached_total"]
        assert counters["prompt_tokens_total"] - before["prompt_tokens_total"] == 128.0
    assert not tree(tree_name)


@pytest.mark.parametrize(("keep_b", "words"), [(None, "not where it was told"), (100, "damaged"), (50_000_000, "damaged")])
def test_a_broken_model_file_is_named(tmp_path: Path, tree_name: str, gguf_path: Path, keep_b: int | None, words: str) -> None:
    broken = tmp_path / "broken.gguf"
    if keep_b is not None:
        with gguf_path.open("rb") as whole:
            broken.write_bytes(whole.read(keep_b))
    with pytest.raises(EngineStartError, match=words) as caught:
        LlamaCppRunner().start(request(tmp_path / "work", case(), model=gguf(broken)))
    assert "bench models pull" in str(caught.value.hint)
    assert caught.value.log_tail
    assert not tree(tree_name)


def test_more_context_than_the_model_has_is_served_or_refused(tmp_path: Path, tree_name: str, model: LocalModel) -> None:
    wanted = case(input_tokens=LengthSpec(mean=9000), load=LoadSpec(kind="closed", batch_size=1))
    try:
        with LlamaCppRunner().start(request(tmp_path / "work", wanted, model=model)) as engine:
            slot_tokens = engine.handle.settings["n_ctx_slot"]
            assert isinstance(slot_tokens, int)
            assert slot_tokens >= 9000
    except EngineStartError as error:
        assert "tokens of context" in str(error)  # noqa: PT017 - either outcome is right, a third is not
    assert not tree(tree_name)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_does_not_outlive_a_killed_harness(tmp_path: Path, tree_name: str, model: LocalModel, number: signal.Signals) -> None:
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path), model.path], stderr=subprocess.DEVNULL)
    eventually((tmp_path / "url").exists, "the engine did not start")
    assert len(tree(tree_name)) >= 3
    harness.send_signal(number)
    harness.wait(30)
    all_gone(tree_name)


def test_a_killed_harness_leaves_nothing_while_the_model_loads(tmp_path: Path, tree_name: str, model: LocalModel) -> None:
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path), model.path], stderr=subprocess.DEVNULL)
    eventually(lambda: any("xllamacpp_server" in " ".join(p.cmdline()) for p in tree(tree_name)), "the shim did not start")
    harness.kill()
    harness.wait(30)
    all_gone(tree_name)
