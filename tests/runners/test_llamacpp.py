"""llama.cpp: arguments, flags of many versions, and what is read back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bench
from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.records import LengthSpec, LoadSpec
from bench.runners.arguments import check_arguments
from bench.runners.llamacpp import ARGUMENTS, LlamaCppRunner, alias_of, settings_of
from bench.runners.llamacpp_binary import LlamaServer, absolute_program, find_llama_server, parse_version
from bench.runners.sizing import Sizing
from bench.testing.cases import case, gguf, request
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.scripted import program

# --- refused before anything starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"thread": 2}, "Did you mean 'threads'"),
        ({"threads": 0}, "at least 1"),
        ({"threads": "two"}, "a whole number"),
        ({"threads": True}, "a whole number"),
        ({"threads": 1.5}, "a whole number"),
        ({"n_gpu_layers": -2}, "at least -1"),
        ({"flash_attn": "maybe"}, "one of on, off, auto"),
        ({"cache_type_k": "q9"}, "one of f32"),
        ({"prompt_cache": "yes"}, "true or false"),
        ({"binary": ""}, "a text"),
    ],
)
def test_wrong_arguments_are_refused(args: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        LlamaCppRunner().check(case(engine_args=args))
    assert words in str(caught.value)
    assert caught.value.hint


def test_a_program_and_a_python_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        LlamaCppRunner().check(case(engine_args={"binary": "a"}, engine_python="b"))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_may_be_left_to_the_engine(name: str) -> None:
    check_arguments("llamacpp", {name: None}, ARGUMENTS)


@pytest.mark.parametrize(("precision", "near"), [("q4_2", "q4_"), ("fp8", ""), ("awq", "")])
def test_a_precision_that_gguf_has_not_is_refused(precision: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"no precision '{precision}'") as caught:
        LlamaCppRunner().check(case(precision=precision))
    assert near in str(caught.value)


def test_a_missing_binary_is_named() -> None:
    with pytest.raises(EngineMissing, match="no-such-llama") as caught:
        LlamaCppRunner().check(case(engine_args={"binary": "no-such-llama"}))
    assert "tokjoule[llamacpp]" in str(caught.value.hint)


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.runners.llamacpp.importlib.util.find_spec", lambda _: None)
    with pytest.raises(EngineMissing) as caught:
        LlamaCppRunner().check(case())
    assert caught.value.hint == "pip install 'tokjoule[llamacpp]'"


@pytest.mark.parametrize("python", ["/no/such/python", "false"])
def test_a_python_without_the_engine_is_named(python: str) -> None:
    with pytest.raises(EngineMissing, match="engine_python"):
        LlamaCppRunner().check(case(engine_python=python))


@pytest.mark.parametrize("model", [None, gguf(format="safetensors")])
def test_weights_that_are_no_gguf_are_refused(tmp_path: Path, tree_name: str, model: Any) -> None:
    wanted = case(engine_python=program(tmp_path))
    with pytest.raises(UsageError, match="llamacpp reads GGUF files"):
        LlamaCppRunner().start(request(tmp_path / "work", wanted, model=model))
    assert not tree(tree_name)


# --- the two ways -----------------------------------------------------------------------------------------------------

OLD = "-fa, --flash-attn   enable\n --metrics --no-webui --alias"
NEW = "-fa, --flash-attn [on|off|auto]  set\n --metrics --no-webui --no-ui --no-kv-unified --no-cache-prompt --cache-ram N"


def server(tmp_path: Path, usage: str) -> LlamaServer:
    path = tmp_path / "llama-server"
    path.write_text(f"#!/bin/sh\ncat <<'END'\nversion: 6729 (3b3a9481)\n{usage}\nEND\n")
    path.chmod(0o755)
    return find_llama_server(str(path))


def test_a_new_llama_server_gets_every_flag(tmp_path: Path) -> None:
    found = server(tmp_path, NEW)
    args: dict[str, Any] = {
        "threads": 3,
        "n_gpu_layers": 9,
        "n_batch": 64,
        "n_ubatch": 32,
        "flash_attn": True,
        "cache_type_k": "Q8_0",
    }
    line = found.command("/m.gguf", "m", 1234, Sizing(slots=2, slot_tokens=100), args)
    text = " ".join(line)
    assert line[0] == found.path
    assert "--model /m.gguf --alias m --host 127.0.0.1 --port 1234 --parallel 2 --ctx-size 200 --metrics" in text
    assert "--no-ui" in line
    assert "--no-webui" not in line
    for part in ("--no-kv-unified", "--no-cache-prompt --cache-ram 0", "--threads 3", "--n-gpu-layers 9", "--batch-size 64"):
        assert part in text
    for part in ("--ubatch-size 32", "--flash-attn on", "--cache-type-k q8_0"):
        assert part in text
    assert found.version == "b6729-3b3a9481"
    assert found.prompt_cache_of({}) is False
    assert found.prompt_cache_of({"prompt_cache": True}) is True


def test_an_old_llama_server_gets_only_what_it_knows(tmp_path: Path) -> None:
    found = server(tmp_path, OLD)
    sizing = Sizing(slots=1, slot_tokens=100)
    line = found.command("/m.gguf", "m", 1, sizing, {"flash_attn": "on", "n_gpu_layers": -1})
    assert line[-1] == "--flash-attn"
    assert "--no-webui" in line
    assert not {"--no-cache-prompt", "--cache-ram", "--no-ui", "--no-kv-unified", "--n-gpu-layers"} & set(line)
    assert found.command("/m.gguf", "m", 1, sizing, {"flash_attn": "off"})[-1] != "--flash-attn"
    assert found.prompt_cache_of({}) == "engine_default"


def test_an_asked_prompt_cache_is_left_on(tmp_path: Path) -> None:
    line = server(tmp_path, NEW).command("/m.gguf", "m", 1, Sizing(slots=1, slot_tokens=9), {"prompt_cache": True})
    assert not {"--no-cache-prompt", "--cache-ram"} & set(line)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("version: 6729 (3b3a948134)\nbuilt with cc (GCC) 13 for x86_64", "b6729-3b3a948134"),
        ("ggml_cuda_init: found 1 CUDA devices\nversion: 0 (unknown)\n", "b0-unknown"),
        ("version: 1.2.3\n", "1.2.3"),
        ("usage: nothing", None),
        ("", None),
    ],
)
def test_versions_are_read(said: str, version: str | None) -> None:
    assert parse_version(said) == version


def test_a_program_that_can_not_be_run_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    path.write_bytes(b"\x7fELF not really")
    path.chmod(0o755)
    with pytest.raises(EngineMissing, match="can't be run"):
        find_llama_server(str(path))


def test_programs_by_relative_path_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server(tmp_path, NEW)
    monkeypatch.chdir(tmp_path)
    assert find_llama_server("./llama-server").path == str(tmp_path / "llama-server")
    assert absolute_program("no-such-program") == "no-such-program"


def test_commas_stay_out_of_aliases() -> None:
    assert alias_of("a,b") == "a_b"


@pytest.mark.parametrize("way", ["binary", "engine_python"])
def test_settings_and_precision_are_read_back(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    script(monkeypatch, say="init: n_threads = 6\noffloaded 25/31 layers to GPU")
    args = {"flash_attn": False, "n_batch": 64}
    found_by = {"engine_args": args | {"binary": program(tmp_path)}} if way == "binary" else {"engine_python": program(tmp_path)}
    wanted = case(protocol="openai-completions", precision="Q4_1", **{"engine_args": args} | found_by)
    larger = case(load=LoadSpec(kind="closed", batch_size=5))
    monkeypatch.chdir(tmp_path)  # the engine runs elsewhere: its model may still be named from here
    with LlamaCppRunner().start(request(tmp_path / "work", wanted, larger, model=gguf("tiny.gguf"))) as engine:
        assert str(tmp_path / "tiny.gguf") in " ".join(engine.handle.command)
        settings, handle = engine.handle.settings, engine.handle
        assert settings["through"] == {"binary": "llama-server", "engine_python": "xllamacpp"}[way]
        assert (settings["n_slots"], settings["n_ctx_slot"], settings["threads"]) == (5, 4096, 6)
        assert (settings["gpu_layers"], settings["layers"], settings["n_batch"]) == (25, 31, 64)
        assert (settings["flash_attn"], settings["prompt_cache"], settings["ftype"]) == ("off", False, "Q4_1")
        assert (handle.precision, handle.build) == ("Q4_1", "b1-test")
        assert handle.version == {"binary": "b6729-3b3a9481", "engine_python": "1.2"}[way]
        assert (engine.target.token_ids, engine.target.vocab_size) == (True, 1000)
        assert engine.server_metrics()["prompt_tokens_total"] == 10.0
    assert not tree(tree_name)


def test_a_server_with_too_little_context_is_refused(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, slot_tokens=128)
    wanted = case(engine_python=program(tmp_path), input_tokens=LengthSpec(mean=500))
    with pytest.raises(EngineStartError, match="gives 128 tokens of context to each request, but the case needs 671") as caught:
        LlamaCppRunner().start(request(tmp_path / "work", wanted, model=gguf()))
    assert "8192" in str(caught.value.hint)
    assert not tree(tree_name)


def test_what_a_server_does_not_tell_is_absent() -> None:
    assert settings_of({}, "") == {}
    assert settings_of({"total_slots": "many", "default_generation_settings": None}, "nothing") == {}


def test_the_shim_writes_its_status_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "xllamacpp.py"
    fake.write_text(
        "import types, json, pathlib\n"
        "BUILD_INFO = {'compiler': 'test'}\n"
        "flags = types.SimpleNamespace(LLAMA_FLASH_ATTN_TYPE_DISABLED='off')\n"
        "llama_flash_attn_type = flags\n"
        "ggml_type = types.SimpleNamespace(GGML_TYPE_Q8_0='q8')\n"
        "def get_device_info(): return [{'description': 'test CPU'}]\n"
        "def CommonParams(): return types.SimpleNamespace(model=types.SimpleNamespace(), cpuparams=types.SimpleNamespace())\n"
        "class Server:\n"
        "    def __init__(self, p):\n"
        "        self.listening_address = 'http://127.0.0.1:1'\n"
        f"        pathlib.Path({str(tmp_path / 'params')!r}).write_text(json.dumps(p, default=lambda o: sorted(o) if "
        "isinstance(o, set) else vars(o)))\n"
    )
    shim = Path(bench.__file__).parent / "runners" / "shims" / "xllamacpp_server.py"
    order = {"model": "m.gguf", "alias": "m", "slots": 2, "context": 64, "status_file": str(tmp_path / "s.json")}
    more = {"prompt_cache": False, "threads": 3, "n_batch": 7, "flash_attn": "off", "cache_type_k": "q8_0"}
    code = f"import runpy, sys, importlib.metadata as m; m.version = lambda _: '9'; sys.path.insert(0, {str(tmp_path)!r});"
    code += "import threading; threading.Event.wait = lambda *_: True;"
    code += f"sys.argv = ['shim', {json.dumps(order | more)!r}]; runpy.run_path({str(shim)!r}, run_name='__main__')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    status = json.loads((tmp_path / "s.json").read_text())
    assert status == {"address": "http://127.0.0.1:1", "version": "9", "compiler": "test", "devices": ["test CPU"]}
    params = json.loads((tmp_path / "params").read_text())
    assert params == {
        "model": {"path": "m.gguf"},
        "cpuparams": {"n_threads": 3},
        "model_alias": ["m"],
        "hostnames": ["127.0.0.1"],
        "port": 0,
        "n_parallel": 2,
        "n_ctx": 64,
        "endpoint_metrics": True,
        "ui": False,
        "cache_prompt": False,
        "cache_ram_mib": 0,
        "n_batch": 7,
        "flash_attn_type": "off",
        "cache_type_k": "q8",
    }
