"""vLLM: every command line against its own options, platforms and precisions, and what is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.records import Case, LengthSpec, LoadSpec, LocalModel, Parallelism, Placement
from bench.runners.checkpoint import Checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.environment import EnginePython
from bench.runners.installed import Installed
from bench.runners.parser import Flags, flags_from
from bench.runners.sizing import Sizing
from bench.runners.vllm.facts import TF32_VARIABLE, Platform, Vllm, install_line
from bench.runners.vllm.precision import ask_for, check_word, told
from bench.runners.vllm.runner import VllmRunner, kv_space_gib, launch_of, load_seconds, settings_of
from bench.runners.vllm.words import WORDS
from bench.testing.cases import case, gguf, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects import vllm as dialect
from tests.runners.flag_files import document, parser_of

SAMPLES = ["vllm-0.32.0"]
METHODS = tuple(dialect.METHODS)
CUDA = Platform(
    name="cuda", device_type="cuda", provided_by="vllm", quantisations=METHODS, variables=(TF32_VARIABLE,), supported=()
)
CPU = replace(CUDA, name="cpu", device_type="cpu")
NPU = replace(CUDA, name="ascend", device_type="npu", provided_by="vllm_ascend", supported=("ascend", "compressed-tensors"))
PLAIN = Checkpoint(dtype="bf16")


def facts(sample: str = SAMPLES[0], *, platform: Platform = CUDA, by_command: bool = False, **extra: Any) -> Vllm:
    """An installed vLLM with the options of a real version; `extra` options by name, with their choices."""
    options = document(sample)
    more = [{"flags": [f"--{name}"], "choices": choices, "nargs": None} for name, choices in extra.items()]
    flags: Flags = flags_from({**options, "options": [*options["options"], *more]})
    head = ("/e/bin/vllm", "serve") if by_command else ("/e/bin/python", "-m", "vllm.entrypoints.openai.api_server")
    installed = Installed(distribution="vllm", version=flags.version, build=None, python="3.11.7", fingerprint="")
    return Vllm(
        environment=EnginePython(path="/e/bin/python", found_by="test"),
        installed=installed,
        platform=platform,
        flags=flags,
        head=head,
        takes_positional=by_command,
    )


def line_of(
    found: Vllm, wanted: Case, weights: Checkpoint = PLAIN, placement: Placement | None = None
) -> tuple[list[str], dict[str, str]]:
    """Arguments after the program, and the environment."""
    asked = replace(request(Path("/w"), wanted, model=safetensors()), placement=placement or Placement())
    launch = launch_of(found, asked, safetensors(), weights, 8123)
    return list(launch.argv[len(found.head) :]), launch.env


# --- command lines ----------------------------------------------------------------------------------------------------

RANKS = st.sampled_from([1, 2, 4])
NUMBERS = st.dictionaries(st.sampled_from(["max_num_seqs", "max_model_len", "block_size", "seed"]), st.integers(1, 4096))
SWITCHES = st.fixed_dictionaries({}, optional={"enforce_eager": st.booleans(), "kv_cache_dtype": st.just("fp8")})
CASES = st.builds(
    lambda precision, tp, pp, dp, spread, batch, numbers, switches: case(
        engine="vllm",
        precision=precision,
        parallel=Parallelism(tp=tp, pp=pp, dp=dp, ep=tp * dp if spread else 1),
        load=LoadSpec(kind="closed", batch_size=batch),
        engine_args=numbers | switches,
    ),
    st.sampled_from([None, "bf16", "fp16", "fp32", "tf32", "fp8", "int8", "nvfp4"]),
    RANKS,
    RANKS,
    RANKS,
    st.booleans(),
    st.integers(1, 256),
    NUMBERS,
    SWITCHES,
)


@pytest.mark.parametrize("by_command", [True, False])
@pytest.mark.parametrize("sample", SAMPLES)
@given(wanted=CASES)
def test_every_command_line_is_one_that_the_engine_parses(sample: str, by_command: bool, wanted: Case) -> None:
    line, _ = line_of(facts(sample, by_command=by_command), wanted)
    args = parser_of(document(sample), positionals=by_command).parse_args(line)
    assert (args.model_tag if by_command else args.model) == "/models/tiny"
    assert (args.host, args.port, args.served_model_name) == ("127.0.0.1", "8123", ["tiny"])
    ranks = wanted.parallel
    for count, text in (
        (ranks.tp, args.tensor_parallel_size),
        (ranks.pp, args.pipeline_parallel_size),
        (ranks.dp, args.data_parallel_size),
    ):
        assert int(text or 1) == count
    assert args.enable_expert_parallel == (ranks.ep > 1)


def test_the_context_is_what_the_cases_need_unless_it_is_given() -> None:
    wanted = case(
        engine="vllm", input_tokens=LengthSpec(mean=500), output_tokens=LengthSpec(mean=100), protocol="openai-completions"
    )
    line, _ = line_of(facts(), wanted)
    assert line[line.index("--max-model-len") + 1] == str(500 + 100 + 64)
    line, _ = line_of(facts(), structs.replace(wanted, engine_args={"max_model_len": 4096}))
    assert line.count("--max-model-len") == 1
    assert line[line.index("--max-model-len") + 1] == "4096"


def test_a_device_is_named_only_to_versions_that_have_the_flag() -> None:
    assert "--device" not in line_of(facts(), case())[0]
    old = facts(device=["auto", "cuda", "cpu", "xpu", "tpu", "hpu"])
    line, _ = line_of(old, case())
    assert line[line.index("--device") + 1] == "cuda"
    assert "--device" not in line_of(replace(old, platform=NPU), case())[0]  # not among its choices


def test_boards_are_shown_by_id_only_to_versions_that_can_read_them() -> None:
    by_id = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"}
    by_number = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}
    placement = Placement(visibility_env=by_id, numbered_env=by_number, devices=2)
    assert line_of(facts(), case(), placement=placement)[1].items() >= by_id.items()
    old = facts()
    old = replace(old, flags=replace(old.flags, options=tuple(o for o in old.flags.options if "--device-ids" not in o.flags)))
    assert line_of(old, case(), placement=placement)[1].items() >= by_number.items()
    with pytest.raises(UsageError, match="by number only"):
        line_of(old, case(), placement=structs.replace(placement, numbered_env=None))


def test_the_kv_cache_of_a_cpu_is_sized_and_left_alone_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    assert line_of(facts(platform=CPU), case())[1]["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "VLLM_CPU_KVCACHE_SPACE" not in line_of(facts(), case())[1]
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    assert "VLLM_CPU_KVCACHE_SPACE" not in line_of(facts(platform=CPU), case())[1]


@given(
    st.integers(1, 64),
    st.integers(1, 100_000),
    st.sampled_from([(None, 2), ("bf16", 2), ("fp16", 2), ("fp32", 4), ("float32", 4)]),
)
def test_the_kv_cache_holds_every_request(slots: int, tokens: int, number: tuple[str | None, int]) -> None:
    shape, (precision, number_b) = safetensors().shape, number
    needed_b = 2 * 2 * 2 * 16 * number_b * slots * tokens  # K and V, layers, KV heads, head size
    assert kv_space_gib(shape, Sizing(slots=slots, slot_tokens=tokens), precision) * 2**30 >= needed_b


def test_a_key_of_ours_is_not_asked_of_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert line_of(facts(), case())[1]["VLLM_API_KEY"] == ""


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "weights", "platform", "flags"),
    [
        (None, PLAIN, CUDA, ()),
        ("bf16", PLAIN, CUDA, ("--dtype", "bfloat16")),
        ("half", PLAIN, CPU, ("--dtype", "float16")),
        ("fp32", PLAIN, CPU, ("--dtype", "float32")),
        ("fp8", PLAIN, CUDA, ("--quantization", "fp8")),
        ("fp8", Checkpoint(dtype="bf16", quantisation="fp8", method="fp8"), CUDA, ()),
        ("w4a16", Checkpoint(dtype="fp16", quantisation="awq", method="awq"), CUDA, ()),
        ("awq", Checkpoint(dtype="fp16", quantisation="awq", method="awq"), CUDA, ()),
        ("int8", PLAIN, NPU, ("--quantization", "ascend")),
        ("int8", Checkpoint(dtype="fp16", quantisation="int8", method="modelslim"), NPU, ("--quantization", "ascend")),
        ("int8", PLAIN, CUDA, ("--quantization", "int8_per_channel_weight_only")),
        ("nvfp4", PLAIN, CUDA, ("--quantization", "nvfp4_per_token")),
    ],
)
def test_precisions_are_asked_for(precision: str | None, weights: Checkpoint, platform: Platform, flags: tuple[str, ...]) -> None:
    assert ask_for(precision, weights, platform).flags == flags


@pytest.mark.parametrize(
    ("precision", "weights", "platform", "words"),
    [
        ("awq", PLAIN, CUDA, "does not make awq of plain weights"),
        ("fp6", PLAIN, CUDA, "does not make fp6"),
        ("fp8", PLAIN, NPU, "does not make fp8"),
        ("bf16", Checkpoint(quantisation="awq", method="awq"), CUDA, "the weights are awq"),
        ("gptq", Checkpoint(quantisation="awq", method="awq"), CUDA, "the weights are awq"),
    ],
)
def test_weights_that_do_not_fit_are_refused(precision: str, weights: Checkpoint, platform: Platform, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        ask_for(precision, weights, platform)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("precision", "platform", "words"),
    [
        ("q4_k_m", CUDA, "does not run GGUF"),
        ("tf32", CPU, "no tf32 on cpu"),
        ("bf_16", CUDA, "Did you mean 'bf16'"),
        ("x", CUDA, "no precision"),
    ],
)
def test_words_that_it_can_not_run_are_refused(precision: str, platform: Platform, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_word(precision, platform)


def log_of(dtype: str, quantization: str = "None") -> str:
    fields = {"pid": 1, "model": "/m", "length": 9, "alias": "m", "dtype": dtype, "quantization": quantization}
    return dialect.CONFIG.format(**fields)


@pytest.mark.parametrize(
    ("log", "asked", "weights", "env", "found"),
    [
        (log_of("bfloat16"), "bf16", PLAIN, {}, "bf16"),
        (log_of("bfloat16"), "fp16", PLAIN, {}, "bf16"),
        (log_of("float16"), "half", PLAIN, {}, "half"),
        (log_of("float32"), "tf32", PLAIN, {TF32_VARIABLE: "high"}, "tf32"),
        (log_of("float32"), "tf32", PLAIN, {}, "fp32"),
        (log_of("bfloat16", "fp8"), "fp8", PLAIN, {}, "fp8"),
        (log_of("bfloat16", "awq_marlin"), "w4a16", Checkpoint(quantisation="awq"), {}, "awq"),
        (log_of("bfloat16", "compressed-tensors"), "int8", Checkpoint(quantisation="int8"), {}, "int8"),
        ("nothing of it", "fp8", PLAIN, {}, None),
    ],
)
def test_what_runs_is_read_from_the_log(
    log: str, asked: str, weights: Checkpoint, env: dict[str, Any], found: str | None
) -> None:
    assert told(log, asked, weights, env) == found


# --- from the outside -------------------------------------------------------------------------------------------------


def python(tmp_path: Path, distribution: str = "vllm-cpu", version: str = "0.32.0", **more: Any) -> str:
    return engine_python(tmp_path / "vllm", distribution, version, dialect.MODULES, **more)


def test_what_runs_is_told_with_its_settings(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, dtype="float32")
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "X")
    monkeypatch.setenv("VLLM_SOME_TOKEN", "secret")
    found = python(tmp_path, beside={"torch": "2.13.0+cpu"})
    wanted = case(engine="vllm", engine_python=found, precision="bf16", protocol="openai-completions")
    with VllmRunner().start(request(tmp_path / "work", wanted, model=safetensors())) as engine:
        handle, target = engine.handle, engine.target
        assert (handle.version, handle.precision, handle.load_s) == ("0.32.0", "fp32", 0.79)
        settings = handle.settings
        assert (settings["platform"], settings["distribution"], settings["package.torch"]) == ("cpu", "vllm-cpu", "2.13.0+cpu")
        assert (settings["dtype"], settings["prefix_caching"], settings["max_model_len"]) == ("float32", True, 64 + 32 + 64)
        assert settings["env.VLLM_ATTENTION_BACKEND"] == "X"
        assert "secret" not in json.dumps(settings)
        assert (target.model, target.token_ids, target.vocab_size) == ("tiny", True, 1000)
        assert engine.server_metrics()["kv_cache_util"] == 0.25
    assert not tree(tree_name)


def test_the_command_of_the_usual_package_is_used(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch)
    found = python(tmp_path, "vllm", programs={"vllm": "vllm.entrypoints.cli.main"})
    with VllmRunner().start(request(tmp_path / "work", case(engine_python=found), model=safetensors())) as engine:
        assert engine.handle.command[1:3] == ("serve", "/models/tiny")
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ({"_enum": "CUDA", "device_name": "cuda", "device_type": "cuda"}, "cuda"),
        ({"_enum": "ROCM", "device_name": "rocm", "device_type": "cuda"}, "rocm"),
        ({"_enum": "XPU", "device_name": "xpu", "device_type": "xpu"}, "xpu"),
        ({"_enum": "OOT", "device_name": "npu", "device_type": "npu", "module": "vllm_ascend.platform"}, "ascend"),
        ({"_enum": "OOT", "device_name": "hpu", "device_type": "hpu", "module": "vllm_gaudi.platform"}, "gaudi"),
        ({"_enum": "OOT", "device_name": "maca", "device_type": "cuda", "module": "vllm_metax.platform"}, "metax"),
        ({"_enum": "OOT", "device_name": "newchip", "device_type": "nc", "module": "vllm_newchip.platform"}, "newchip"),
    ],
)
def test_the_platform_is_the_one_that_it_finds(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, platform: dict[str, str], name: str
) -> None:
    script(monkeypatch, platform=platform)
    with VllmRunner().start(request(tmp_path / "work", case(engine_python=python(tmp_path)), model=safetensors())) as engine:
        assert engine.handle.settings["platform"] == name


@pytest.mark.parametrize(
    ("behaviour", "words", "hint"),
    [
        ({"platform": {"_enum": "UNSPECIFIED"}}, "finds no device that its build can use", "bench doctor"),
        ({"import_error": "operator torchvision::nms does not exist"}, "can't be imported", "pip uninstall -y torchvision"),
        ({"import_error": "libcudart.so.12: cannot open"}, "can't be imported", "pip install"),
    ],
)
def test_what_it_lacks_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, Any], words: str, hint: str
) -> None:
    script(monkeypatch, **behaviour)
    with pytest.raises(EngineMissing, match=words) as caught:
        VllmRunner().check(case(engine_python=python(tmp_path)))
    assert hint in str(caught.value.hint)


def test_a_newer_version_that_has_moved_its_parser_is_told(tmp_path: Path) -> None:
    modules = {name: text for name, text in dialect.MODULES.items() if not name.startswith("vllm.entrypoints")}
    found = engine_python(tmp_path / "vllm", "vllm", "9.0", modules)
    with pytest.raises(EngineMissing, match=r"the arguments of vllm 9\.0 .* can't be found out") as caught:
        VllmRunner().check(case(engine_python=found))
    assert "too new" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"max_nun_seqs": 3}}, "no option for the engine argument 'max_nun_seqs'"),
        ({"engine_args": {"tensor_parallel_size": 2}}, "bench sets it"),
        ({"engine_args": {"dtype": "float16"}}, "bench sets it"),
        ({"engine_args": {"kv_cache_dtype": "fp3"}}, "does not take 'fp3'"),
        ({"engine_args": {"enforce_eager": "yes"}}, "not true or false"),
        ({"parallel": Parallelism(tp=2, ep=4)}, "ep: 4 does not divide"),
        ({"parallel": Parallelism(tp=4, ep=2)}, "spreads experts over all 4 ranks"),
        ({"parallel": Parallelism(tp=2), "devices": ("0",)}, "1 devices"),
        ({"devices": ("0", "nvidia:1")}, "2 devices"),
        ({"precision": "q4_1"}, "does not run GGUF"),
        ({"batching": "static"}, "schedules requests by itself"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        VllmRunner().check(case(engine_python=python(tmp_path), **changes))
    assert caught.value.hint


@pytest.mark.parametrize("model", [None, gguf()])
def test_only_safetensors_are_taken(tmp_path: Path, tree_name: str, model: LocalModel | None) -> None:
    with pytest.raises(UsageError, match="vllm reads safetensors"):
        VllmRunner().start(request(tmp_path / "work", case(engine="vllm", engine_python=python(tmp_path)), model=model))
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("1.2 GiB KV cache is needed, which is larger than the available KV cache memory (0.5 GiB).", "kv_cache"),
        ("User-specified max_model_len (9000) is greater than the derived max_model_len (8192)", "context"),
        ("RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`", "driver"),
        ("RuntimeError: operator torchvision::nms does not exist", "module"),
        ("importlib.metadata.PackageNotFoundError: No package metadata was found for vllm", "arguments"),
        ("ValueError: fp8 quantization is currently not supported in cpu.", "unsupported"),
        ("OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/tmp/model'.", "model_missing"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
    ],
)  # fmt: skip
def test_its_last_words_are_understood(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, line: str, kind: str
) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind
    script(monkeypatch, say=line, exit=1)
    with pytest.raises(EngineStartError, match="before it was ready") as caught:
        VllmRunner().start(request(tmp_path / "work", case(engine_python=python(tmp_path)), model=safetensors()))
    assert caught.value.hint == found.hint


def test_its_log_is_read() -> None:
    log = (
        log_of("bfloat16")
        + "\nLoading weights took 0.79 seconds\nLoading weights took 1.25 seconds\nGPU KV cache size: 43,690 tokens"
    )
    assert load_seconds(log) == 1.25
    assert settings_of(log)["kv_cache_tokens"] == 43690
    assert "quantization" not in settings_of(log)
    assert load_seconds("") is None
    assert settings_of("") == {}


@pytest.mark.parametrize("platform", ["cuda", "rocm", "ascend", "gaudi", "metax", "mthreads", "cambricon", "tpu", "xpu", "cpu"])
def test_there_is_a_line_to_install_it(platform: str) -> None:
    assert "engine_python" in install_line(platform)
    assert ("torch==" in install_line(platform)) == (platform == "cpu")
