"""Random weights of a known shape: the same everywhere and in both formats, marked as what they are, never half there."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import gguf
from bench.catalog import models as catalog
from bench.errors import ModelError, UsageError
from bench.models import llama_shapes
from bench.models.llama_shapes import LlamaShape, lookup, shapes
from bench.models.source import parse
from tests.models.conftest import MakeStore, no_progress
from tests.models.hub_server import Hub
from tests.models.samples import LLAMA, GgufValue, gguf_bytes

SMALL = LlamaShape(name="small", layers=2, heads=2, kv_heads=1, head_dim=4, hidden=16, vocab=9, ffn=32)
LARGE = LlamaShape(name="large", layers=1, heads=2, kv_heads=2, head_dim=8, hidden=16, vocab=20, ffn=32, tied=True)
TOKENS = ["<|end|>", "<|start|>", "a", "b", "c", "ab", "1", "2", "Ġ", "abc", "Ġa", "ca"]
TOKENIZER: dict[str, GgufValue] = {
    **LLAMA,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, *[1] * 10],
    "tokenizer.ggml.merges": ["a b", "ab c", "Ġ a", "c a"],
}


GGUF_SHA256 = "7ef85475ac2f7ad7968942a3789bb53ae6a6861b074767924e9c47246898b1d5"
SAFETENSORS_SHA256 = "e06b3e9b85d125c57103e4e50c22262ed998194e497699e892c8689d57bacf07"
"""Of `small`."""


def entry(shape: LlamaShape, **changes: Any) -> dict[str, Any]:
    """As the catalogue tells of it."""
    figures = {name: getattr(shape, name) for name in ("layers", "heads", "kv_heads", "head_dim", "hidden", "vocab")}
    told = {"parameters": shape.parameters, **figures} | changes
    return {"name": shape.name, "shape": told, "ffn": shape.ffn, "sources": {"bf16": {"source": f"hf:org/{shape.name}@main"}}}


@pytest.fixture(autouse=True)
def _catalogue(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    tokenizer = {"name": "smollm2-135m-instruct", "sources": {"q4_1": {"source": "hf:org/tok@main#tok.gguf"}}}
    found = catalog.parse(json.dumps({"models": [entry(SMALL), entry(LARGE), tokenizer]}), "test.yaml")
    monkeypatch.setattr(catalog, "_models", lambda: found)
    hub.script.files = {"tok.gguf": gguf_bytes(TOKENIZER)}


def safetensors(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor as bf16 in 16 bits."""
    data = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    assert "random weights" in header.pop("__metadata__")["description"]
    assert max(told["data_offsets"][1] for told in header.values()) == len(data) - 8 - length
    bodies = {name: data[8 + length :][slice(*told["data_offsets"])] for name, told in header.items()}
    return {name: np.frombuffer(body, "<u2").reshape(header[name]["shape"]) for name, body in bodies.items()}


def floats(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype("<u4") << 16).view("<f4")


