"""What folders of weights say of their number format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.runners.checkpoint import Checkpoint, read_checkpoint


def folder(path: Path, **files: Any) -> str:
    """A folder with JSON files by name."""
    for name, document in files.items():
        (path / f"{name}.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


@pytest.mark.parametrize(
    ("quantisation", "word"),
    [
        ({"quant_method": "awq_marlin"}, "awq"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "smooth_quant"}, "int8"),
        ({"quant_method": "smooth_quant", "quant_dtype": "torch.float8_e4m3fn"}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": {"num_bits": 4, "type": "int"}}}}, "w4a16"),
        ({"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": {"num_bits": 8, "type": "float"}}}}, "fp8"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_method": "newest"}, "newest"),
    ],
)
def test_a_quantisation_has_one_word(tmp_path: Path, quantisation: dict[str, Any], word: str) -> None:
    found = read_checkpoint(folder(tmp_path, config={"torch_dtype": "bfloat16", "quantization_config": quantisation}))
    assert found == Checkpoint(dtype="bf16", quantisation=word, method=quantisation["quant_method"])
    assert found.precision == word


def test_plain_weights_have_their_type(tmp_path: Path) -> None:
    assert read_checkpoint(folder(tmp_path, config={"text_config": {"dtype": "float16"}})).precision == "fp16"


def test_what_modelopt_keeps_in_a_file_of_its_own_is_read(tmp_path: Path) -> None:
    own = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    found = read_checkpoint(folder(tmp_path, config={"torch_dtype": "bfloat16"}, hf_quant_config=own))
    assert (found.quantisation, found.method) == ("nvfp4", "modelopt")


@pytest.mark.parametrize("text", [None, "{", "[]", '"x"'])
def test_a_folder_that_says_nothing_is_nothing_known(tmp_path: Path, text: str | None) -> None:
    found = read_checkpoint(folder(tmp_path, **({} if text is None else {"config": text})))
    assert found == Checkpoint()
