"""MindIE: every configuration that it is started with, how it ends, and what is read back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.records import Case, LengthSpec, LoadSpec, Parallelism
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.mindie.config import MENU, config_of, served_name
from bench.runners.mindie.daemon import MindIE, find_mindie
from bench.runners.mindie.runner import MindIERunner, launch_of
from bench.runners.mindie.words import WORDS
from bench.runners.weights import check_as_stored
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import ROOT
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects.mindie import TEMPLATE, problem_of


def home(tmp_path: Path) -> str:
    """A folder that has the scripted daemon and the configuration that it came with."""
    folder = tmp_path / "mindie-service"
    (folder / "bin").mkdir(parents=True)
    (folder / "conf").mkdir()
    (folder / "conf" / "config.json").write_text(TEMPLATE.read_text())
    daemon = folder / "bin" / "mindieservice_daemon"
    daemon.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m tests.runners.dialects.mindie "$@"\n')
    daemon.chmod(0o755)
    return str(folder)


def config(wanted: Case, **model: Any) -> dict[str, Any]:
    """What the daemon is started with for a case."""
    return config_of(json.loads(TEMPLATE.read_text()), [wanted], safetensors(**model), 8123)


# --- the configuration ------------------------------------------------------------------------------------------------

RANKS = st.sampled_from([1, 2, 4])
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "max_seq_len": st.integers(100, 9000),
        "max_batch_size": st.integers(1, 400),
        "npu_mem_size": st.sampled_from([-1, 8]),
        "prefix_cache": st.booleans(),
        "trust_remote_code": st.booleans(),
    },
)
CASES = st.builds(
    lambda tp, dp, spread, batch, input_tokens, args: case(
        parallel=Parallelism(tp=tp, dp=dp, ep=tp * dp if spread else 1),
        load=LoadSpec(kind="closed", batch_size=batch),
        input_tokens=LengthSpec(mean=input_tokens),
        engine_args=args,
    ),
    RANKS,
    RANKS,
    st.booleans(),
    st.integers(1, 512),
    st.integers(1, 40_000),
    ARGS,
)


@given(wanted=CASES)
def test_every_configuration_is_one_that_the_daemon_takes(wanted: Case) -> None:
    found = config(wanted)
    assert problem_of(found) is None
    json.dumps(found)
    model = found["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]
    assert (model["modelName"], model["modelWeightPath"], model["worldSize"]) == ("tiny", "/models/tiny", wanted.parallel.devices)
    assert model["backendType"] == "atb"  # as it was installed
    schedule = found["BackendConfig"]["ScheduleConfig"]
    assert schedule["maxBatchSize"] >= (wanted.engine_args.get("max_batch_size") or wanted.load.batch_size or 0)


def test_lengths_and_batches_are_what_the_cases_need() -> None:
    wanted = case(
        load=LoadSpec(kind="closed", batch_size=256),
        input_tokens=LengthSpec(mean=9000),
        output_tokens=LengthSpec(mean=700),
        protocol="openai-completions",
    )
    backend = config(wanted)["BackendConfig"]
    assert backend["ModelDeployConfig"]["maxSeqLen"] == 9000 + 700 + 64
    assert backend["ScheduleConfig"]["maxPrefillTokens"] == 9000 + 700 + 64
    assert (backend["ScheduleConfig"]["maxBatchSize"], backend["ScheduleConfig"]["maxIterTimes"]) == (256, 700)


def test_a_short_case_keeps_what_is_installed() -> None:
    schedule = config(case())["BackendConfig"]["ScheduleConfig"]
    assert (schedule["maxPrefillTokens"], schedule["maxBatchSize"], schedule["maxPrefillBatchSize"]) == (8192, 200, 50)


@pytest.mark.parametrize(
    ("args", "where", "value"),
    [
        ({"prefix_cache": True}, ("ScheduleConfig", "enablePrefixCache"), True),
        ({"prefix_cache": False}, ("ScheduleConfig", "enablePrefixCache"), False),
        ({"max_prefill_batch_size": 3}, ("ScheduleConfig", "maxPrefillBatchSize"), 3),
        ({"cache_block_size": 64}, ("ScheduleConfig", "cacheBlockSize"), 64),
        ({"max_prefill_tokens": 4096}, ("ScheduleConfig", "maxPrefillTokens"), 4096),
        ({"max_seq_len": 4096}, ("ModelDeployConfig", "maxSeqLen"), 4096),
    ],
)
def test_arguments_become_parameters(args: dict[str, Any], where: tuple[str, str], value: Any) -> None:
    section, key = where
    assert config(case(engine_args=args))["BackendConfig"][section][key] == value


@pytest.mark.parametrize(
    ("name", "served"), [("org/tiny:8b", "org-tiny-8b"), ("-x-", "x"), ("Qwen3_8B.v1", "Qwen3_8B.v1"), ("模型", "model")]
)
def test_names_are_in_letters_that_it_takes(name: str, served: str) -> None:
    assert served_name(safetensors(name=name)) == served
    assert problem_of(config(case(), name=name)) is None


# --- precision --------------------------------------------------------------------------------------------------------

W8A8 = Checkpoint(dtype="fp16", quantisation="int8", method="modelslim")


@pytest.mark.parametrize(
    ("precision", "weights"),
    [(None, W8A8), ("bf16", Checkpoint(dtype="bf16")), ("int8", W8A8), ("w8a8", W8A8), ("fp16", Checkpoint())],
)
def test_weights_that_are_so_are_run(precision: str | None, weights: Checkpoint) -> None:
    check_as_stored(MENU, precision, weights)


@pytest.mark.parametrize(
    ("precision", "weights", "words"),
    [
        ("bf16", Checkpoint(dtype="fp16"), "the weights are fp16, the case asks for bf16, and mindie converts nothing"),
        ("bf16", W8A8, "the weights are int8"),
        ("int8", Checkpoint(dtype="bf16"), "does not make int8 of plain weights"),
    ],
)
def test_weights_that_are_not_are_refused(precision: str, weights: Checkpoint, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        check_as_stored(MENU, precision, weights)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("document", "quantisation"),
    [
        ({"torch_dtype": "float16", "quantize": "w8a8"}, "int8"),
        ({"torch_dtype": "float16", "quantize": "w8a16"}, "int8"),
        ({"torch_dtype": "float16", "quantize": "w4a16"}, "w4a16"),
        ({"torch_dtype": "float16", "quantize": "float"}, None),
        ({"torch_dtype": "float16"}, None),
    ],
)
def test_what_modelslim_made_is_known(tmp_path: Path, document: dict[str, str], quantisation: str | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(document))
    assert read_checkpoint(str(tmp_path)).quantisation == quantisation


# --- from the outside -------------------------------------------------------------------------------------------------


def test_what_runs_is_told_with_its_settings(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch)
    monkeypatch.setenv("MIES_CONTAINER_IP", "10.0.0.1")
    monkeypatch.setenv("ATB_LLM_HCCL_ENABLE", "1")
    wanted = case(engine="mindie", engine_args={"install_path": home(tmp_path)}, parallel=Parallelism(tp=2))
    with MindIERunner().start(request(tmp_path / "work", wanted, model=safetensors())) as engine:
        handle = engine.handle
        assert (handle.version, handle.precision) == ("2.3.0", None)
        assert handle.command[0].endswith("/bin/mindieservice_daemon")
        assert handle.env["MIES_CONTAINER_IP"] == "127.0.0.1"
        assert handle.settings["env.ATB_LLM_HCCL_ENABLE"] == "1"
        kept = json.loads(str(handle.settings["config"]))
        assert kept["BackendConfig"]["npuDeviceIds"] == [[0, 1]]
        assert (engine.target.model, engine.target.token_ids) == ("tiny", False)
        counters = engine.server_metrics()
        assert (counters["requests_running"], counters["requests_waiting"]) == (1, 2)
        assert "kv_cache_util" not in counters
    assert not tree(tree_name)


def test_that_it_kills_itself_is_not_taken_for_a_kill(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its own words tell it from the kernel's out-of-memory killer."""
    script(monkeypatch)
    wanted = case(engine_args={"install_path": home(tmp_path), "npu_mem_size": 0})
    with pytest.raises(EngineStartError, match="SIGKILL") as caught:
        MindIERunner().start(request(tmp_path / "work", wanted, model=safetensors()))
    assert "parameter npuMemSize is invalid" in caught.value.log_tail
    assert "mindie.json" in str(caught.value.hint)
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("line", "status", "kind"),
    [
        ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB\nFailed to init endpoint!", -9, "gpu_memory"),
        ("error while loading shared libraries: libatb.so: cannot open shared object file", 127, "library"),
        ("The file permission should be no more than 0640\nFailed to init endpoint!", -9, "permission"),
        ("Failed to init endpoint! Please check the service log or console output.", -9, "arguments"),
        ("decoding", -9, "killed"),
    ],
)
def test_its_last_words_are_understood(line: str, status: int, kind: str) -> None:
    found = diagnose(line, status, WORDS)
    assert found is not None
    assert found.kind == kind


