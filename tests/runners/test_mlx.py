"""MLX: every command line against its own options, the weights that it takes, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.records import Case, LoadSpec, Parallelism
from bench.runners.checkpoint import read_checkpoint
from bench.runners.diagnosis import diagnose
from bench.runners.installed import Installed
from bench.runners.mlx import MENU, WORDS, Mlx, MlxRunner, install_line, launch_of
from bench.runners.parser import flags_from
from bench.runners.weights import check_as_stored
from bench.testing.cases import case, request, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.dialects import mlx as dialect
from tests.runners.flag_files import document, parser_of

SAMPLE = "mlx-0.32.2"
FACTS = Mlx(
    installed=Installed(distribution="mlx-lm", version="0.32.2", build=None, python="3.12.3", fingerprint=""),
    flags=flags_from(document(SAMPLE)),
    head=("/e/bin/mlx_lm.server",),
)

NUMBERS = st.dictionaries(st.sampled_from(["prompt_concurrency", "decode_concurrency", "kv_bits"]), st.integers(1, 64))
SWITCHES = st.fixed_dictionaries({}, optional={"trust_remote_code": st.booleans(), "log_level": st.just("INFO")})
CASES = st.builds(
    lambda batch, numbers, switches: case(load=LoadSpec(kind="closed", batch_size=batch), engine_args=numbers | switches),
    st.integers(1, 256),
    NUMBERS,
    SWITCHES,
)


@given(wanted=CASES)
def test_every_command_line_is_one_that_the_engine_parses(wanted: Case) -> None:
    launch = launch_of(FACTS, request(Path("/w"), wanted, model=safetensors()), safetensors(), 8123)
    args = parser_of(document(SAMPLE)).parse_args(launch.argv[1:])
    assert (args.model, args.host, args.port) == ("/models/tiny", "127.0.0.1", "8123")
    assert args.log_level == wanted.engine_args.get("log_level", "WARNING")
    at_a_time = wanted.engine_args.get("decode_concurrency", max(32, wanted.load.batch_size or 0))
    assert int(args.decode_concurrency) == at_a_time


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": "bfloat16", "quantization": {"group_size": 64, "bits": 4}}, "int4"),
        ({"quantization": {"group_size": 64, "bits": 8, "mode": "affine"}}, "int8"),
        ({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}, "mxfp4"),
        ({"quantization": {"bits": 4}, "quantization_config": {"group_size": 64, "bits": 4}}, "w4a16"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    ],
)
def test_weights_are_run_as_they_are(tmp_path: Path, config: dict[str, Any], precision: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = read_checkpoint(str(tmp_path))
    check_as_stored(MENU, precision, weights)
    with pytest.raises(UsageError, match=r"the weights are|of plain weights"):
        check_as_stored(MENU, "nvfp4", weights)
    with pytest.raises(UsageError, match="the weights are"):
        check_as_stored(MENU, "fp16", weights)


def test_what_is_known_of_it_is_told(tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch)
    monkeypatch.setenv("MLX_METAL_FAST_SYNCH", "1")
    found = engine_python(
        tmp_path / "mlx",
        "mlx-lm",
        "0.32.2",
        dialect.MODULES,
        beside={"mlx": "0.32.2"},
        programs={"mlx_lm.server": "mlx_lm.server"},
    )
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text('{"torch_dtype": "bfloat16", "quantization": {"bits": 4, "group_size": 64}}')
    wanted = case(engine="mlx", engine_python=found, precision="int4", protocol="openai-completions")
    with MlxRunner().start(request(tmp_path / "work", wanted, model=safetensors(folder))) as engine:
        handle = engine.handle
        assert (handle.version, handle.precision) == ("0.32.2", None)
        assert handle.command[0].endswith("/bin/mlx_lm.server")
        assert (handle.settings["weights"], handle.settings["package.mlx"]) == ("int4", "0.32.2")
        assert handle.settings["env.MLX_METAL_FAST_SYNCH"] == "1"
        assert (engine.target.model, engine.target.token_ids) == ("default_model", False)
        assert engine.server_metrics() == {}
    assert not tree(tree_name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine_args": {"decode_concurency": 3}}, "no option for the engine argument 'decode_concurency'"),
        ({"engine_args": {"model": "x"}}, "bench sets it"),
        ({"engine_args": {"log_level": "LOUD"}}, "does not take 'LOUD'"),
        ({"parallel": Parallelism(tp=2)}, "no tensor parallelism"),
        ({"precision": "q4_1"}, "does not run GGUF"),
        ({"precision": "tf32"}, "does not run 'tf32'"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    found = engine_python(tmp_path / "mlx", "mlx-lm", "0.32.2", dialect.MODULES)
    with pytest.raises(UsageError, match=words) as caught:
        MlxRunner().check(case(engine_python=found, **changes))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ValueError: Model type newest not supported.", "unsupported"),
        ("RuntimeError: [METAL] Command buffer execution failed: Insufficient Memory (00000008)", "gpu_memory"),
        ("RuntimeError: [metal::malloc] Attempting to allocate 90000000000 bytes", "gpu_memory"),
        ("OSError: [Errno 48] Address already in use", "port"),
    ],
)
def test_its_last_words_are_understood(line: str, kind: str) -> None:
    found = diagnose(line, 1, WORDS)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("platform", "package"), [("metal", "'mlx-lm'"), ("cuda", "'mlx-lm[cuda13]'"), ("rocm", "'mlx-lm[cpu]'")]
)
def test_there_is_a_line_to_install_it(platform: str, package: str) -> None:
    assert install_line(platform).startswith(f"pip install {package}")
