"""SGLang: every command line against its own options, platforms and precisions, and what is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.errors import EngineMissing, UsageError
from bench.records import Case, LengthSpec, Parallelism, Placement
from bench.runners.checkpoint import Checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.environment import EnginePython
from bench.runners.installed import Installed
from bench.runners.parser import flags_from
from bench.runners.sglang.facts import Sglang, install_line
from bench.runners.sglang.precision import menu, told
from bench.runners.sglang.runner import SglangRunner, launch_of, load_seconds
from bench.runners.sglang.words import WORDS
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects import sglang as dialect
from tests.runners.flag_files import document, parser_of

SAMPLES = ["sglang-0.5.23"]
PLAIN = Checkpoint(dtype="bf16")
HEAD = ("/e/bin/python", "-m", "sglang.launch_server")


def facts(sample: str = SAMPLES[0], *, platform: str = "cuda", without: tuple[str, ...] = ()) -> Sglang:
    """An installed SGLang with the options of a real version, but for some."""
    options = document(sample)
    kept = [option for option in options["options"] if not set(option.get("flags", ())) & set(without)]
    flags = flags_from({**options, "options": kept})
    return Sglang(
        environment=EnginePython(path="/e/bin/python", found_by="test"),
        installed=Installed(distribution="sglang", version=flags.version, build=None, python="3.11.7", fingerprint=""),
        platform=platform,
        flags=flags,
    )


def line_of(found: Sglang, wanted: Case, placement: Placement | None = None) -> tuple[list[str], dict[str, str]]:
    """Arguments after the program, and the environment."""
    asked = replace(request(Path("/w"), wanted, model=safetensors()), placement=placement or Placement())
    launch = launch_of(found, asked, safetensors(), PLAIN, 8123)
    assert launch.argv[: len(HEAD)] == HEAD
    return list(launch.argv[len(HEAD) :]), launch.env


# --- command lines ----------------------------------------------------------------------------------------------------

RANKS = st.sampled_from([1, 2, 4])
NUMBERS = st.dictionaries(st.sampled_from(["max_running_requests", "context_length", "page_size"]), st.integers(1, 4096))
SWITCHES = st.fixed_dictionaries(
    {},
    optional={"disable_radix_cache": st.booleans(), "kv_cache_dtype": st.just("fp8_e4m3"), "enable_dp_attention": st.just(True)},
)
CASES = st.builds(
    lambda precision, tp, pp, dp, ep, numbers, switches: case(
        engine="sglang", precision=precision, parallel=Parallelism(tp=tp, pp=pp, dp=dp, ep=ep), engine_args=numbers | switches
    ),
    st.sampled_from([None, "bf16", "fp16", "fp32", "tf32", "fp8"]),
    RANKS,
    RANKS,
    RANKS,
    RANKS,
    NUMBERS,
    SWITCHES,
)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("without", [(), ("--attn-dp-size",)])
@given(wanted=CASES)
def test_every_command_line_is_one_that_the_engine_parses(sample: str, without: tuple[str, ...], wanted: Case) -> None:
    line, _ = line_of(facts(sample, without=without), wanted)
    args = parser_of(document(sample)).parse_args(line)
    assert (args.model_path, args.host, args.port, args.served_model_name) == ("/models/tiny", "127.0.0.1", "8123", "tiny")
    assert args.enable_metrics
    ranks = wanted.parallel
    tp, copies = int(args.tp_size or 1), 1 if args.enable_dp_attention else int(args.dp_size or 1)
    assert tp * copies * int(args.pp_size or 1) == ranks.devices
    assert int(args.ep_size or 1) == ranks.ep


@pytest.mark.parametrize(
    ("ranks", "args", "without", "flags"),
    [
        (Parallelism(), {}, (), []),
        (Parallelism(tp=2, dp=4), {}, (), ["--tp-size", "2", "--dp-size", "4"]),
        (Parallelism(tp=2, dp=4), {"enable_dp_attention": True}, (), ["--tp-size", "8", "--attn-dp-size", "4"]),
        (Parallelism(tp=2, dp=4, ep=8), {}, (), ["--tp-size", "8", "--ep-size", "8", "--attn-dp-size", "4"]),
        (
            Parallelism(tp=2, dp=4, ep=8),
            {},
            ("--attn-dp-size",),
            ["--tp-size", "8", "--ep-size", "8", "--dp-size", "4", "--enable-dp-attention"],
        ),
        (Parallelism(tp=8, ep=4, pp=2), {}, (), ["--tp-size", "8", "--pp-size", "2", "--ep-size", "4"]),
        (Parallelism(tp=8), {"enable_dp_attention": True}, (), ["--tp-size", "8"]),
    ],
)
def test_ranks_are_counted_as_sglang_counts_them(
    ranks: Parallelism, args: dict[str, Any], without: tuple[str, ...], flags: list[str]
) -> None:
    line, _ = line_of(facts(without=without), case(parallel=ranks, engine_args=args))
    assert line[line.index("warning") + 1 :] == flags


def test_the_context_is_what_the_cases_need_unless_it_is_given() -> None:
    wanted = case(input_tokens=LengthSpec(mean=500), output_tokens=LengthSpec(mean=100), protocol="openai-completions")
    line, _ = line_of(facts(), wanted)
    assert line[line.index("--context-length") + 1] == str(500 + 100 + 64)
    line, _ = line_of(facts(), structs.replace(wanted, engine_args={"context_length": 4096}))
    assert line.count("--context-length") == 1
    assert line[line.index("--context-length") + 1] == "4096"


def test_several_boards_are_shown_by_number() -> None:
    by_id = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0"}
    by_number = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}
    placement = Placement(visibility_env=by_id, numbered_env=by_number, devices=2)
    two = case(parallel=Parallelism(tp=2))
    assert line_of(facts(), two, placement=placement)[1] == by_number
    assert line_of(facts(), case(), placement=placement)[1] == by_id
    assert line_of(facts(platform="rocm"), two, placement=placement)[1] == by_id


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "flags"),
    [
        (None, ()),
        ("bf16", ("--dtype", "bfloat16")),
        ("half", ("--dtype", "float16")),
        ("fp32", ("--dtype", "float32")),
        ("tf32", ("--dtype", "float32", "--enable-tf32-matmul")),
        ("fp8", ("--quantization", "fp8")),
    ],
)
def test_precisions_are_asked_for(precision: str | None, flags: tuple[str, ...]) -> None:
    assert menu(facts()).flags(precision, PLAIN) == flags


@pytest.mark.parametrize("found", [facts(platform="rocm"), facts(without=("--enable-tf32-matmul",))])
def test_tf32_is_for_cuda_and_versions_that_have_it(found: Sglang) -> None:
    with pytest.raises(UsageError, match="does not run 'tf32' here"):
        menu(found).check("tf32")


CACHE = "KV Cache is allocated. dtype: torch.{}, #tokens: 43690, K size: 1.00 GB, V size: 1.00 GB"
AWQ = Checkpoint(dtype="fp16", quantisation="awq", method="awq")
AUTO = {"dtype": "auto", "quantization": None, "kv_cache_dtype": "auto"}


@pytest.mark.parametrize(
    ("info", "log", "asked", "weights", "found"),
    [
        (AUTO, CACHE.format("bfloat16"), "bf16", PLAIN, "bf16"),
        (AUTO, CACHE.format("bfloat16"), "fp16", PLAIN, "bf16"),
        (AUTO | {"dtype": "half"}, CACHE.format("float16"), "half", PLAIN, "half"),
        (AUTO | {"dtype": "bfloat16"}, "Use float16 due to lack of bfloat16 support.", "bf16", PLAIN, "fp16"),
        (AUTO | {"dtype": "bfloat16", "kv_cache_dtype": "fp8_e4m3"}, CACHE.format("float8_e4m3fn"), "bf16", PLAIN, "bf16"),
        (AUTO, "Load weight end. type=LlamaForCausalLM, dtype=torch.float16, avail mem=1 GB", None, PLAIN, "fp16"),
        (AUTO | {"enable_tf32_matmul": True}, CACHE.format("float32"), "tf32", PLAIN, "tf32"),
        (AUTO | {"enable_tf32_matmul": False}, CACHE.format("float32"), "tf32", PLAIN, "fp32"),
        (AUTO | {"quantization": "fp8"}, CACHE.format("bfloat16"), "fp8", PLAIN, "fp8"),
        (AUTO | {"quantization": "awq_marlin"}, "", "w4a16", AWQ, "awq"),
        (AUTO | {"quantization": "newest"}, "", None, PLAIN, "newest"),
        (AUTO, CACHE.format("float16"), "awq", AWQ, "awq"),
        ({}, "", "bf16", PLAIN, None),
    ],
)
def test_what_runs_is_read_back(
    info: dict[str, Any], log: str, asked: str | None, weights: Checkpoint, found: str | None
) -> None:
    assert told(info, log, asked, weights) == found


# --- from the outside -------------------------------------------------------------------------------------------------


def python(tmp_path: Path, **more: Any) -> str:
    return engine_python(tmp_path / "sglang", "sglang", "0.5.23", dialect.MODULES, **more)


def test_what_runs_is_told_with_its_settings(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, dtype="float16", info={"api_key": "secret"})
    monkeypatch.setenv("SGLANG_ENABLE_X", "1")
    found = python(tmp_path, beside={"torch": "2.14.1", "sglang-kernel": "0.4.10"})
    wanted = case(engine="sglang", engine_python=found, precision="bf16", protocol="openai-completions")
    with SglangRunner().start(request(tmp_path / "work", wanted, model=safetensors(name="org/tiny:8b"))) as engine:
        handle, target = engine.handle, engine.target
        assert (handle.version, handle.precision, handle.load_s) == ("0.5.23", "fp16", 1.25)
        settings = handle.settings
        assert (settings["platform"], settings["package.torch"], settings["package.sglang-kernel"]) == (
            "cuda",
            "2.14.1",
            "0.4.10",
        )
        assert (settings["attention_backend"], settings["max_total_num_tokens"]) == ("fa3", 43690)
        assert settings["max_model_len"] == 64 + 32 + 64
        assert settings["env.SGLANG_ENABLE_X"] == "1"
        assert "secret" not in json.dumps(settings)
        assert (target.model, target.token_ids, target.vocab_size) == ("org/tiny-8b", True, 1000)
        assert engine.server_metrics()["kv_cache_util"] == 0.25
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("device", "hip", "platform"),
    [("cuda", None, "cuda"), ("cuda", "7.0", "rocm"), ("npu:0", None, "ascend"), ("cpu", None, "cpu")],
)
def test_the_platform_is_the_one_that_it_finds(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, device: str, hip: str | None, platform: str
) -> None:
    script(monkeypatch, device=device, hip=hip, info_page="/get_server_info")
    with SglangRunner().start(request(tmp_path / "work", case(engine_python=python(tmp_path)), model=safetensors())) as engine:
        assert engine.handle.settings["platform"] == platform
        assert engine.handle.settings["attention_backend"] == "fa3"
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("behaviour", "words", "hint"),
    [
        ({"device": None}, "finds no device that its build can use", "SGLANG_USE_CPU_ENGINE=1"),
        ({"import_error": "libcudart.so.13: cannot open"}, "can't be imported: ImportError: libcudart", "engine_python"),
    ],
)
def test_what_it_lacks_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, Any], words: str, hint: str
) -> None:
    script(monkeypatch, **behaviour)
    with pytest.raises(EngineMissing, match=words) as caught:
        SglangRunner().check(case(engine_python=python(tmp_path)))
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"max_runing_requests": 3}}, "no option for the engine argument 'max_runing_requests'"),
        ({"engine_args": {"tp_size": 2}}, "bench sets it"),
        ({"engine_args": {"attn_dp_size": 2}}, "bench sets it"),
        ({"engine_args": {"dtype": "float16"}}, "bench sets it"),
        ({"engine_args": {"kv_cache_dtype": "fp3"}}, "does not take 'fp3'"),
        ({"engine_args": {"enable_dp_attention": "yes"}}, "not true or false"),
        ({"engine_args": {"enable_dp_attention": False}, "parallel": Parallelism(dp=2, ep=2)}, "only with enable_dp_attention"),
        ({"parallel": Parallelism(tp=2, ep=4)}, "ep: 4 does not divide"),
        ({"devices": ("0", "nvidia:1")}, "2 devices"),
        ({"precision": "q4_1"}, "does not run GGUF"),
        ({"precision": "fp6"}, "does not run 'fp6'"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        SglangRunner().check(case(engine_python=python(tmp_path), **changes))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Port is already in use. dist_init_port=1 port_base=2 detokenizer_port=3", "port"),
        ("ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.3.", "kv_cache"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.1", "kv_cache"),
        ("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate", "gpu_memory"),
        ("User-specified context_length (9000) is greater than the derived context_length (8192).", "context"),
        ("RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.", "driver"),
        ("The quantization method fp8 is not supported for the current GPU. Minimum capability: 80.", "unsupported"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
    ],
)
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind


def test_the_slowest_rank_says_how_long_loading_took() -> None:
    assert load_seconds(dialect.LOADED) == 1.25
    assert load_seconds("Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16") is None


@pytest.mark.parametrize("platform", ["cuda", "rocm", "ascend", "mthreads", "cpu"])
def test_there_is_a_line_to_install_it(platform: str) -> None:
    assert "BENCH_SGLANG_PYTHON" in install_line(platform)
