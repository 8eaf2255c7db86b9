"""OpenVINO: where it runs, precisions, what it is told and what is read back. Its server is real, over a scripted library."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.ports import Engine
from bench.records import Case, LengthSpec, LoadSpec, LocalModel, Parallelism
from bench.runners.checkpoint import Checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.environment import EnginePython
from bench.runners.installed import Installed
from bench.runners.openvino.facts import Device, OpenVINO, device_of
from bench.runners.openvino.precision import Weights, compiled, menu_of, read_weights, told
from bench.runners.openvino.runner import OpenVINORunner, launch_of
from bench.runners.openvino.words import WORDS
from bench.testing.cases import case, gguf, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import eventually, tree
from bench.testing.scripted_engine import script
from tests.models.samples import LLAMA, gguf_bytes
from tests.runners.dialects import openvino as dialect

CPU = {"CPU": ("FP32", "INT8")}
AMX = {"CPU": ("BF16", "FP32", "INT8")}
GPU = {"CPU": ("FP32",), "GPU": ("FP16", "FP32", "INT8")}
TWO_GPUS = {"CPU": ("FP32",), "GPU.0": ("FP16", "FP32"), "GPU.1": ("FP16", "FP32")}
NPU = {"CPU": ("FP32",), "NPU": ("FP16", "INT8")}
PLAIN = Checkpoint(dtype="bf16")
INT4 = Checkpoint(quantisation="int4", method="openvino")


@pytest.fixture(autouse=True)
def host_without_boards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever machine the tests run on."""
    for root in ("BENCH_DEV_ROOT", "BENCH_SYSFS_ROOT"):
        monkeypatch.setenv(root, str(tmp_path / "nothing"))
    monkeypatch.setattr("bench.runners.host_platform.sys.platform", "linux")


def facts(devices: Mapping[str, tuple[str, ...]] = CPU) -> OpenVINO:
    """An installed OpenVINO."""
    return OpenVINO(
        environment=EnginePython(path="/e/bin/python", found_by="test"),
        installed=Installed(distribution="openvino-genai", version="2026.4.1.0", build=None, python="3.11.7", fingerprint=""),
        build=None,
        devices={name: Device(name=f"Some {name}", computes=frozenset(words)) for name, words in devices.items()},
    )


def order_of(
    wanted: Case, *more: Case, found: OpenVINO | None = None, checkpoint: Checkpoint = PLAIN, context: int | None = 8192
) -> dict[str, Any]:
    """What the server is told."""
    weights = Weights(checkpoint=checkpoint, context=context)
    launch = launch_of(found or facts(), request(Path("/w"), wanted, *more, model=gguf()), gguf(), weights, 8123)
    order = json.loads(launch.argv[-1])
    assert isinstance(order, dict)
    return order


def python(tmp_path: Path) -> str:
    return engine_python(tmp_path / "openvino", "openvino-genai", "2026.4.1.0", dialect.MODULES, beside=dialect.BESIDE)


def weights_in(folder: Path, file_type: int = 3, **values: Any) -> LocalModel:
    """A GGUF file's header."""
    path = folder / "tiny.gguf"
    path.write_bytes(gguf_bytes({**LLAMA, "general.file_type": file_type, "llama.context_length": 2048, **values}))
    return gguf(path, shape=safetensors().shape)


def exported(folder: Path, elements: Mapping[str, tuple[str, int]], config: str | None = None) -> LocalModel:
    """A folder as OpenVINO's exporters write it, with constants: name to element type and size."""
    layers = (
        f'<layer id="{number}" name="{name}" type="Const" version="opset1">\n'
        f'\t\t\t<data element_type="{element}" shape="1, 2" offset="0" size="{size_b}" />\n</layer>'
        for number, (name, (element, size_b)) in enumerate(elements.items())
    )
    (folder / "openvino_model.xml").write_text("<net><layers>\n" + "\n".join(layers) + "\n</layers></net>")
    if config is not None:
        (folder / "config.json").write_text(config)
    return gguf(folder, format="openvino")


# --- the order --------------------------------------------------------------------------------------------------------