# --- both formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [SMALL, LARGE], ids=lambda shape: shape.name)
def test_a_shape_comes_out_in_the_format_that_the_engine_reads(make_store: MakeStore, shape: LlamaShape) -> None:
    store = make_store()
    file = store.fetch(f"synthetic:{shape.name}", None, no_progress, formats=("gguf",))
    folder = store.fetch(f"synthetic:{shape.name}", None, no_progress, formats=("safetensors",))
    assert (file.format, folder.format) == ("gguf", "safetensors")
    for model in (file, folder):
        assert (model.name, model.is_synthetic, model.licence) == (f"synthetic:{shape.name}", True, None)
        told = model.shape
        assert (told.parameters, told.layers, told.heads, told.kv_heads) == (
            shape.parameters,
            shape.layers,
            shape.heads,
            shape.kv_heads,
        )
        assert (told.head_dim, told.hidden, told.vocab) == (shape.head_dim, shape.hidden, shape.vocab)
    assert "random weights" in str(gguf.read_header(Path(file.path)).values["general.description"])
    config = json.loads((Path(folder.path) / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["_name_or_path"]) == (shape.tied, f"synthetic:{shape.name}")
    assert ("lm_head.weight" in safetensors(Path(folder.path))) is not shape.tied


def test_weights_are_small_and_normal_and_norms_are_one(make_store: MakeStore) -> None:
    wide = LlamaShape(name="small", layers=1, heads=8, kv_heads=8, head_dim=16, hidden=128, vocab=9, ffn=512)
    (tensor,) = [one for one in wide.tensors() if one.gguf == "blk.0.ffn_up.weight"]
    values = floats(np.concatenate(list(tensor.blocks("small", to_gguf=True))))
    assert values.shape == tensor.dims
    assert abs(values.mean()) < 5 * llama_shapes.STD / math.sqrt(values.size)
    assert values.std() == pytest.approx(llama_shapes.STD, rel=0.02)
    folder = make_store().fetch("synthetic:safetensors:small", None, no_progress)
    norms = [bits for name, bits in safetensors(Path(folder.path)).items() if "norm" in name]
    assert len(norms) == 2 * SMALL.layers + 1
    assert all((floats(bits) == 1.0).all() for bits in norms)


def test_both_formats_hold_the_same_numbers() -> None:
    """Queries and keys with the rows of each head in the order in which llama.cpp turns them."""
    for tensor in SMALL.tensors():
        ours, theirs = (np.concatenate(list(tensor.blocks("small", to_gguf=to_gguf))) for to_gguf in (True, False))
        if tensor.is_norm:
            assert (ours == floats(theirs)).all()
        elif tensor.rotary is None:
            assert (ours == theirs).all()
        else:
            heads = theirs.reshape(-1, 2, tensor.rotary // 2, SMALL.hidden)
            assert (ours == heads.swapaxes(1, 2).reshape(theirs.shape)).all()
            assert (ours != theirs).any()


def test_the_weights_depend_on_the_shape_and_the_tensor_alone(make_store: MakeStore) -> None:
    """A hash that changes here changes on every machine: results of before are then of other weights."""
    first = [np.concatenate(list(t.blocks("small", to_gguf=False))).tobytes() for t in SMALL.tensors() if not t.is_norm]
    other = [np.concatenate(list(t.blocks("other", to_gguf=False))).tobytes() for t in SMALL.tensors() if not t.is_norm]
    assert len({*first, *other}) == len(first) + len(other)
    file = make_store().fetch("synthetic:gguf:small", None, no_progress)
    folder = make_store().fetch("synthetic:safetensors:small", None, no_progress)
    assert (file.weights_sha256, folder.weights_sha256) == (GGUF_SHA256, SAFETENSORS_SHA256)


def test_blocks_do_not_change_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    (tensor,) = [one for one in SMALL.tensors() if one.gguf == "blk.1.ffn_up.weight"]
    whole = np.concatenate(list(tensor.blocks("small", to_gguf=True)))
    monkeypatch.setattr(llama_shapes, "_BLOCK", 40)
    blocks = list(tensor.blocks("small", to_gguf=True))
    assert len(blocks) == SMALL.ffn // 2
    assert (np.concatenate(blocks) == whole).all()


# --- the vocabulary ---------------------------------------------------------------------------------------------------


def test_a_small_vocabulary_is_cut_with_its_merges(make_store: MakeStore) -> None:
    file = make_store().fetch("synthetic:gguf:small", None, no_progress)
    values = gguf.read_header(Path(file.path), keep_all=True).values
    assert values["tokenizer.ggml.tokens"] == tuple(TOKENS[:9])
    assert values["tokenizer.ggml.merges"] == ("a b",)
    assert values["tokenizer.ggml.token_type"] == (3, 3, *[1] * 7)
    assert values["tokenizer.ggml.pre"] == "smollm"


def test_a_large_one_is_filled_up_with_what_no_text_gives(make_store: MakeStore) -> None:
    file = make_store().fetch("synthetic:gguf:large", None, no_progress)
    values = gguf.read_header(Path(file.path), keep_all=True).values
    tokens, merges = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.merges"]
    assert isinstance(tokens, tuple)
    assert (len(tokens), len(set(tokens)), tokens[:12]) == (LARGE.vocab, LARGE.vocab, tuple(TOKENS))
    assert tokens[-1] == "<|unused_19|>"
    assert merges == ("a b", "ab c", "Ġ a", "c a")


def test_hugging_face_reads_the_tokenizer(make_store: MakeStore) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder = Path(make_store().fetch("synthetic:safetensors:large", None, no_progress).path)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == LARGE.vocab
    assert tokenizer.encode("abc a12<|end|>").tokens == ["abc", "Ġa", "1", "2", "<|end|>"]
    assert tokenizer.decode([9, 19]) == "abc<|unused_19|>"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["chat_template"]) == ("<|start|>", "<|end|>", "{{ messages }}")


@pytest.mark.parametrize("changed", [{"tokenizer.ggml.pre": "llama-bpe"}, {"tokenizer.ggml.model": "llama"}])
def test_another_tokenizer_is_refused(make_store: MakeStore, hub: Hub, changed: dict[str, str]) -> None:
    hub.script.files = {"tok.gguf": gguf_bytes({**TOKENIZER, **changed})}
    with pytest.raises(ModelError, match="not SmolLM's"):
        make_store().fetch("synthetic:small", None, no_progress)


# --- which shapes, and what is refused --------------------------------------------------------------------------------


def test_shapes_are_those_whose_figures_add_up() -> None:
    assert list(shapes()) == ["tiny", "small", "large"]
    assert lookup("SMALL") == SMALL
    assert lookup("large") == LARGE, "its number of weights tells that its embedding is tied"
    unfit: list[dict[str, Any]] = [
        {"parameters": SMALL.parameters + 8},
        {"parameters": None},
        {"layers": None},
        {"experts": 4},
        {"kv_width": 8},
    ]
    for changes in unfit:
        found = catalog.parse(json.dumps({"models": [entry(SMALL, **changes)]}), "test.yaml")
        assert llama_shapes.shape_of(found["small"]) is None, changes


def test_the_shipped_catalogue_has_the_shapes_that_are_gated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    known = shapes()
    assert {"tiny", "smollm2-135m-instruct", "llama2-7b", "llama2-13b", "llama2-70b", "llama-3.1-8b-instruct"} <= set(known)
    assert known["smollm2-135m-instruct"].tied
    assert not known["llama2-70b"].tied
    assert not {"qwen3-8b", "mixtral-8x7b-instruct", "deepseek-r1"} & set(known)


@pytest.mark.parametrize(
    ("name", "source", "precision", "formats", "words", "hint"),
    [
        ("synthetic:smal", None, None, (), "unknown shape 'smal'. Did you mean 'small'", "known: tiny, small, large"),
        ("synthetic:zork", None, None, (), "unknown shape 'zork'", "known: tiny, small, large"),
        ("synthetic:small", None, "q4_1", ("gguf",), "are bf16, not q4_1", "precision: bf16"),
        ("synthetic:small", None, "fp16", ("gguf",), "are bf16, not fp16", "precision: bf16"),
        ("synthetic:small", None, "awq", ("safetensors",), "are bf16, not awq", "precision: bf16"),
        ("synthetic:gguf:small", None, None, ("safetensors",), "is gguf, not safetensors", "write synthetic:small"),
        ("llama", "synthetic:small", None, (), "can't be called 'llama'", "model: synthetic:small"),
        ("synthetic:large", "synthetic:small", None, (), "can't be called 'synthetic:large'", "model: synthetic:small"),
        ("synthetic:", None, None, (), "is not a model source", "synthetic:SHAPE"),
        ("synthetic:../small", None, None, (), "is not a model source", "synthetic:SHAPE"),
        ("synthetic:awq:small", None, None, (), "is not a model source", "synthetic:SHAPE"),
        ("convert:safetensors:synthetic:gguf:small", None, None, (), "is not a model source", "names a GGUF file"),
    ],
)
def test_what_is_not_made_is_refused_before_anything_is_fetched(
    make_store: MakeStore,
    hub: Hub,
    tmp_path: Path,
    name: str,
    source: str | None,
    precision: str | None,
    formats: tuple[str, ...],
    words: str,
    hint: str,
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        make_store().fetch(name, source, no_progress, precision=precision, formats=formats)
    assert hint in str(caught.value.hint)
    assert hub.script.seen == []
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["synthetic:small", "synthetic:SMALL", "synthetic:safetensors:small"])
def test_a_source_that_says_the_same_as_the_name_is_no_mistake(make_store: MakeStore, name: str) -> None:
    assert make_store().check(name, "synthetic:small").text == "synthetic:gguf:small"


@pytest.mark.parametrize(
    ("precision", "formats", "text"),
    [
        (None, (), "synthetic:gguf:small"),
        ("bfloat16", ("gguf",), "synthetic:gguf:small"),
        (None, ("safetensors",), "synthetic:safetensors:small"),
        ("fp8", ("safetensors",), "synthetic:safetensors:small"),
        (None, ("gguf", "openvino"), "synthetic:gguf:small"),
    ],
)
def test_the_format_follows_the_engine(make_store: MakeStore, precision: str | None, formats: tuple[str, ...], text: str) -> None:
    found = make_store().check("synthetic:Small", None, precision=precision, formats=formats)
    assert (found.text, found.short_name) == (text, "synthetic:small")
    assert found.of == parse("hf:org/tok@main#tok.gguf")


# --- the cache --------------------------------------------------------------------------------------------------------


def test_they_are_made_once_and_then_need_no_network(make_store: MakeStore, hub: Hub, notes: list[str]) -> None:
    first = make_store().fetch("synthetic:small", None, no_progress)
    asked = len(hub.script.seen)
    assert make_store(BENCH_OFFLINE="1").fetch("synthetic:small", None, no_progress) == first
    assert make_store().here("synthetic:small", None) == first
    assert make_store().here("synthetic:large", None) is None
    assert len(hub.script.seen) == asked
    assert notes == ["making synthetic:gguf:small: random weights, not trained: for speed only"]


def test_they_are_listed_as_what_they_are(make_store: MakeStore) -> None:
    make_store().fetch("synthetic:small", None, no_progress)
    listed = {entry.model.name: entry for entry in make_store().cached()}
    assert sorted(listed) == ["smollm2-135m-instruct", "synthetic:small"]
    assert listed["synthetic:small"].name is None, "the catalogue doesn't have it"


def test_what_does_not_fit_is_refused_before_a_byte_is_written(make_store: MakeStore, tmp_path: Path) -> None:
    make_store().fetch("synthetic:large", None, no_progress)  # so that the tokenizer is here
    free_b = (16 << 20) + 2 * SMALL.parameters
    with pytest.raises(ModelError, match="synthetic:gguf:small needs") as caught:
        make_store(free_b=free_b - 1).fetch("synthetic:small", None, no_progress)
    assert "BENCH_CACHE" in str(caught.value.hint)
    assert not list((tmp_path / "cache" / "partial").iterdir())
    make_store(free_b=free_b).fetch("synthetic:small", None, no_progress)


def test_what_broke_off_is_no_model_and_is_made_anew(make_store: MakeStore, tmp_path: Path) -> None:
    made: list[int] = []

    def stop(what: str, done: int, total: int | None) -> None:
        if what == "synthetic:small":
            made.append(done)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_store().fetch("synthetic:small", None, stop)
    assert made
    assert not list((tmp_path / "cache" / "models").glob("synthetic*"))
    assert make_store().here("synthetic:small", None) is None
    model = make_store().fetch("synthetic:small", None, no_progress)
    assert model.weights_sha256 == GGUF_SHA256


def test_progress_ends_at_the_whole(make_store: MakeStore) -> None:
    for source in ("synthetic:gguf:small", "synthetic:safetensors:large"):
        told: list[tuple[int, int | None]] = []
        make_store().fetch(source, None, lambda what, done, total, told=told: told.append((done, total)))  # type: ignore[misc]
        (done, total), counts = told[-1], [one[0] for one in told]
        assert done == total
        assert counts == sorted(counts)
