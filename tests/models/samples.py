"""Tiny models in real formats, and wheels that hold them."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

GgufValue = str | int | float | bool | list[str] | list[int]


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: GgufValue) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_string(str(v)) for v in value)
    return struct.pack("<IIQ", 9, 5, len(value)) + b"".join(struct.pack("<i", int(v)) for v in value)


LLAMA: Mapping[str, GgufValue] = {
    "general.architecture": "llama",
    "general.license": "mit",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(100)],
    "tokenizer.ggml.token_type": [1] * 100,
}
TENSORS: Mapping[str, tuple[int, ...]] = {"token_embd.weight": (64, 100), "output_norm.weight": (64,), "rope_freqs.weight": (8,)}


def gguf_bytes(
    values: Mapping[str, GgufValue] = LLAMA,
    tensors: Mapping[str, tuple[int, ...]] = TENSORS,
    *,
    version: int = 3,
    payload_b: int = 256,
) -> bytes:
    """A GGUF file with that header and `payload_b` bytes of weights."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    pairs = b"".join(_string(key) + _value(value) for key, value in values.items())
    infos = b"".join(
        _string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", 0, 0)
        for name, dims in tensors.items()
    )
    return head + pairs + infos + bytes(i % 251 for i in range(payload_b))


def safetensors_bytes(tensors: Mapping[str, tuple[int, ...]], dtype: str = "BF16", payload_b: int = 64) -> bytes:
    """A safetensors file with those tensors (its data is not as long as the header says: nothing here reads it)."""
    entries = {name: {"dtype": dtype, "shape": list(dims), "data_offsets": [0, 0]} for name, dims in tensors.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(payload_b)


CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "vocab_size": 100,
}


def repository() -> dict[str, bytes]:
    """A repository as hubs hold them: two shards, side files, and much that must not be fetched."""
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b'{"model": {}}',
        "tokenizer.model": b"spm",
        "model-00001-of-00002.safetensors": safetensors_bytes({"a": (64, 100)}, payload_b=300_000),
        "model-00002-of-00002.safetensors": safetensors_bytes({"b": (64,)}, payload_b=200_000),
        "consolidated.safetensors": b"the same weights again",
        "pytorch_model.bin": b"the same weights once more",
        "original/consolidated.00.pth": b"and again",
        "README.md": b"# model",
    }


def combined_sha256(*files: bytes) -> str:
    """What `weights_sha256` must be for safetensors shards, worked out anew."""
    hashes = sorted(hashlib.sha256(data).hexdigest() for data in files)
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def write_wheel(folder: Path, files: Mapping[str, bytes], dist: str = "tiny_model", version: str = "1.0") -> Path:
    """A valid wheel that holds `files`."""
    info = f"{dist}-{version}.dist-info"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in everything.items()
    ]
    everything[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
    path = folder / f"{dist}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in everything.items():
            archive.writestr(name, data)
    return path
