"""What a folder of weights says of its number format (`config.json`, as Hugging Face lays it out), in the project's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.precision import spelled

_METHODS = {
    **dict.fromkeys(("awq", "awq_marlin"), "awq"),
    **dict.fromkeys(("gptq", "gptq_marlin"), "gptq"),
    **dict.fromkeys(("fp8", "fbgemm_fp8"), "fp8"),
    "mxfp4": "mxfp4",
}
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_AWQ": "awq", "W4A8_AWQ": "awq", "INT8_SQ": "int8", "MXFP4": "mxfp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The format that weights are stored in: `dtype` of plain tensors, and `quantisation` where they are quantised; None where
    it does not say. `method` is the quantiser's own name.
    """

    dtype: str | None = None
    quantisation: str | None = None
    method: str | None = None

    @property
    def precision(self) -> str | None:
        """What the weights are, in one word."""
        return self.quantisation or self.dtype


def read_checkpoint(folder: str) -> Checkpoint:
    """What `folder` holds; nothing known where it has no readable `config.json`. NVIDIA's ModelOpt may keep what it did in a
    file of its own, `hf_quant_config.json`.
    """
    document = _json(Path(folder) / "config.json")
    inner = document.get("text_config")
    parts = [document, inner] if isinstance(inner, dict) else [document]
    dtype = next((str(value) for part in parts if (value := part.get("dtype") or part.get("torch_dtype"))), None)
    config = next((value for part in parts if isinstance(value := part.get("quantization_config"), dict)), None)
    if config is None and isinstance(done := _json(Path(folder) / "hf_quant_config.json").get("quantization"), dict):
        config = {"quant_method": "modelopt", **done}
    if isinstance(by_mlx := document.get("quantization"), dict) and "bits" in by_mlx:
        config = {"quant_method": "mlx", **by_mlx}
    if config is None and isinstance(kind := document.get("quantize"), str) and kind not in ("", "float"):  # Huawei's ModelSlim
        config = {"quant_method": "modelslim", "quantize": kind}
    return Checkpoint(
        dtype=spelled(dtype) if dtype else None,
        quantisation=_quantisation(config) if config else None,
        method=str(config.get("quant_method")) if config else None,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _quantisation(config: Mapping[str, Any]) -> str:
    """The word for a `quantization_config`; its own method where there is none."""
    method = str(config.get("quant_method", "unknown")).lower()
    if method in _METHODS:
        return _METHODS[method]
    if method.startswith("modelopt"):
        algorithm = config.get("quant_algo") or config.get("quantization", {}).get("quant_algo")
        return _ALGORITHMS.get(str(algorithm), method)
    read = _READERS.get(method)
    return (read(config) if read else None) or method


def _compressed(config: Mapping[str, Any]) -> str | None:
    """Source: compressed-tensors, `QuantizationArgs` (`num_bits`, `type`) of the first group's weights, and `format`."""
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return None
    bits, kind = weights.get("num_bits"), weights.get("type")
    form = str(config.get("format", ""))
    if kind == "float" and bits == 4:
        return "mxfp4" if "mxfp4" in form else "nvfp4"
    return {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "w4a16"}.get((str(kind), bits if isinstance(bits, int) else 0))


def _bitsandbytes(config: Mapping[str, Any]) -> str:
    return "int4" if config.get("load_in_4bit") else "int8"


def _mlx(config: Mapping[str, Any]) -> str:
    """Source: mlx-lm, `utils.py` (`group_size`, `bits`, and a `mode` where it is not affine)."""
    return {"mxfp4": "mxfp4", "nvfp4": "nvfp4", "mxfp8": "fp8"}.get(str(config.get("mode")), f"int{config['bits']}")


def _by_its_own_word(config: Mapping[str, Any]) -> str:
    """Huawei's ModelSlim (`w8a8`) and LMDeploy's smooth quantisation (`int8`, `torch.float8_e4m3fn`)."""
    return spelled(str(config.get("quantize") or config.get("quant_dtype") or "int8"))


_READERS: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "compressed-tensors": _compressed,
    "bitsandbytes": _bitsandbytes,
    "mlx": _mlx,
    "modelslim": _by_its_own_word,
    "smooth_quant": _by_its_own_word,
}
