"""TensorRT-LLM: every command line against the options that its source declares, its options file, and what is read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bench.errors import EngineMissing, UsageError
from bench.records import Case, LengthSpec, Parallelism
from bench.runners.checkpoint import Checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.environment import EnginePython, Said, ask_shim
from bench.runners.installed import Installed
from bench.runners.parser import flags_from
from bench.runners.tensorrt_llm.facts import TensorRTLLM
from bench.runners.tensorrt_llm.options import options_of, told
from bench.runners.tensorrt_llm.runner import TensorRTLLMRunner, launch_of
from bench.runners.tensorrt_llm.words import WORDS
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects import tensorrt_llm as dialect
from tests.runners.flag_files import document, parser_of

SAMPLE = "tensorrt-llm-00209af1"
PLAIN = Checkpoint(dtype="bf16")
NVFP4 = Checkpoint(dtype="bf16", quantisation="nvfp4", method="modelopt")
HEAD = ("/e/bin/trtllm-serve", "serve")


def facts(*more_flags: str) -> TensorRTLLM:
    """An installed TensorRT-LLM with the options of its source."""
    options = document(SAMPLE)
    more = [{"flags": [flag], "choices": None, "nargs": None} for flag in more_flags]
    flags = flags_from({**options, "options": [*options["options"], *more]})
    return TensorRTLLM(
        environment=EnginePython(path="/e/bin/python", found_by="test"),
        installed=Installed(distribution="tensorrt_llm", version=flags.version, build=None, python="3.12.3", fingerprint=""),
        flags=flags,
        head=HEAD,
    )


def line_of(wanted: Case, found: TensorRTLLM | None = None) -> list[str]:
    """Arguments after the program."""
    launch = launch_of(found or facts(), request(Path("/w"), wanted, model=safetensors()), safetensors(), 8123)
    assert launch.argv[: len(HEAD)] == HEAD
    return list(launch.argv[len(HEAD) :])


# --- command lines ----------------------------------------------------------------------------------------------------

RANKS = st.sampled_from([1, 2, 4])
NUMBERS = st.dictionaries(st.sampled_from(["max_batch_size", "max_seq_len", "max_num_tokens"]), st.integers(1, 4096))
SWITCHES = st.fixed_dictionaries({}, optional={"enable_chunked_prefill": st.booleans(), "backend": st.just("pytorch")})
CASES = st.builds(
    lambda tp, pp, attention, numbers, switches: case(
        engine="tensorrt-llm",
        parallel=Parallelism(tp=1 if attention else tp, pp=pp, dp=tp if attention else 1, ep=tp),
        engine_args=numbers | switches,
    ),
    RANKS,
    RANKS,
    st.booleans(),
    NUMBERS,
    SWITCHES,
)


@given(wanted=CASES)
def test_every_command_line_is_one_that_the_engine_parses(wanted: Case) -> None:
    args = parser_of(document(SAMPLE)).parse_args(line_of(wanted))
    assert (args.model, args.host, args.port) == ("/models/tiny", "127.0.0.1", "8123")
    assert args.config == "/w/llm_api_options.yaml"
    ranks = wanted.parallel
    assert int(args.tensor_parallel_size or 1) * int(args.pipeline_parallel_size or 1) == ranks.devices
    assert int(args.moe_expert_parallel_size or 1) == ranks.ep


def test_the_context_is_what_the_cases_need_unless_it_is_given() -> None:
    wanted = case(input_tokens=LengthSpec(mean=500), output_tokens=LengthSpec(mean=100), protocol="openai-completions")
    line = line_of(wanted)
    assert line[line.index("--max_seq_len") + 1] == str(500 + 100 + 64)
    assert line_of(replace(wanted, engine_args={"max_seq_len": 4096})).count("--max_seq_len") == 1


def test_the_name_is_given_only_to_versions_that_take_one() -> None:
    assert "--served_model_name" not in line_of(case())
    line = line_of(case(), facts("--served_model_name"))
    assert line[line.index("--served_model_name") + 1] == "tiny"


# --- the options file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "weights", "options"),
    [
        ({}, PLAIN, {}),
        ({"precision": "bf16"}, PLAIN, {"dtype": "bfloat16"}),
        ({"precision": "half"}, PLAIN, {"dtype": "float16"}),
        ({"precision": "nvfp4"}, NVFP4, {}),
        ({"precision": "fp4"}, NVFP4, {}),
        ({"parallel": Parallelism(dp=4, ep=4)}, PLAIN, {"enable_attention_dp": True}),
    ],
)
def test_the_file_holds_what_the_command_line_can_not_say(
    changes: dict[str, Any], weights: Checkpoint, options: dict[str, Any]
) -> None:
    assert options_of(case(**changes), weights) == {**options, "return_perf_metrics": True}


@pytest.mark.parametrize("name", ["config", "extra_llm_api_options"])
def test_a_file_of_ones_own_is_kept(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kv_cache_config:\n  enable_block_reuse: false\nenable_iter_perf_stats: true\n")
    found = options_of(case(engine_args={name: str(path)}, precision="bf16"), PLAIN)
    assert found == {
        "kv_cache_config": {"enable_block_reuse": False},
        "enable_iter_perf_stats": True,
        "dtype": "bfloat16",
        "return_perf_metrics": True,
    }
    assert str(path) not in line_of(case(engine_args={name: str(path)}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dtype: float16", "option 'dtype' of tensorrt-llm's file: bench sets it"),
        ("tensor_parallel_size: 2", "bench sets it"),
        ("enable_attention_dp: true", "bench sets it"),
        ("- a\n- b", "holds no options"),
        ("a: [", "can't be read"),
        (None, "can't be read"),
    ],
)
def test_a_file_that_can_not_be_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        options_of(case(engine_args={"config": str(path)}), PLAIN)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "asked", "found"),
    [
        ("Setting quant_algo=NVFP4 form HF quant config.", "nvfp4", "nvfp4"),
        ("Setting quant_algo=NVFP4 form HF quant config.", "fp8", "nvfp4"),
        ("Setting quant_algo=QuantAlgo.FP8_BLOCK_SCALES from HF quant config.", "fp8", "fp8"),
        ("Setting quant_algo=W4A16_AWQ from HF quant config.", "w4a16", "awq"),
        ("Setting quant_algo=NEWEST from HF quant config.", None, "newest"),
        ("Setting kv_cache_quant_algo=FP8 form HF quant config.", "bf16", None),
    ],
)
def test_what_runs_is_read_from_the_log(line: str, asked: str | None, found: str | None) -> None:
    assert told(line, asked) == found


# --- from the outside -------------------------------------------------------------------------------------------------


def python(tmp_path: Path, **more: Any) -> str:
    return engine_python(tmp_path / "trtllm", "tensorrt_llm", "1.2.1", dialect.MODULES, **more)


def test_what_runs_is_told_with_its_settings(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, quant_algo="FP8")
    monkeypatch.setenv("TRTLLM_ENABLE_PDL", "1")
    folder = tmp_path / "tiny-fp8"
    folder.mkdir()
    (folder / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    (folder / "hf_quant_config.json").write_text('{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}')
    found = python(tmp_path, beside={"torch": "2.10.0"}, programs={"trtllm-serve": "tensorrt_llm.commands.serve"})
    wanted = case(engine="tensorrt-llm", engine_python=found, precision="fp8", protocol="openai-completions")
    with TensorRTLLMRunner().start(request(tmp_path / "work", wanted, model=safetensors(folder))) as engine:
        handle, target = engine.handle, engine.target
        assert (handle.version, handle.precision) == ("1.2.1", "fp8")
        assert handle.command[0].endswith("/trtllm-serve")
        assert yaml.safe_load(str(handle.settings["llm_api_options"])) == {"return_perf_metrics": True}
        assert handle.settings["env.TRTLLM_ENABLE_PDL"] == "1"
        assert handle.settings["package.torch"] == "2.10.0"
        assert (target.model, target.token_ids) == ("tiny-fp8", True)
        assert engine.server_metrics()["generation_tokens_total"] == 1
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"max_batchsize": 3}}, "no option for the engine argument 'max_batchsize'"),
        ({"engine_args": {"tp_size": 2}}, "bench sets it"),
        ({"engine_args": {"backend": "torch"}}, "does not take 'torch'"),
        ({"parallel": Parallelism(tp=2, dp=2)}, "attention over tp or over dp"),
        ({"parallel": Parallelism(tp=2, ep=4)}, "ep: 4 does not divide"),
        ({"precision": "int8"}, "does not run 'int8'"),
        ({"precision": "q4_1"}, "does not run GGUF"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        TensorRTLLMRunner().check(case(engine_python=python(tmp_path), **changes))
    assert caught.value.hint


def test_without_it_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="tensorrt-llm is not installed") as caught:
        TensorRTLLMRunner().check(case(engine_python=engine_python(tmp_path / "other", "vllm", "1", {})))
    assert "BENCH_TENSORRT_LLM_PYTHON" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ValueError: No GPU devices found on the node", "driver"),
        ("ImportError: libmpi.so.40: cannot open shared object file: No such file or directory", "library"),
        ("ValueError: Unknown architecture for AutoModelForCausalLM: GraniteForCausalLM", "unsupported"),
        ("ValueError: unsupported quant mode: [14]", "unsupported"),
        ("RuntimeError: Failed to bind socket to 127.0.0.1:8000: [Errno 98] Address already in use", "port"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
    ],
)
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("more", "accepted"),
    [(["--max_seq_len", "9"], True), (["--enable_chunked_prefill"], True), (["--backend", "trt"], True), (["--max_seq"], False)],
)
def test_a_command_of_click_can_be_asked(tmp_path: Path, more: list[str], accepted: bool) -> None:
    """The options come back as they were declared, and a line can be checked with the command itself."""
    environment = EnginePython(path=python(tmp_path), found_by="test")
    module = "tensorrt_llm.commands.serve"
    asked = ask_shim(environment, "parser", {"module": module, "arguments": ["serve"]}, timeout_s=60)
    assert not isinstance(asked, Said)
    assert asked["options"] == document(SAMPLE)["options"]
    checked = ask_shim(
        environment, "parser", {"module": module, "arguments": ["serve", "/m", *more], "check": True}, timeout_s=60
    )
    assert not isinstance(checked, Said)
    assert checked["accepted"] is accepted, json.dumps(checked)
