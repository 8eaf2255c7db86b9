"""torch: the server's order, where it runs, precisions, and what is read back. The server itself: test_library_server.py."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.records import Case, LengthSpec, LoadSpec, LocalModel, Parallelism, Placement
from bench.runners.checkpoint import Checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.environment import EnginePython
from bench.runners.installed import Installed
from bench.runners.torch.facts import Torch, install_line
from bench.runners.torch.precision import menu_of, told
from bench.runners.torch.runner import TorchRunner, device_of, launch_of
from bench.runners.torch.words import WORDS
from bench.testing.cases import case, gguf, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects import torch as dialect

PLAIN = Checkpoint(dtype="bf16")
AWQ = Checkpoint(dtype="fp16", quantisation="awq", method="awq")


@pytest.fixture(autouse=True)
def host_without_boards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever machine the tests run on."""
    for root in ("BENCH_DEV_ROOT", "BENCH_SYSFS_ROOT"):
        monkeypatch.setenv(root, str(tmp_path / "nothing"))
    monkeypatch.setattr("bench.runners.host_platform.sys.platform", "linux")


def facts(device: str = "cpu", platform: str | None = None) -> Torch:
    """An installed torch."""
    return Torch(
        environment=EnginePython(path="/e/bin/python", found_by="test"),
        installed=Installed(distribution="torch", version="2.13.0", build=None, python="3.11.7", fingerprint=""),
        device=device,
        platform=platform or device,
        build=None,
    )


def order_of(wanted: Case, *more: Case, found: Torch | None = None, weights: Checkpoint = PLAIN) -> dict[str, Any]:
    """What the server is told."""
    asked = request(Path("/w"), wanted, *more, model=safetensors())
    order = json.loads(launch_of(found or facts(), asked, safetensors(), weights, 8123).argv[-1])
    assert isinstance(order, dict)
    return order


def python(tmp_path: Path, **changes: Any) -> str:
    return engine_python(tmp_path / "torch", "torch", "2.13.0", dialect.MODULES, **{"beside": dialect.BESIDE, **changes})


def test_the_server_is_told_what_the_cases_need() -> None:
    lengths = {"input_tokens": LengthSpec(mean=500), "output_tokens": LengthSpec(mean=100), "protocol": "openai-completions"}
    order = order_of(
        case(**lengths, load=LoadSpec(kind="closed", batch_size=3)), case(load=LoadSpec(kind="closed", batch_size=7))
    )
    assert (order["model"], order["name"], order["port"]) == ("/models/tiny", "tiny", 8123)
    assert (order["slots"], order["context"]) == (7, 500 + 100 + 64)
    assert (order["static"], order["precision"], order["device"]) == (False, None, "cpu")
    given = {"slots": 2, "prefill_tokens": 9, "gather_ms": 0, "threads": 1, "attention": "eager"}
    assert order_of(case(engine_args=given, batching="static")).items() >= {**given, "static": True}.items()


def test_only_its_own_boards_are_shown(tmp_path: Path) -> None:
    asked = request(tmp_path, case(), model=safetensors(), env={"CUDA_VISIBLE_DEVICES": "GPU-1"})
    assert launch_of(facts("cuda"), asked, safetensors(), PLAIN, 1).env["CUDA_VISIBLE_DEVICES"] == "GPU-1"


# --- where it runs ----------------------------------------------------------------------------------------------------


def test_the_device_is_the_one_that_torch_finds_unless_the_cpu_is_asked_for() -> None:
    assert device_of(case(), facts("npu", "ascend")) == "npu"
    assert device_of(case(engine_args={"device": "cpu"}), facts("npu", "ascend")) == "cpu"
    assert device_of(case(devices=("cpu",)), facts("npu", "ascend")) == "cpu"
    assert device_of(case(), facts()) == "cpu"


