"""From a name to weights: the catalogue, precisions, and what a damaged cache leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.catalog import models as catalog
from bench.errors import ModelError, UsageError
from bench.models import ModelStore
from bench.models.store import _resolve
from bench.ports import ModelSource
from bench.records import ModelShape
from tests.models.conftest import MakeStore, no_progress
from tests.models.hub_server import Hub
from tests.models.samples import repository

CATALOGUE = """
models:
  - name: tiny
    licence: apache-2.0
    shape: {parameters: 7, layers: null}
    sources:
      bf16: {source: "hf:org/tiny@main"}
      q4: {source: "hf:org/tiny@main#config.json", sha256: "%s"}
"""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    found = catalog.parse(CATALOGUE % ("0" * 64), "test.yaml")
    monkeypatch.setattr(catalog, "_models", lambda: found)


def test_the_store_fills_the_port(make_store: MakeStore) -> None:
    port: ModelSource = make_store()
    assert isinstance(port, ModelStore)


@pytest.mark.usefixtures("tiny")
def test_a_name_brings_licence_and_shape_of_the_catalogue(make_store: MakeStore) -> None:
    model = make_store().fetch("tiny", None, no_progress)
    assert (model.name, model.source, model.licence) == ("tiny", "hf:org/tiny@main", "apache-2.0")
    assert model.shape == ModelShape(parameters=7, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocab=100)


@pytest.mark.usefixtures("tiny")
def test_an_overriding_source_brings_its_own(make_store: MakeStore) -> None:
    model = make_store().fetch("tiny", "modelscope:org/tiny@master", no_progress)
    assert (model.name, model.licence, model.shape.parameters) == ("tiny", None, 6464)


@pytest.mark.usefixtures("tiny")
def test_a_source_of_the_catalogue_is_recognised(make_store: MakeStore) -> None:
    model = make_store().fetch("hf:org/tiny@main", None, no_progress)
    assert (model.name, model.licence) == ("tiny", "apache-2.0")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["tiny", "TINY"])
@pytest.mark.parametrize(("precision", "source"), [(None, "@main"), ("bf16", "@main"), ("fp16", "@main"), ("q4", "#config.json")])
def test_precisions(name: str, precision: str | None, source: str) -> None:
    assert _resolve(name, precision, ()).text.endswith(source)


@pytest.mark.usefixtures("tiny")
def test_a_precision_that_the_catalogue_lacks(make_store: MakeStore) -> None:
    with pytest.raises(UsageError, match="no fp8 weights of tiny") as caught:
        make_store().fetch("tiny", None, no_progress, precision="fp8")
    assert caught.value.hint is not None
    assert "bf16 (safetensors), q4 (safetensors)" in caught.value.hint


@pytest.mark.usefixtures("tiny")
def test_the_hash_of_the_catalogue_is_checked(make_store: MakeStore, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"config.json has the wrong content: expected {'0' * 64}"):
        make_store().fetch("tiny", None, no_progress, precision="q4")
    assert not list((tmp_path / "cache").rglob("files/config.json"))


@pytest.mark.parametrize(("name", "near"), [("llama2-14b", "llama2-13b"), ("smollm2-135m-instruc", "smollm2-135m-instruct")])
def test_an_unknown_name_gets_the_nearest(make_store: MakeStore, name: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"unknown model '{name}'. Did you mean '{near}'"):
        make_store().fetch(name, None, no_progress)


def test_a_bare_repository_is_told_its_scheme(make_store: MakeStore) -> None:
    with pytest.raises(UsageError) as caught:
        make_store().fetch("Acme/Zork-9", None, no_progress)
    assert caught.value.hint is not None
    assert "hf:Acme/Zork-9@main" in caught.value.hint


def test_mock_is_no_model(make_store: MakeStore) -> None:
    with pytest.raises(UsageError, match="unknown model 'mock'"):
        make_store().fetch("mock", None, no_progress)


def test_a_damaged_entry_is_fetched_again_with_a_note(hub: Hub, make_store: MakeStore, notes: list[str]) -> None:
    model = make_store().fetch("tiny", "hf:org/tiny@main", no_progress)
    (Path(model.path) / "config.json").write_bytes(b"{}")
    again = make_store().fetch("tiny", "hf:org/tiny@main", no_progress)
    assert again == model
    assert (Path(again.path) / "config.json").read_bytes() == repository()["config.json"]
    [note] = notes
    assert "can't be used (config.json has 2 bytes" in note


def test_cached_lists_what_is_there_without_the_network(hub: Hub, make_store: MakeStore) -> None:
    assert make_store().cached() == ()
    model = make_store().fetch("tiny", "hf:org/tiny@main", no_progress)
    asked = len(hub.script.seen)
    [found] = make_store().cached()
    assert (found.name, found.precision, found.model) == (None, None, model)
    assert len(hub.script.seen) == asked