def test_the_server_is_told_what_the_cases_need() -> None:
    order = order_of(case(load=LoadSpec(kind="closed", batch_size=3)), case(load=LoadSpec(kind="closed", batch_size=7)))
    assert (order["model"], order["name"], order["port"]) == ("/models/tiny.gguf", "tiny", 8123)
    assert (order["slots"], order["context"], order["paged"], order["device"]) == (7, 8192, True, "CPU")
    assert (order["prefix_cache"], order["cache_gb"], order["properties"]) == (False, 0, {})
    given = {"slots": 2, "prefill_tokens": 9, "prefix_cache": True, "cache_gb": 4}
    order = order_of(case(engine_args={**given, "threads": 3, "kv_cache_precision": "F16"}))
    assert order.items() >= given.items()
    assert order["properties"] == {"INFERENCE_NUM_THREADS": 3, "KV_CACHE_PRECISION": "f16"}


def test_an_npu_is_compiled_for_the_longest_prompt_and_answer() -> None:
    lengths = {"input_tokens": LengthSpec(mean=500), "output_tokens": LengthSpec(mean=100), "protocol": "openai-completions"}
    order = order_of(case(engine_args={"device": "npu"}, **lengths), case(protocol="openai-completions"), found=facts(NPU))
    assert (order["device"], order["paged"], order["slots"], order["context"]) == ("NPU", False, 1, 500 + 100 + 64)
    assert order["properties"] == {"MAX_PROMPT_LEN": 500 + 64, "MIN_RESPONSE_LEN": 100}


def test_more_context_than_the_model_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"need a context of .* tokens, and tiny has 100") as caught:
        order_of(case(), context=100)
    assert "shorten" in str(caught.value.hint)
    assert order_of(case(protocol="openai-completions"), context=None)["context"] == 64 + 32 + 64


def test_only_its_own_boards_are_shown(tmp_path: Path) -> None:
    asked = request(tmp_path, case(), model=gguf(), env={"ZE_AFFINITY_MASK": "1"})
    weights = Weights(checkpoint=PLAIN, context=None)
    assert launch_of(facts(GPU), asked, gguf(), weights, 1).env["ZE_AFFINITY_MASK"] == "1"


# --- where it runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "devices", "found"),
    [
        ({}, CPU, "CPU"),
        ({}, GPU, "GPU"),
        ({}, TWO_GPUS, "GPU.0"),
        ({}, NPU, "CPU"),
        ({"devices": ("cpu",)}, GPU, "CPU"),
        ({"engine_args": {"device": "CPU"}}, GPU, "CPU"),
        ({"engine_args": {"device": "npu"}}, NPU, "NPU"),
        ({"engine_args": {"device": "gpu.1"}}, TWO_GPUS, "GPU.1"),
        ({"engine_args": {"device": "GPU"}}, TWO_GPUS, "GPU"),
        ({"devices": ("0",)}, GPU, "GPU"),
    ],
)
def test_the_device_is_a_gpu_where_there_is_one_unless_another_is_asked_for(
    changes: dict[str, Any], devices: dict[str, tuple[str, ...]], found: str
) -> None:
    assert device_of(case(**changes), facts(devices)) == found
    assert facts(devices).computes(found)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"device": "NPU"}}, "has no NPU: it finds CPU"),
        ({"engine_args": {"device": "GPU.1"}}, r"has no GPU\.1"),
        ({"devices": ("0",)}, "can't use 0: it finds CPU"),
    ],
)
def test_what_it_does_not_find_is_told_with_the_driver(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineMissing, match=words) as caught:
        device_of(case(**changes), facts())
    assert "driver" in str(caught.value.hint)


def test_the_cpu_does_not_quietly_stand_in_for_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = tmp_path / "sys/class/drm/renderD128/device"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x8086\n")
    monkeypatch.setenv("BENCH_SYSFS_ROOT", str(tmp_path / "sys"))
    with pytest.raises(EngineMissing, match="can't use this host's GPU"):
        device_of(case(), facts())
    assert device_of(case(devices=("cpu",)), facts()) == "CPU"


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "devices", "checkpoint", "hint"),
    [
        (None, CPU, PLAIN, None),
        ("float32", CPU, PLAIN, "f32"),
        ("bf16", AMX, PLAIN, "bf16"),
        ("fp16", GPU, PLAIN, "f16"),
        ("w4a16", CPU, INT4, None),
        ("q4_1", CPU, Checkpoint(quantisation="q4_1", method="gguf"), None),
    ],
)
def test_precisions_are_asked_for(
    precision: str | None, devices: dict[str, tuple[str, ...]], checkpoint: Checkpoint, hint: str | None
) -> None:
    order = order_of(case(precision=precision), found=facts(devices), checkpoint=checkpoint)
    assert order["properties"].get("INFERENCE_PRECISION_HINT") == hint