@pytest.mark.parametrize(
    ("changes", "node", "words"),
    [
        ({}, "nvidiactl", "can't use this host's cuda"),
        ({}, "davinci_manager", "can't use this host's ascend"),
        ({"devices": ("0",)}, None, "can't use 0"),
        ({"engine_args": {"device": "cuda"}}, None, "has no cuda: it finds cpu"),
    ],
)
def test_a_build_for_the_cpu_does_not_quietly_stand_in_for_a_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], node: str | None, words: str
) -> None:
    monkeypatch.setenv("BENCH_DEV_ROOT", str(tmp_path))
    if node:
        (tmp_path / node).touch()
    with pytest.raises(EngineMissing, match=words) as caught:
        device_of(case(**changes), facts())
    assert "install" in str(caught.value.hint)
    for meant in ({"engine_args": {"device": "cpu"}}, {"devices": ("cpu",)}):
        assert device_of(case(**meant), facts()) == "cpu"


def test_several_boards_under_one_name_are_refused(tmp_path: Path, tree_name: str) -> None:
    asked = request(tmp_path / "work", case(engine="torch", engine_python=python(tmp_path)), model=safetensors())
    with pytest.raises(UsageError, match="on one device, and the case names 8"):
        TorchRunner().start(replace(asked, placement=Placement(devices=8)))
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("behaviour", "device", "platform"),
    [
        ({}, "cpu", "cpu"),
        ({"device": "cuda"}, "cuda", "cuda"),
        ({"device": "cuda", "hip": "7.2"}, "cuda", "rocm"),
        ({"device": "npu"}, "npu", "ascend"),
        ({"device": "musa"}, "musa", "mthreads"),
        ({"device": "mlu"}, "mlu", "cambricon"),
        ({"device": "hpu"}, "hpu", "gaudi"),
        ({"device": "xpu"}, "xpu", "xpu"),
        ({"device": "mps"}, "mps", "metal"),
    ],
)
def test_it_is_asked_for_its_device(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, Any], device: str, platform: str
) -> None:
    script(monkeypatch, **behaviour)
    wanted = case(engine="torch", engine_python=python(tmp_path))
    with TorchRunner().start(request(tmp_path / "work", wanted, model=safetensors())) as engine:
        settings = engine.handle.settings
        assert (settings["device"], settings["platform"]) == (device, platform)
        assert settings["package.transformers"] == "5.19.0"
        assert (engine.handle.version, engine.handle.build, engine.handle.load_s) == ("2.13.0+cpu", "abc123", 1.5)
        assert engine.target.vocab_size == 1000
    assert not tree(tree_name)


def test_another_precision_than_asked_is_told(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, dtype="float32")
    wanted = case(engine="torch", engine_python=python(tmp_path), precision="bf16", batching="static")
    with TorchRunner().start(request(tmp_path / "work", wanted, model=safetensors())) as engine:
        assert engine.handle.precision == "fp32"
        assert engine.handle.settings["batching"] == "static"
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("changes", "behaviour", "words", "hint"),
    [
        ({"beside": {}}, {}, "transformers is not installed", "pip install 'transformers>=4.56'"),
        ({"beside": {"transformers": "4.55.4"}}, {}, "4.55.4 .* is too old", "pip install 'transformers>=4.56'"),
        ({}, {"import_error": "libcudart.so.13: cannot open"}, "can't be imported: .*libcudart", "pip install"),
    ],
)
def test_what_it_lacks_is_said_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    behaviour: dict[str, Any],
    words: str,
    hint: str,
) -> None:
    script(monkeypatch, **behaviour)
    with pytest.raises(EngineMissing, match=words) as caught:
        TorchRunner().check(case(engine_python=python(tmp_path, **changes)))
    assert hint in str(caught.value.hint)


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "weights", "found"),
    [(None, PLAIN, None), ("half", PLAIN, "fp16"), ("fp32", PLAIN, "fp32"), ("w4a16", AWQ, None), (None, AWQ, None)],
)
def test_precisions_are_asked_for(precision: str | None, weights: Checkpoint, found: str | None) -> None:
    assert order_of(case(precision=precision), weights=weights)["precision"] == found


@pytest.mark.parametrize(
    ("precision", "weights"), [("fp8", PLAIN), ("awq", PLAIN), ("bf16", AWQ), ("gptq", AWQ), ("tf32", PLAIN), ("q4_1", PLAIN)]
)
def test_weights_that_do_not_fit_are_refused(precision: str, weights: Checkpoint) -> None:
    with pytest.raises(UsageError) as caught:
        order_of(case(precision=precision), weights=weights)
    assert caught.value.hint


