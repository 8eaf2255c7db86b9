"""The GGUF reader: what it reads, and that no file can make it do anything but raise."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench import gguf
from bench.errors import ModelError
from bench.models.gguf_header import BF16, F32, TensorInfo, header_bytes
from bench.records import ModelShape
from tests.models.samples import LLAMA, TENSORS, gguf_bytes

WHOLE = gguf_bytes()
HEADER_B = len(gguf_bytes(payload_b=0))


def _read(folder: Path, data: bytes) -> gguf.GgufHeader:
    path = folder / "m.gguf"
    path.write_bytes(data)
    return gguf.read_header(path)


@pytest.mark.parametrize("version", [2, 3])
def test_shape_and_licence(tmp_path: Path, version: int) -> None:
    header = _read(tmp_path, gguf_bytes(version=version))
    assert gguf.shape(header) == ModelShape(
        parameters=64 * 100 + 64, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocab=100
    ), "rope_freqs.weight holds constants and is not counted"
    assert gguf.licence(header) == "mit"
    assert header.values["tokenizer.ggml.token_type"] == (1,) * 100


def test_values_by_layer(tmp_path: Path) -> None:
    same = gguf.shape(_read(tmp_path, gguf_bytes({**LLAMA, "llama.attention.head_count_kv": [2, 2]})))
    mixed = gguf.shape(_read(tmp_path, gguf_bytes({**LLAMA, "llama.attention.head_count_kv": [2, 4]})))
    assert (same.kv_heads, mixed.kv_heads) == (2, None)


def test_what_is_not_said_is_none(tmp_path: Path) -> None:
    header = _read(tmp_path, gguf_bytes({"general.architecture": "llama"}, {}))
    assert gguf.shape(header) == ModelShape()
    assert gguf.licence(header) is None


def test_explicit_key_length_and_no_kv_heads(tmp_path: Path) -> None:
    values = {k: v for k, v in LLAMA.items() if k != "llama.attention.head_count_kv"}
    shape = gguf.shape(_read(tmp_path, gguf_bytes({**values, "llama.attention.key_length": 128})))
    assert (shape.kv_heads, shape.head_dim) == (4, 128)


def _head(tensors: int, pairs: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs)


_KEY = struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "too early"),
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (gguf_bytes(version=1), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(40), "version 50331648"),
        (_head(1 << 60, 0), "tensors is more than"),
        (_head(0, 1 << 60), "metadata pairs is more than"),
        (_head(0, 1) + struct.pack("<Q", 1 << 63), "bytes of text is more than"),
        (_head(0, 1) + _KEY + struct.pack("<I", 77), "unknown value type 77"),
        (_head(0, 1) + _KEY + struct.pack("<IIQ", 9, 9, 1), "an array of type 9"),
        (_head(0, 1) + _KEY + struct.pack("<IIQ", 9, 0, 1 << 62), "array elements is more than"),
        (_head(0, 1) + _KEY + struct.pack("<IIQ", 9, 8, 1 << 62), "array elements is more than"),
        (_head(1, 0) + _KEY + struct.pack("<I", 1 << 31), "dimensions"),
        (_head(1, 0) + _KEY + struct.pack("<IQ", 1, 1 << 60), "elements in one dimension"),
    ],
)
def test_hostile_headers(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        _read(tmp_path, data)
    assert "m.gguf is not a usable GGUF file" in str(caught.value)


def test_many_empty_strings_end_early(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(_head(0, 1) + _KEY + struct.pack("<IIQ", 9, 8, 20_000_000))
        file.truncate(200_000_000)  # sparse
    with pytest.raises(ModelError, match="over 8000000 array elements"):
        gguf.read_header(path)


@pytest.mark.parametrize("cut", range(0, HEADER_B, 37))
def test_every_cut_header_is_refused(tmp_path: Path, cut: int) -> None:
    with pytest.raises(ModelError, match="not a usable GGUF file"):
        _read(tmp_path, WHOLE[:cut])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, HEADER_B - 1), st.binary(min_size=1, max_size=16))
def test_changed_bytes_give_a_header_or_a_model_error(tmp_path: Path, at: int, change: bytes) -> None:
    data = (WHOLE[:at] + change + WHOLE[at + len(change) :])[: len(WHOLE)]
    try:
        header = _read(tmp_path, data)
    except ModelError:
        return
    gguf.shape(header)
    assert len(header.values) <= len(LLAMA)
    assert header.parameters >= 0


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't read"):
        gguf.read_header(tmp_path / "none.gguf")


def test_tensors_are_counted_from_their_dimensions(tmp_path: Path) -> None:
    assert _read(tmp_path, gguf_bytes(tensors={**TENSORS, "extra": (2, 3, 4)})).parameters == 6464 + 24


def test_experts_and_latent_attention(tmp_path: Path) -> None:
    values = {"expert_count": 64, "expert_used_count": 6, "attention.kv_lora_rank": 512, "rope.dimension_count": 64}
    found = gguf.shape(_read(tmp_path, gguf_bytes({**LLAMA, **{f"llama.{name}": value for name, value in values.items()}})))
    assert (found.experts, found.experts_used, found.kv_width) == (64, 6, 576)


def test_long_arrays_and_texts_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**LLAMA, "long": list(range(5000))}))
    short, whole = gguf.read_header(path), gguf.read_header(path, keep_all=True)
    assert {"long", "tokenizer.ggml.tokens"} & set(short.values) == set()
    assert (whole.values["long"], whole.lengths) == (tuple(range(5000)), short.lengths)
    assert whole.values["tokenizer.ggml.tokens"] == tuple(f"t{i}" for i in range(100))


def test_a_header_that_is_written_is_read_again(tmp_path: Path) -> None:
    fields: dict[str, gguf.Value] = {"a": "täxt", "b": True, "c": 7, "d": 0.5, "e": ("x", ""), "f": (1, -2), "g": (True, False)}
    tensors = [TensorInfo(name="t", dims=(3, 5), kind=BF16, size_b=30), TensorInfo(name="u", dims=(4,), kind=F32, size_b=16)]
    data = header_bytes(fields, tensors)
    found = _read(tmp_path, data)
    assert len(data) % 32 == 0
    assert (found.version, found.parameters, found.lengths) == (3, 19, {"e": 2, "f": 2, "g": 2})
    assert found.values == {name: value for name, value in fields.items() if name != "e"}
    for mixed in ((1, "x"), ()):
        with pytest.raises(ValueError, match="types"):
            header_bytes({"a": mixed}, [])