@pytest.mark.parametrize(
    ("precision", "checkpoint"), [("bf16", PLAIN), ("fp16", PLAIN), ("int8", PLAIN), ("fp32", INT4), ("fp8", INT4)]
)
def test_what_a_device_does_not_compute_in_and_weights_are_not_is_refused(precision: str, checkpoint: Checkpoint) -> None:
    with pytest.raises(UsageError) as caught:
        order_of(case(precision=precision), checkpoint=checkpoint)
    assert caught.value.hint


@pytest.mark.parametrize("precision", ["tf32", "nvfp4", "q5_k_m", "fp61"])
def test_words_that_it_never_runs_are_refused(precision: str) -> None:
    with pytest.raises(UsageError, match="does not run"):
        menu_of(frozenset(CPU["CPU"])).check(precision)


@pytest.mark.parametrize(("kind", "word"), [(0, "fp32"), (1, "fp16"), (32, "bf16"), (2, "q4_0"), (7, "q8_0"), (15, "q4_k_m")])
def test_a_gguf_file_says_what_it_holds(tmp_path: Path, kind: int, word: str) -> None:
    weights = read_weights(weights_in(tmp_path, kind))
    assert (weights.checkpoint.precision, weights.context) == (word, 2048)
    assert (weights.checkpoint.quantisation is None) == (word in ("fp32", "fp16", "bf16"))


def test_a_gguf_file_that_it_would_unpack_to_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tiny\.gguf as it is .*17") as caught:
        read_weights(weights_in(tmp_path, 17))
    assert "q4_k_m" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("elements", "word"),
    [
        ({"layers.0.weight": ("u4", 100), "layers.0.scale": ("f16", 20), "model.embed_tokens.weight": ("i8", 900)}, "int4"),
        ({"layers.0.weight": ("i8", 100), "lm_head.weight": ("f16", 900)}, "int8"),
        ({"layers.0.weight": ("f16", 100), "axes": ("i64", 8)}, "fp16"),
        ({"layers.0.weight": ("f8e4m3", 100)}, "fp8"),
        ({"layers.0.weight": ("nf4", 100)}, "nf4"),
        ({}, None),
    ],
)
def test_a_folder_is_what_most_bytes_of_its_layers_are(
    tmp_path: Path, elements: dict[str, tuple[str, int]], word: str | None
) -> None:
    weights = read_weights(exported(tmp_path, elements, '{"max_position_embeddings": 4096}'))
    assert (weights.checkpoint.precision, weights.context) == (word, 4096)


@pytest.mark.parametrize("config", [None, "no json", "[1]", '{"max_position_embeddings": true}'])
def test_a_folder_need_not_say_its_context(tmp_path: Path, config: str | None) -> None:
    assert read_weights(exported(tmp_path, {}, config)).context is None


LOG = """Model: OV Tokenizer
  INFERENCE_PRECISION_HINT: f32
Model: LLM with Paged Attention
  NETWORK_NAME: Model0
  INFERENCE_PRECISION_HINT: bf16
  KV_CACHE_PRECISION: u8
EXECUTION_DEVICES:
 CPU: Intel(R) Xeon(R)
openvino_server: loaded: {}
"""


def test_what_was_compiled_is_in_its_log() -> None:
    properties = compiled(LOG)
    assert properties == {"NETWORK_NAME": "Model0", "INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "u8"}
    assert compiled("nothing of the kind") == {}


@pytest.mark.parametrize(
    ("properties", "asked", "checkpoint", "found"),
    [
        ({"INFERENCE_PRECISION_HINT": "f32"}, "fp32", PLAIN, "fp32"),
        ({"INFERENCE_PRECISION_HINT": "f16"}, "half", PLAIN, "half"),
        ({"INFERENCE_PRECISION_HINT": "f32"}, "bf16", PLAIN, "fp32"),
        ({"INFERENCE_PRECISION_HINT": "dynamic"}, None, PLAIN, "dynamic"),
        ({"INFERENCE_PRECISION_HINT": "f16"}, "int4", INT4, "int4"),
        ({"INFERENCE_PRECISION_HINT": "f16"}, "fp16", INT4, "int4"),
        ({}, "fp32", PLAIN, None),
    ],
)
def test_what_runs_is_told(properties: dict[str, str], asked: str | None, checkpoint: Checkpoint, found: str | None) -> None:
    assert told(properties, asked, checkpoint) == found


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"slotz": 1}}, "Did you mean 'slots'"),
        ({"engine_args": {"cache_gb": 0}}, "at least 1"),
        ({"parallel": Parallelism(tp=2)}, "no tensor parallelism"),
        ({"devices": ("0", "1")}, "one device"),
        ({"batching": "static"}, "schedules requests by itself"),
    ],
)
def test_what_can_not_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        OpenVINORunner().check(case(engine="openvino", **changes))
    assert caught.value.hint


