"""Triton: both frontends, the repository that is written and one that is there, refusals, what is read back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.ports import Engine
from bench.records import Case, LengthSpec, LoadSpec, Parallelism
from bench.runners.diagnosis import diagnose
from bench.runners.prometheus import parse, project_metrics
from bench.runners.triton.repository import as_fields, served_name
from bench.runners.triton.runner import TritonRunner
from bench.runners.triton.words import WORDS
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.models.samples import CONFIG, safetensors_bytes
from tests.runners.dialects import triton as dialect
from tests.runners.dialects import vllm
from tests.runners.flag_files import document, parser_of

FRONTENDS = ("kserve-generate", "openai-completions")


def site(folder: Path, **changes: Any) -> dict[str, Any]:
    """A Triton with its vLLM backend, as a case names it."""
    modules = {**vllm.MODULES, "tritonserver.__init__": ""}
    python = engine_python(folder / "python", "vllm", "0.32.0", modules, programs={"vllm": "vllm.entrypoints.cli.main"})
    return {"engine_python": python, "home": dialect.home(folder / "home", python, **changes)}


def wanted(found: dict[str, Any], *, args: dict[str, Any] | None = None, **changes: Any) -> Case:
    """A case for that Triton."""
    fields = {"engine": "triton", "engine_python": found["engine_python"], "protocol": "kserve-generate", **changes}
    return case(engine_args={"home": found["home"], **(args or {})}, **fields)


def start(tmp_path: Path, asked: Case, **model: Any) -> Engine:
    return TritonRunner().start(request(tmp_path / "work", asked, model=safetensors(**model)))


def post(url: str, body: dict[str, Any]) -> Any:
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as reply:
        return json.loads(reply.read())


# --- a repository of ours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", FRONTENDS)
def test_each_frontend_serves_the_model_and_tells_what_runs(tmp_path: Path, tree_name: str, protocol: str) -> None:
    found = site(tmp_path)
    asked = wanted(found, protocol=protocol, precision="fp16", args={"max_num_seqs": 8, "vllm_metrics": True})
    with start(tmp_path, asked, name="org/tiny:1") as engine:
        handle, target = engine.handle, engine.target
        assert (target.model, target.protocol, target.token_ids) == ("org-tiny-1", protocol, False)
        assert (handle.version, handle.precision) == ("2.62.0", "fp16")
        assert handle.settings["frontend"] == ("kserve" if protocol == "kserve-generate" else "openai")
        assert handle.settings["dtype"] == "float16"
        fields = json.loads(str(handle.settings["repository"]))
        assert fields["model"] == "/models/tiny"
        assert (fields["dtype"], fields["max_num_seqs"]) == ("float16", 8)
        assert fields["max_model_len"] >= 64 + 32
        before = engine.server_metrics()
        if protocol == "kserve-generate":
            body = {"text_input": "a b c d", "parameters": {"max_tokens": 5}}
            assert post(f"{target.base_url}/v2/models/org-tiny-1/generate", body)["text_output"] == " token" * 5
        else:
            post(f"{target.base_url}/v1/completions", {"model": "org-tiny-1", "prompt": "a b c d", "max_tokens": 5})
        assert engine.server_metrics()["generation_tokens_total"] - before["generation_tokens_total"] == 5
    assert not tree(tree_name)


def test_without_vllms_own_counters_triton_counts_what_it_can(tmp_path: Path, tree_name: str) -> None:
    with start(tmp_path, wanted(site(tmp_path))) as engine:
        assert engine.server_metrics() == {"requests_waiting": 2.0}
        config = (tmp_path / "work/triton-models/tiny/config.pbtxt").read_text()
        assert 'key: "REPORT_CUSTOM_METRICS" value: { string_value: "false" }' in config
        assert "KIND_MODEL" in config, "else Triton would choose the boards"
    assert not tree(tree_name)


def test_another_precision_than_asked_is_told(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, dtype="float32")
    with start(tmp_path, wanted(site(tmp_path), precision="bf16")) as engine:
        assert engine.handle.precision == "fp32"
    assert not tree(tree_name)


def test_ranks_are_told_to_vllm(tmp_path: Path) -> None:
    found = site(tmp_path)
    asked = wanted(found, parallel=Parallelism(tp=2, pp=2, ep=2), load=LoadSpec(kind="closed", batch_size=3))
    TritonRunner().check(asked)
    line = as_fields(["--tensor-parallel-size", "2", "--enable-expert-parallel", "--dtype", "bfloat16"])
    assert line == {"tensor_parallel_size": 2, "enable_expert_parallel": True, "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("name", "folder"), [("tiny", "tiny"), ("org/tiny:q4", "org-tiny-q4"), ("../..", "model"), ("a b", "a-b"), ("", "model")]
)
def test_names_are_those_of_folders(name: str, folder: str) -> None:
    assert served_name(safetensors(name=name)) == folder


# --- a repository that is there ---------------------------------------------------------------------------------------


def prepared(folder: Path) -> str:
    (folder / "ensemble" / "1").mkdir(parents=True)
    (folder / "ensemble" / "config.pbtxt").write_text('platform: "ensemble"\n')
    return str(folder)


def test_a_repository_that_is_there_is_served_as_it_is(tmp_path: Path, tree_name: str) -> None:
    found = site(tmp_path, backends=("python", "tensorrtllm"))
    args = {"model_repository": prepared(tmp_path / "models"), "model_name": "ensemble"}
    with start(tmp_path, wanted(found, args=args)) as engine:
        assert engine.target.model == "ensemble"
        assert f"--model-repository={tmp_path / 'models'}" in engine.handle.command
        assert engine.handle.precision is None
        assert engine.handle.settings["repository"] == "as it is"
    assert not (tmp_path / "work/triton-models").exists()
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("args", "changes", "words"),
    [
        ({}, {}, "needs 'model_name'"),
        ({"model_name": "other"}, {}, "has no model 'other'"),
        ({"model_name": "ensemble"}, {"precision": "bf16"}, "says its own precision and ranks"),
        ({"model_name": "ensemble"}, {"parallel": Parallelism(tp=2)}, "says its own precision and ranks"),
        ({"model_name": "ensemble", "max_num_seqs": 2}, {}, "unknown engine argument 'max_num_seqs'"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, args: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    asked = wanted(site(tmp_path), args={"model_repository": prepared(tmp_path / "models"), **args}, **changes)
    with pytest.raises(UsageError, match=words) as caught:
        TritonRunner().check(asked)
    assert caught.value.hint


# --- under load -------------------------------------------------------------------------------------------------------

SUITE = """
name: t
defaults: {model: "path:tiny", engine: triton, batch_size: 2, input_tokens: 16, output_tokens: 4, duration: 1s, warmup: 0s,
           idle: 0s}