def test_it_is_found_by_argument_variable_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIES_INSTALL_PATH", raising=False)
    folder = home(tmp_path)
    assert find_mindie({"install_path": folder}).home == folder
    monkeypatch.setenv("PATH", f"{folder}/bin{os.pathsep}{os.environ['PATH']}")
    by_path = find_mindie({})
    assert (by_path.program, by_path.home) == (f"{folder}/bin/mindieservice_daemon", None)
    monkeypatch.setenv("MIES_INSTALL_PATH", folder)
    assert find_mindie({}).home == folder
    mine = tmp_path / "mine.json"
    mine.write_text('{"ServerConfig": {}, "BackendConfig": {"mine": 1}}')
    assert find_mindie({"config": str(mine)}).template["BackendConfig"] == {"mine": 1}


def test_without_it_the_next_step_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIES_INSTALL_PATH", raising=False)
    for args in ({}, {"install_path": str(tmp_path)}):
        with pytest.raises(EngineMissing, match="mindie was not found") as caught:
            MindIERunner().check(case(engine_args=args))
        assert "set_env.sh" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [(None, EngineMissing, "can't be read"), ("{", UsageError, "is not JSON"), ("{}", UsageError, "is no configuration")],
)
def test_a_configuration_that_can_not_be_is_refused(tmp_path: Path, text: str | None, error: type[Exception], words: str) -> None:
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=words):
        find_mindie({"install_path": home(tmp_path), "config": str(path)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"max_seqlen": 3}}, "Did you mean 'max_seq_len'"),
        ({"engine_args": {"npu_mem_size": "all"}}, "not a whole number"),
        ({"parallel": Parallelism(pp=2)}, "no pipeline parallelism"),
        ({"precision": "fp32"}, "does not run 'fp32'"),
        ({"precision": "fp8"}, "does not run 'fp8'"),
    ],
)
def test_what_can_not_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        MindIERunner().check(case(**changes))
    assert caught.value.hint


def test_a_path_too_long_for_it_is_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["x" * 100] * 3)
    found = MindIE(program="/m/bin/mindieservice_daemon", home="/m", template={})
    with pytest.raises(UsageError, match="up to 255 characters"):
        launch_of(found, request(deep, case(), model=safetensors()))