def test_what_only_paged_attention_has_is_refused_on_an_npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, devices=NPU)
    wanted = case(engine="openvino", engine_python=python(tmp_path), engine_args={"device": "NPU", "slots": 2, "cache_gb": 1})
    with pytest.raises(UsageError, match="one request after the other on an NPU, so that cache_gb, slots"):
        OpenVINORunner().check(wanted)


@pytest.mark.parametrize("model", [None, safetensors()])
def test_only_its_own_formats_are_taken(tmp_path: Path, tree_name: str, model: LocalModel | None) -> None:
    wanted = case(engine="openvino", engine_python=python(tmp_path))
    with pytest.raises(UsageError, match="openvino reads GGUF files and OpenVINO's own folders") as caught:
        OpenVINORunner().start(request(tmp_path / "work", wanted, model=model))
    assert "optimum-cli" in str(caught.value.hint)
    assert not tree(tree_name)


def test_what_it_lacks_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, import_error="libopenvino.so.2640: cannot open")
    with pytest.raises(EngineMissing, match=r"can't be imported: .*libopenvino") as caught:
        OpenVINORunner().check(case(engine_python=python(tmp_path)))
    assert "pip install openvino-genai" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Check 'all_of(ov::element::f32, ...)' failed: expect kvcache type f32, current: bf16 , bf16", "unsupported"),
        ("RuntimeError: Unsupported model architecture 'gemma3'", "unsupported"),
        ("RuntimeError: Could not find a model in the directory '/m'", "model_missing"),
        ("Could not open the file: /m/openvino_tokenizer.xml", "model_missing"),
        ("[GPU] clEnqueueNDRangeKernel, error code: -5 CL_OUT_OF_RESOURCES", "gpu_memory"),
        ('Device with "GPU" name is not registered in the OpenVINO Runtime', "driver"),
        ("Exception: prompt is larger than the maximum prompt length 1024", "context"),
        ("std::bad_alloc", "memory"),
        ("OSError: [Errno 98] Address already in use", "port"),
    ],
)
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind
    assert found.hint


# --- the server -------------------------------------------------------------------------------------------------------


def started(tmp_path: Path, *, kind: int = 3, **changes: Any) -> Engine:
    """Our server over the scripted library."""
    fields = {"engine": "openvino", "engine_python": python(tmp_path), "protocol": "openai-completions"}
    asked = request(tmp_path / "work", case(**{**fields, **changes}), model=weights_in(tmp_path, kind))
    return OpenVINORunner().start(asked)


def ask(engine: Engine, **body: Any) -> list[tuple[list[int], str | None]]:
    """The events of one completion: token ids and finish reason."""
    url = engine.target.base_url + "/v1/completions"
    asked = urllib.request.Request(url, json.dumps({"temperature": 0, "stream": True, **body}).encode())
    with urllib.request.urlopen(asked, timeout=60) as reply:
        events = [line.removeprefix(b"data: ") for line in reply.read().splitlines() if line]
    assert events.pop() == b"[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    return [(choice["token_ids"], choice["finish_reason"]) for choice in choices]


