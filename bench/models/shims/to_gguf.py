"""Makes a BF16 GGUF file of any other: run by a Python that has gguf.

    python to_gguf.py '{"source": "m.gguf", "target": "folder"}'

Quantised weights are unpacked to fp32 and rounded to bf16 (to nearest, ties to even), so that they are the very numbers that
`to_safetensors.py` writes. What llama.cpp wants in F32 stays F32, rounded alike. Nothing of `bench` is imported.
"""

import json
import sys
from pathlib import Path
from typing import Any

CONSTANTS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that are no weights: kept as they are."""
NAME = "model.BF16.gguf"


def copy_metadata(reader: Any, writer: Any) -> None:
    """All fields but those that the writer writes itself, and those that tell how the weights were quantised."""
    from gguf import GGUFValueType

    ours = ("general.architecture", "general.file_type", "general.quantization_version")
    for field in reader.fields.values():
        if field.name not in ours and not field.name.startswith("GGUF."):
            kind = field.types[0]
            inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)


def is_kept_wide(tensor: Any, quantised: bool) -> bool:
    """Vectors, and in a quantised file the few matrices that were spared."""
    return len(tensor.shape) == 1 or (quantised and tensor.tensor_type.name == "F32")


def values_of(tensor: Any, wide: bool) -> Any:
    """The bytes of a tensor as BF16, or as F32 with bf16's values."""
    from gguf import GGMLQuantizationType, quants

    plain = quants.dequantize(tensor.data, tensor.tensor_type)
    if tensor.name in CONSTANTS:
        return plain
    rounded = quants.quantize(plain, GGMLQuantizationType.BF16)
    return quants.dequantize(rounded, GGMLQuantizationType.BF16) if wide else rounded


def convert(source: Path, target: Path) -> None:
    """Write `target`, one tensor at a time."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType

    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)
    quantised = any(tensor.tensor_type.name != "F32" and len(tensor.shape) > 1 for tensor in reader.tensors)
    wide = {tensor.name: is_kept_wide(tensor, quantised) for tensor in reader.tensors}
    for tensor in reader.tensors:
        *rows, row = (int(size) for size in reversed(tensor.shape))
        if wide[tensor.name]:
            writer.add_tensor_info(tensor.name, (*rows, row), np.dtype("float32"), 4 * tensor.n_elements)
        else:  # whose shape the writer wants in bytes
            bf16 = GGMLQuantizationType.BF16
            writer.add_tensor_info(tensor.name, (*rows, 2 * row), np.dtype("uint8"), 2 * tensor.n_elements, raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        writer.write_tensor_data(values_of(tensor, wide[tensor.name]))
    writer.close()


def main() -> None:
    """Convert, or exit with status 1 and the reason as the last line."""
    order = json.loads(sys.argv[1])
    try:
        convert(Path(order["source"]), Path(order["target"]) / NAME)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is the reason
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")


main()
