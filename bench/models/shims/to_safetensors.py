"""Makes a folder of bf16 safetensors of a GGUF file: run by a Python that has torch, transformers, gguf and accelerate.

    python to_safetensors.py '{"source": "m.gguf", "target": "folder"}'

Quantised weights are unpacked to fp32 and rounded to bf16 (to nearest, ties to even). Nothing of `bench` is imported.
"""

import json
import sys
from pathlib import Path
from typing import Any

SPLITS_DIGITS = {"gpt-2": False, "smollm": True}
"""Whether a byte-level BPE tokenizer splits digits first, by GGUF's name for its rule: transformers writes GPT-2's for all."""


def dequantising() -> dict[str, Any]:
    """Newer versions of transformers keep the weights packed unless told otherwise."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def dense_model(source: Path) -> Any:
    """The model with plain bf16 weights, and nothing in its configuration that says it was ever quantised."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded, told = AutoModelForCausalLM.from_pretrained(
        str(source.parent), gguf_file=source.name, dtype=torch.bfloat16, output_loading_info=True, **dequantising()
    )
    left_out = {kind: sorted(names) for kind, names in told.items() if names}
    if left_out:
        raise ValueError(f"not all weights have a place in the model: {left_out}")
    config = loaded.config.to_dict()
    config.pop("quantization_config", None)
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(config), dtype=torch.bfloat16)
    plain.load_state_dict(loaded.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def tokenizer_of(source: Path) -> Any:
    """The tokenizer, with the first split that GGUF names. Raises: ValueError for one that is not known."""
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    found = {key: field.contents() for key, field in GGUFReader(source).fields.items() if key.startswith("tokenizer.ggml.")}
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    if found.get("tokenizer.ggml.model") != "gpt2":
        return tokenizer
    rule = found.get("tokenizer.ggml.pre")
    if rule not in SPLITS_DIGITS:
        raise ValueError(f"its tokenizer splits text by the rule {rule!r}; known here are {', '.join(SPLITS_DIGITS)}")
    if SPLITS_DIGITS[rule]:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


def main() -> None:
    """Convert, or exit with status 1 and the reason as the last line."""
    order = json.loads(sys.argv[1])
    source, target = Path(order["source"]), order["target"]
    try:
        tokenizer_of(source).save_pretrained(target)
        dense_model(source).save_pretrained(target)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is the reason
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")


main()