@pytest.mark.parametrize(("devices", "device"), [(CPU, "CPU"), (GPU, "GPU"), (NPU, "NPU")])
def test_everyone_gets_their_own_answer_token_by_token(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, devices: dict[str, Any], device: str
) -> None:
    script(monkeypatch, devices=devices)
    args = {"device": device} if device == "NPU" else {"device": device, "slots": 2, "cache_gb": 1}
    with started(tmp_path, engine_args=args) as engine:
        before = engine.server_metrics()
        with ThreadPoolExecutor(5) as pool:
            found = list(pool.map(lambda last: ask(engine, prompt=[9, last], max_tokens=3, ignore_eos=True), range(20, 25)))
        for last, events in zip(range(20, 25), found, strict=True):
            assert events == [([last + 1], None), ([last + 2], None), ([last + 3], "length")]
        assert ask(engine, prompt=[126], max_tokens=9) == [([127], None), ([0], "stop")]
        assert len(ask(engine, prompt=[126], max_tokens=9, ignore_eos=True)) == 9
        after = engine.server_metrics()
        assert after["generation_tokens_total"] - before["generation_tokens_total"] == 5 * 3 + 2 + 9
        assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == 5 * 2 + 1 + 1
        assert (after["requests_running"], after["requests_waiting"]) == (0.0, 0.0)
        assert after.get("kv_cache_util") == (None if device == "NPU" else 0.0)
        assert engine.handle.settings["execution_devices"] == device
        assert engine.handle.settings["device_name"] == f"Scripted {device}"
    assert not tree(tree_name)


def test_a_token_is_sent_before_the_next_step_ends(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, step_s=0.4)
    with started(tmp_path) as engine:
        body = json.dumps({"prompt": [1], "max_tokens": 5, "ignore_eos": True, "stream": True}).encode()
        with urllib.request.urlopen(engine.target.base_url + "/v1/completions", body, timeout=60) as reply:
            came_ns = [time.monotonic_ns() for line in reply if line.startswith(b"data: {")]
        ended_ns = [int(line.split()[1]) for line in engine.log_tail(9).splitlines() if line.startswith("step ")][-5:]
    assert len(came_ns) == len(ended_ns) == 5
    for came, its_own, the_next in zip(came_ns, ended_ns, ended_ns[1:], strict=False):
        assert its_own < came < the_next
    assert not tree(tree_name)


@pytest.mark.parametrize(("devices", "device"), [(CPU, "CPU"), (NPU, "NPU")])
def test_an_answer_that_nobody_waits_for_ends(
    tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, devices: dict[str, Any], device: str
) -> None:
    script(monkeypatch, devices=devices)
    with started(tmp_path, engine_args={"device": device}, output_tokens=LengthSpec(mean=1900)) as engine:
        for _ in range(3):
            body = json.dumps({"prompt": [1], "max_tokens": 1900, "ignore_eos": True, "stream": True}).encode()
            port = int(engine.target.base_url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                assert connection.recv(100)
        eventually(lambda: engine.server_metrics()["requests_running"] == 0.0, "requests go on without a client")
        assert ask(engine, prompt=[5], max_tokens=1) == [([6], "length")]
    assert not tree(tree_name)


def test_what_runs_is_read_back(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, hint="f32", devices=AMX)
    with started(tmp_path, kind=32, precision="bf16", engine_args={"kv_cache_precision": "f16"}) as engine:
        handle = engine.handle
        assert handle.precision == "fp32", "it was asked for bf16"
        assert (handle.version, handle.build) == ("2026.4.1.0", "2026.4.1.0-3408")
        assert handle.settings["package.openvino"] == "2026.4.1"
        assert (handle.settings["inference_precision"], handle.settings["kv_cache_dtype"]) == ("f32", "f16")
        assert (handle.settings["weights"], handle.settings["threads"]) == ("bf16", 2)
        assert handle.load_s is not None
        assert (engine.target.token_ids, engine.target.vocab_size) == (True, 1000)
        assert "kv_cache_util" not in engine.server_metrics(), "a cache that grows has no share in use"
    assert not tree(tree_name)


def test_chat_and_text_are_served(tmp_path: Path, tree_name: str) -> None:
    with started(tmp_path) as engine:
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "temperature": 0}
        asked = urllib.request.Request(engine.target.base_url + "/v1/chat/completions", json.dumps(body).encode())
        with urllib.request.urlopen(asked, timeout=60) as reply:
            found = json.loads(reply.read())
        assert found["choices"][0]["message"]["content"] == "bcd"
        assert found["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    assert not tree(tree_name)


def test_its_last_words_come_with_the_error(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, say="RuntimeError: Unsupported model architecture 'gemma3'", exit=1)
    with pytest.raises(EngineStartError, match="does not know this kind of model") as caught:
        started(tmp_path)
    assert "optimum-cli" in str(caught.value.hint)
    assert not tree(tree_name)