cases: [{name: c, protocol: PROTOCOL, engine_args: {home: HOME, vllm_metrics: true}}]
"""


@pytest.mark.parametrize("protocol", ["kserve-generate", "openai-chat"])
def test_it_is_measured_over_each_protocol(tmp_path: Path, tree_name: str, protocol: str) -> None:
    found = site(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/model.safetensors").write_bytes(safetensors_bytes({"w": (4, 4)}))
    (tmp_path / "tiny/config.json").write_text(json.dumps({**CONFIG, "torch_dtype": "bfloat16"}))
    (tmp_path / "suite.yaml").write_text(SUITE.replace("PROTOCOL", protocol).replace("HOME", found["home"]))
    command = [sys.executable, "-m", "bench", "run", "suite.yaml", "--results", "results"]
    env = {**os.environ, "BENCH_TRITON_PYTHON": found["engine_python"]}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    (shard,) = (tmp_path / "results/shards").glob("*/*/*/trial.json")
    trial = json.loads(shard.read_text())
    assert trial["engine"]["settings"]["frontend"] == ("kserve" if protocol == "kserve-generate" else "openai"), done.stdout
    assert trial["engine"]["precision"] == "bf16"
    assert trial["metrics"]["ttft_ms"]["p50"] > 0, done.stdout
    counted = [trial[f"engine_metrics_{when}"]["generation_tokens_total"] for when in ("before", "after")]
    assert counted[1] > counted[0]
    assert not tree(tree_name)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "changes", "words"),
    [
        ({"max_num_seq": 1}, {}, "no option for the engine argument 'max_num_seq'"),
        ({"dtype": "half"}, {}, "bench sets it"),
        ({"vllm_metrics": "perhaps"}, {}, "not true or false"),
        ({}, {"precision": "q4_1"}, "does not run GGUF's q4_1"),
        ({}, {"parallel": Parallelism(dp=2)}, "no data parallelism"),
        ({}, {"parallel": Parallelism(tp=4, ep=2)}, "over all 4 ranks"),
        ({}, {"batching": "static"}, "schedules requests by itself"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, args: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        TritonRunner().check(wanted(site(tmp_path), args=args, **changes))
    assert caught.value.hint


def test_what_an_image_lacks_is_said_before_anything_starts(tmp_path: Path) -> None:
    found = site(tmp_path, backends=("python",))
    with pytest.raises(EngineMissing, match="has no vLLM backend, but: python"):
        TritonRunner().check(wanted(found))
    (Path(found["home"]) / "python/openai/openai_frontend/main.py").unlink()
    bare = {**found, "home": str(tmp_path / "none")}
    with pytest.raises(EngineMissing, match=r"has no tritonserver, in .*none or on PATH") as caught:
        TritonRunner().check(wanted(bare))
    assert "nvcr.io/nvidia/tritonserver" in str(caught.value.hint)


@pytest.mark.parametrize("lacks", ["frontend", "bindings"])
def test_an_image_without_the_openai_frontend_still_has_kserve(tmp_path: Path, lacks: str) -> None:
    found = site(tmp_path)
    if lacks == "frontend":
        (Path(found["home"]) / "python/openai/openai_frontend/main.py").unlink()
    else:
        (tmp_path / "python/site/tritonserver/__init__.py").unlink()
        (tmp_path / "python/site/tritonserver").rename(tmp_path / "gone")
    with pytest.raises(EngineMissing, match="OpenAI frontend") as caught:
        TritonRunner().check(wanted(found, protocol="openai-chat"))
    assert "protocol: kserve-generate" in str(caught.value.hint)
    TritonRunner().check(wanted(found))


# --- its command, its words, its counters -----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", FRONTENDS)
@pytest.mark.parametrize("args", [{}, {"tokenizer": "/t"}, {"vllm_metrics": True, "gpu_memory_utilization": 0.5}])
def test_every_command_line_is_one_that_the_program_parses(tmp_path: Path, protocol: str, args: dict[str, Any]) -> None:
    found = site(tmp_path)
    asked = request(
        tmp_path / "work", wanted(found, args=args, protocol=protocol), model=safetensors(), env={"CUDA_VISIBLE_DEVICES": "0"}
    )
    launch = TritonRunner().launch_for(asked, 8123)
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "0"
    if protocol == "kserve-generate":
        parsed = parser_of(document("tritonserver-5fd6bc48")).parse_args(launch.argv[1:])
        assert (parsed.http_port, parsed.load_model) == ("8123", "tiny")
        assert parsed.metrics_port != "8123"
    else:
        parsed = parser_of(document("triton-openai-7e31829e")).parse_args(launch.argv[3:])
        assert (parsed.openai_port, parsed.tokenizer) == ("8123", args.get("tokenizer", "/models/tiny"))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("E1130 http_server.cc] failed to start HTTP service: Unavailable - Socket '127.0.0.1:8000' already in use", "port"),
        ("failed to load 'm' version 1: Invalid argument: unable to find backend library for backend 'vllm'", "backend"),
        ("ModuleNotFoundError: No module named 'tritonserver'", "module"),
        ("Failed to initialize shared memory: No space left on device", "shared_memory"),
        ("failed to load 'x', no version is available", "model_missing"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
    ],
)
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind
    assert found.hint


def test_its_last_words_come_with_the_error(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, say="unable to find backend library for backend 'vllm'", exit=1)
    with pytest.raises(EngineStartError, match="no backend for the model"):
        start(tmp_path, wanted(site(tmp_path)))
    assert not tree(tree_name)


def test_counters_of_its_tensorrt_llm_backend_are_told_apart_by_their_labels() -> None:
    page = """nv_trt_llm_request_metrics{model="m",request_type="context",version="1"} 9
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 3
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="m",version="1"} 6239
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.25
nv_inference_pending_request_count{model="m",version="1"} 7
"""
    assert project_metrics(parse(page)) == {"requests_running": 4.0, "requests_waiting": 3.0, "kv_cache_util": 0.25}


def test_a_request_for_more_than_it_was_sized_for_is_sized(tmp_path: Path, tree_name: str) -> None:
    asked = wanted(site(tmp_path), input_tokens=LengthSpec(mean=500), output_tokens=LengthSpec(mean=100))
    with start(tmp_path, asked) as engine:
        fields = json.loads(str(engine.handle.settings["repository"]))
        assert fields["max_model_len"] >= 600
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", engine.target.base_url)
    assert not tree(tree_name)
