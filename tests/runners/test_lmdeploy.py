"""LMDeploy: every command line against its own options, its two engines and their precisions, and what is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bench.errors import EngineStartError, UsageError
from bench.records import Case, LengthSpec, Parallelism
from bench.runners.checkpoint import Checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.environment import EnginePython
from bench.runners.installed import Installed
from bench.runners.lmdeploy.facts import LMDeploy, install_line
from bench.runners.lmdeploy.precision import menu, told
from bench.runners.lmdeploy.runner import LMDeployRunner, launch_of
from bench.runners.lmdeploy.words import WORDS
from bench.runners.parser import flags_from
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects import lmdeploy as dialect
from tests.runners.flag_files import document, parser_of

SAMPLES = ["lmdeploy-0.18.0"]
PLAIN = Checkpoint(dtype="bf16")
AWQ = Checkpoint(dtype="fp16", quantisation="awq", method="awq")
HEAD = ("/e/bin/python", "-m", "lmdeploy", "serve", "api_server")


def facts(sample: str = SAMPLES[0], *, device: str = "cuda") -> LMDeploy:
    """An installed LMDeploy with the options of a real version."""
    flags = flags_from(document(sample))
    return LMDeploy(
        environment=EnginePython(path="/e/bin/python", found_by="test"),
        installed=Installed(distribution="lmdeploy", version=flags.version, build=None, python="3.11.7", fingerprint=""),
        device=device,
        flags=flags,
    )


def line_of(found: LMDeploy, wanted: Case, weights: Checkpoint = PLAIN) -> list[str]:
    """Arguments after the program."""
    launch = launch_of(found, request(Path("/w"), wanted, model=safetensors()), safetensors(), weights, 8123)
    assert launch.argv[: len(HEAD)] == HEAD
    return list(launch.argv[len(HEAD) :])


# --- command lines ----------------------------------------------------------------------------------------------------

RANKS = st.sampled_from([1, 2, 4])
NUMBERS = st.dictionaries(st.sampled_from(["max_batch_size", "session_len", "cache_block_seq_len"]), st.integers(1, 4096))
SWITCHES = st.fixed_dictionaries(
    {}, optional={"enable_prefix_caching": st.booleans(), "quant_policy": st.just(8), "cache_max_entry_count": st.just(0.5)}
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[str, Case, Checkpoint]:
    """A device, a case that its engine runs, and weights for it."""
    device = draw(st.sampled_from(["cuda", "ascend", "maca", "camb"]))
    backend = draw(st.sampled_from([None, "turbomind", "pytorch"] if device == "cuda" else [None, "pytorch"]))
    pytorch = backend == "pytorch" or device != "cuda"
    tp, dp = draw(RANKS), 1 if pytorch else draw(RANKS)
    ep = draw(st.sampled_from([1, tp])) if pytorch else draw(st.sampled_from([1, tp, tp * dp]))
    weights = draw(st.sampled_from([PLAIN, AWQ]))
    words = [None, "awq", "w4a16"] if weights is AWQ else [None, "bf16", "fp16"]
    if backend == "pytorch" and device == "cuda" and weights is PLAIN:
        words.append("fp8")
    args = draw(NUMBERS) | draw(SWITCHES) | ({"backend": backend} if backend else {})
    wanted = case(
        engine="lmdeploy", precision=draw(st.sampled_from(words)), parallel=Parallelism(tp=tp, dp=dp, ep=ep), engine_args=args
    )
    return device, wanted, weights


@pytest.mark.parametrize("sample", SAMPLES)
@given(wanted=runs())
def test_every_command_line_is_one_that_the_engine_parses(sample: str, wanted: tuple[str, Case, Checkpoint]) -> None:
    device, its_case, weights = wanted
    args = parser_of(document(sample)).parse_args(line_of(facts(sample, device=device), its_case, weights))
    assert (args.model_path, args.server_name, args.server_port, args.model_name) == ("/models/tiny", "127.0.0.1", "8123", "tiny")
    assert args.device == device
    assert args.backend == its_case.engine_args.get("backend", "turbomind" if device == "cuda" else "pytorch")
    ranks = its_case.parallel
    assert [int(text or 1) for text in (args.tp, args.dp, args.ep)] == [ranks.tp, ranks.dp, ranks.ep]


def test_the_context_is_what_the_cases_need_unless_it_is_given() -> None:
    wanted = case(input_tokens=LengthSpec(mean=500), output_tokens=LengthSpec(mean=100), protocol="openai-completions")
    line = line_of(facts(), wanted)
    assert line[line.index("--session-len") + 1] == str(500 + 100 + 64)
    line = line_of(facts(), replace(wanted, engine_args={"session_len": 4096}))
    assert line.count("--session-len") == 1


def test_a_device_can_be_named() -> None:
    line = line_of(facts(), case(engine_args={"device": "ascend"}))
    assert line[line.index("--device") + 1] == "ascend"
    assert line.count("--device") == 1
    assert line[line.index("--backend") + 1] == "pytorch"


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "weights", "args", "flags"),
    [
        (None, PLAIN, {}, []),
        ("bf16", PLAIN, {}, ["--dtype", "bfloat16"]),
        ("half", PLAIN, {}, ["--dtype", "float16"]),
        ("fp8", PLAIN, {"backend": "pytorch"}, ["--model-format", "fp8", "--backend", "pytorch"]),
        ("w4a16", AWQ, {}, ["--model-format", "awq"]),
        ("awq", AWQ, {"backend": "pytorch"}, ["--backend", "pytorch"]),
        ("int8", Checkpoint(quantisation="int8", method="smooth_quant"), {"backend": "pytorch"}, ["--backend", "pytorch"]),
    ],
)
def test_precisions_are_asked_for(precision: str | None, weights: Checkpoint, args: dict[str, Any], flags: list[str]) -> None:
    line = line_of(facts(), case(precision=precision, engine_args=args), weights)
    assert line[line.index("cuda") + 1 :] == flags


@pytest.mark.parametrize(
    ("precision", "device", "args", "words"),
    [
        ("fp32", "cuda", {}, "lmdeploy's turbomind does not run 'fp32' here"),
        ("int8", "cuda", {}, "lmdeploy's turbomind does not run 'int8' here"),
        ("gptq", "ascend", {}, "lmdeploy's pytorch does not run 'gptq' here"),
        ("q4_k_m", "cuda", {}, "GGUF"),
    ],
)
def test_words_that_it_can_not_run_are_refused(precision: str, device: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        menu(facts(device=device), case(engine_args=args)).check(precision)


def test_fp8_is_made_of_plain_weights_by_its_pytorch_engine_on_cuda_only() -> None:
    for device, args in (("cuda", {}), ("ascend", {"backend": "pytorch"})):
        with pytest.raises(UsageError, match="does not make fp8 of plain weights"):
            menu(facts(device=device), case(engine_args=args)).flags("fp8", PLAIN)


@pytest.mark.parametrize(
    ("log", "asked", "weights", "found"),
    [
        ("[TM][WARNING] data type downgraded to float16", "bf16", PLAIN, "fp16"),
        ("updated backend_config=TurbomindEngineConfig(dtype='bfloat16', model_format=None", "bf16", PLAIN, "bf16"),
        ("updated backend_config=PytorchEngineConfig(dtype='auto', tp=1", "bf16", PLAIN, None),
        ("updated backend_config=TurbomindEngineConfig(dtype='float16', model_format='awq'", "awq", AWQ, None),
        ("", "bf16", PLAIN, None),
    ],
)
def test_what_runs_is_read_where_the_log_tells_it(log: str, asked: str, weights: Checkpoint, found: str | None) -> None:
    assert told(log, asked, weights) == found


# --- from the outside -------------------------------------------------------------------------------------------------


def python(tmp_path: Path, **more: Any) -> str:
    return engine_python(tmp_path / "lmdeploy", "lmdeploy", "0.18.0", dialect.MODULES, **more)


def test_what_runs_is_told_with_its_settings(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch)
    monkeypatch.setenv("TM_LOG_LEVEL", "ERROR")
    found = python(tmp_path, beside={"torch": "2.10.0", "dlinfer-ascend": "0.2.7"})
    wanted = case(engine="lmdeploy", engine_python=found, precision="bf16", protocol="openai-completions")
    with LMDeployRunner().start(request(tmp_path / "work", wanted, model=safetensors())) as engine:
        handle, target = engine.handle, engine.target
        assert (handle.version, handle.precision) == ("0.18.0", None)
        settings = handle.settings
        assert (settings["backend"], settings["device"], settings["package.dlinfer-ascend"]) == ("pytorch", "ascend", "0.2.7")
        assert settings["env.TM_LOG_LEVEL"] == "ERROR"
        assert (target.model, target.token_ids) == ("tiny", False)
        counters = engine.server_metrics()
        assert (counters["requests_running"], counters["requests_waiting"], counters["kv_cache_util"]) == (1, 5, 0.25)
    assert not tree(tree_name)


@pytest.mark.parametrize(("falls_back", "backend"), [(False, "turbomind"), (True, "pytorch")])
def test_which_engine_runs_is_told(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, falls_back: bool, backend: str
) -> None:
    script(monkeypatch, falls_back=falls_back)
    with LMDeployRunner().start(request(tmp_path / "work", case(engine_python=python(tmp_path)), model=safetensors())) as engine:
        assert engine.handle.settings["backend"] == backend


def test_another_engine_than_the_one_asked_for_is_refused(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, falls_back=True)
    wanted = case(engine_python=python(tmp_path), engine_args={"backend": "turbomind"})
    with pytest.raises(EngineStartError, match="runs its pytorch engine, and the case asks for turbomind") as caught:
        LMDeployRunner().start(request(tmp_path / "work", wanted, model=safetensors()))
    assert "Fallback to pytorch" in caught.value.log_tail
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"max_batchsize": 3}}, "no option for the engine argument 'max_batchsize'"),
        ({"engine_args": {"tp": 2}}, "bench sets it"),
        ({"engine_args": {"model_format": "awq"}}, "bench sets it"),
        ({"engine_args": {"backend": "torch"}}, "does not take 'torch'"),
        ({"engine_args": {"backend": "turbomind", "device": "ascend"}}, "runs on cuda only"),
        ({"parallel": Parallelism(pp=2)}, "no pipeline parallelism"),
        ({"engine_args": {"backend": "pytorch"}, "parallel": Parallelism(dp=2)}, "in one server has no data parallelism"),
        ({"engine_args": {"backend": "pytorch"}, "parallel": Parallelism(tp=4, ep=2)}, "spreads experts over all 4 ranks"),
        ({"devices": ("0", "nvidia:1")}, "2 devices"),
        ({"precision": "fp32"}, "does not run 'fp32'"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        LMDeployRunner().check(case(engine_python=python(tmp_path), **changes))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: No enough gpu memory for kv cache.", "kv_cache"),
        ("RuntimeError: No enough gpu memory for runtime.", "gpu_memory"),
        ("lmdeploy - ERROR - deeplink - ModuleNotFoundError: No module named 'dlinfer'", "module"),
        ("ep>1 requires install DeepEP(https://github.com/deepseek-ai/DeepEP) and DeepGEMM", "module"),
        ("RuntimeError: no executable data type for this device", "unsupported"),
        ("lmdeploy - ERROR - base.py:55 - <Triton> check failed!\nPlease check your environment.", "environment"),
        ("[TM][ERROR] CUDA runtime error: out of memory", "gpu_memory"),
    ],
)
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize("platform", ["cuda", "ascend", "metax", "cambricon", "cpu"])
def test_there_is_a_line_to_install_it(platform: str) -> None:
    assert "BENCH_LMDEPLOY_PYTHON" in install_line(platform)