def test_tf32_is_nvidias() -> None:
    assert "tf32" in menu_of("cuda", "cuda").words
    for device, platform in (("cuda", "rocm"), ("cpu", "cuda"), ("npu", "ascend")):
        assert "tf32" not in menu_of(device, platform).words


@pytest.mark.parametrize(
    ("info", "asked", "weights", "found"),
    [
        ({"dtype": "bfloat16"}, "bf16", PLAIN, "bf16"),
        ({"dtype": "float16"}, "half", PLAIN, "half"),
        ({"dtype": "float32", "float32_matmul": "highest", "device": "cuda:0"}, "tf32", PLAIN, "fp32"),
        ({"dtype": "float32", "float32_matmul": "high", "device": "cuda:0"}, "tf32", PLAIN, "tf32"),
        ({"dtype": "float32", "float32_matmul": "high", "device": "cpu"}, "fp32", PLAIN, "fp32"),
        ({"dtype": "int32"}, "w4a16", AWQ, "awq"),
        ({"dtype": "bfloat16"}, "mxfp4", Checkpoint(quantisation="mxfp4"), "bf16"),  # unpacked as it was loaded
        ({"dtype": "float8_e4m3fn"}, "fp8", Checkpoint(quantisation="fp8"), "fp8"),
        ({}, "bf16", PLAIN, None),
    ],
)
def test_what_runs_is_told_by_the_tensors(info: dict[str, Any], asked: str, weights: Checkpoint, found: str | None) -> None:
    assert told(info, asked, weights) == found


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"atention": "sdpa"}}, "Did you mean 'attention'"),
        ({"engine_args": {"device": "gpu"}}, "one of cpu, cuda"),
        ({"parallel": Parallelism(tp=2)}, "no tensor parallelism"),
        ({"devices": ("0", "1")}, "one device"),
    ],
)
def test_what_can_not_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        TorchRunner().check(case(**changes))
    assert caught.value.hint


@pytest.mark.parametrize("model", [None, gguf()])
def test_only_safetensors_are_taken(tmp_path: Path, tree_name: str, model: LocalModel | None) -> None:
    wanted = case(engine="torch", engine_python=python(tmp_path))
    with pytest.raises(UsageError, match="torch reads safetensors"):
        TorchRunner().start(request(tmp_path / "work", wanted, model=model))
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch_server: the cases need a context of 9000 tokens, and the model has 8192", "context"),
        ("torch_server: unsupported model: MambaForCausalLM keeps a state other than a KV cache", "unsupported"),
        ("ValueError: The model is of type `x` but Transformers does not recognize this architecture.", "unsupported"),
        ("ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error", "unsupported"),
        ("ImportError: Loading an AWQ quantized model requires gptqmodel.", "module"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu_memory"),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 8 GB)", "gpu_memory"),
        ("AssertionError: Torch not compiled with CUDA enabled", "driver"),
        ("OSError: Error no file named model.safetensors found in directory /m.", "model_missing"),
        ("OSError: [Errno 98] Address already in use", "port"),
    ],
)  # fmt: skip
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind
    assert found.hint


def test_its_last_words_come_with_the_error(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, say="torch_server: the cases need a context of 9 tokens, and the model has 8", exit=1)
    wanted = case(engine="torch", engine_python=python(tmp_path))
    with pytest.raises(EngineStartError, match="more context than the model has") as caught:
        TorchRunner().start(request(tmp_path / "work", wanted, model=safetensors()))
    assert "shorten" in str(caught.value.hint)
    assert not tree(tree_name)


@pytest.mark.parametrize("platform", ["cuda", "rocm", "ascend", "gaudi", "metax", "mthreads", "cambricon", "xpu", "metal", "cpu"])
def test_there_is_a_line_to_install_it(platform: str) -> None:
    assert "engine_python" in install_line(platform)
    assert "transformers" in install_line(platform)
