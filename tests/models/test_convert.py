"""Weights in another format: which source a case gets by what its engine reads, and what a conversion keeps and refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.catalog import models as catalog
from bench.errors import MissingError, ModelError, UsageError
from bench.models.convert import known_pythons
from bench.models.source import parse
from tests.models.conftest import MakeStore, no_progress
from tests.models.hub_server import Hub
from tests.models.samples import CONFIG, gguf_bytes, safetensors_bytes

CATALOGUE = """
models:
  - name: small
    licence: apache-2.0
    sources:
      q4_1: {source: "hf:org/small@main#small.gguf"}
  - name: large
    sources:
      bf16: {source: "hf:org/large@main"}
      q4_0: {source: "hf:org/large@main#large.gguf"}
  - name: whole
    sources:
      bf16: {source: "hf:org/whole@main"}
"""
GGUF = "hf:org/small@main#small.gguf"
WEIGHTS = {"model.embed_tokens.weight": (64, 100), "model.norm.weight": (64,)}
"""As many as the sample GGUF has."""


@pytest.fixture(autouse=True)
def _catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    found = catalog.parse(CATALOGUE, "test.yaml")
    monkeypatch.setattr(catalog, "_models", lambda: found)


@pytest.fixture
def small(hub: Hub) -> Hub:
    hub.script.files = {"small.gguf": gguf_bytes()}
    return hub


def a_python(folder: Path, *, lacks: str = "", says: str = "", weights: dict[str, tuple[int, ...]] | None = None) -> str:
    """A Python that answers what it lacks, and makes the files of either shim; what it `says` is why it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_bytes(safetensors_bytes(weights or WEIGHTS))
    (folder / "config").write_text(json.dumps(CONFIG))
    (folder / "gguf").write_bytes(gguf_bytes({"general.architecture": "llama"}))
    program = folder / "python"
    program.write_text(
        f"""#!{sys.executable}
import json, shutil, sys
from pathlib import Path
here = Path({str(folder)!r})
if sys.argv[1] == "-c":
    print({lacks!r})
    sys.exit()
order = json.loads(sys.argv[2])
with (here / "calls").open("a") as calls:
    calls.write(Path(sys.argv[1]).name + " " + order["source"] + chr(10))
if {says!r}:
    sys.exit({says!r})
assert Path(order["source"]).read_bytes()[:4] == b"GGUF"
target = Path(order["target"])
assert not list(target.iterdir())
if sys.argv[1].endswith("to_gguf.py"):
    shutil.copyfile(here / "gguf", target / "model.BF16.gguf")
else:
    shutil.copyfile(here / "weights", target / "model.safetensors")
    shutil.copyfile(here / "config", target / "config.json")
"""
    )
    program.chmod(0o755)
    return str(program)


def calls(python: str) -> list[str]:
    path = Path(python).parent / "calls"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


# --- which source -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "precision", "formats", "source"),
    [
        ("small", "q4_1", ("gguf",), GGUF),
        ("small", None, ("gguf",), GGUF),
        ("small", "bf16", ("gguf",), f"convert:gguf:{GGUF}"),
        ("small", "bf16", ("safetensors",), f"convert:safetensors:{GGUF}"),
        ("small", "bfloat16", ("safetensors",), f"convert:safetensors:{GGUF}"),
        ("small", "fp16", ("safetensors",), f"convert:safetensors:{GGUF}"),
        ("small", "fp8", ("safetensors", "gguf"), f"convert:safetensors:{GGUF}"),
        ("large", "bf16", ("safetensors",), "hf:org/large@main"),
        ("large", "fp32", ("safetensors",), "hf:org/large@main"),
        ("large", "int8", ("safetensors",), "hf:org/large@main"),
        ("large", "q4_0", ("gguf",), "hf:org/large@main#large.gguf"),
        ("large", "bf16", ("gguf",), "convert:gguf:hf:org/large@main#large.gguf"),
        ("large", "fp16", (), "hf:org/large@main"),
        ("large", None, ("gguf",), "hf:org/large@main#large.gguf"),
        ("large", None, (), "hf:org/large@main"),
    ],
)
def test_an_engine_gets_what_it_reads(
    make_store: MakeStore, name: str, precision: str | None, formats: tuple[str, ...], source: str
) -> None:
    assert make_store().check(name, None, precision=precision, formats=formats) == parse(source)


@pytest.mark.parametrize(
    ("name", "precision", "formats", "hint"),
    [
        ("small", None, ("safetensors",), "precision: bf16"),
        ("small", "awq", ("safetensors",), "it has q4_1 (gguf)"),
        ("small", "fp16", ("gguf",), "it has q4_1 (gguf)"),
        ("small", "bf16", (), "bench models convert small"),
        ("whole", "bf16", ("gguf",), "it has bf16 (safetensors)"),
        ("whole", "awq", ("safetensors",), "it has bf16 (safetensors)"),
    ],
)
def test_what_can_not_be_had_is_refused_before_anything_is_fetched(
    make_store: MakeStore, hub: Hub, name: str, precision: str | None, formats: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(UsageError, match=f"no .*weights of {name}") as caught:
        make_store().fetch(name, None, no_progress, precision=precision, formats=formats)
    assert hint in str(caught.value.hint)
    assert hub.script.seen == []


def test_a_source_that_is_named_is_taken_whatever_the_engine_reads(make_store: MakeStore) -> None:
    assert make_store().check("small", "hf:o/r@main#x.gguf", formats=("safetensors",)).format == "gguf"


@pytest.mark.parametrize("text", ["convert:awq:hf:o/r@main#x.gguf", "convert:gguf:", "convert:gguf:hf:o/r@main#x.safetensors"])
def test_a_malformed_conversion_says_the_right_form(text: str) -> None:
    with pytest.raises(UsageError, match="is not a model source") as caught:
        parse(text)
    assert "names a GGUF file" in str(caught.value.hint)


def test_a_conversion_of_a_conversion_is_refused() -> None:
    with pytest.raises(UsageError):
        parse(f"convert:gguf:convert:gguf:{GGUF}")


# --- converting -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_one_model_serves_engines_that_read_different_formats(make_store: MakeStore, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine")
    store = make_store()
    folder = store.fetch("small", None, no_progress, precision="bf16", formats=("safetensors",), python=python)
    file = store.fetch("small", None, no_progress, precision="bf16", formats=("gguf",), python=python)
    source = store.fetch("small", None, no_progress, precision="q4_1", formats=("gguf",))
    assert (folder.name, folder.format, folder.shape.parameters) == ("small", "safetensors", 6464)
    assert (file.name, file.format, file.licence) == ("small", "gguf", "apache-2.0")
    assert (Path(folder.path) / "config.json").is_file()
    assert Path(file.path).is_file()
    assert folder.made_of == file.made_of == source.weights_sha256 is not None
    assert len({folder.weights_sha256, file.weights_sha256, source.weights_sha256}) == 3
    assert source.made_of is None


def test_weights_are_converted_once(make_store: MakeStore, tmp_path: Path, small: Hub, notes: list[str]) -> None:
    python = a_python(tmp_path / "engine")
    first = make_store().fetch("small", None, no_progress, precision="bf16", formats=("gguf",), python=python)
    asked = len(small.script.seen)
    again = make_store(BENCH_OFFLINE="1").fetch("small", None, no_progress, precision="bf16", formats=("gguf",), python=python)
    assert again == first
    assert calls(python) == ["to_gguf.py"]
    assert len(small.script.seen) == asked
    assert [note for note in notes if "making bf16 gguf" in note and python in note]


@pytest.mark.usefixtures("small")
def test_what_is_converted_is_listed_under_its_model(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store()
    store.fetch("small", None, no_progress, precision="bf16", formats=("gguf",), python=a_python(tmp_path / "engine"))
    assert sorted((entry.name, entry.precision) for entry in store.cached()) == [("small", "bf16"), ("small", "q4_1")]


def test_a_local_file_that_changed_is_converted_again(make_store: MakeStore, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine")
    weights = tmp_path / "m.gguf"
    weights.write_bytes(gguf_bytes())
    source = f"convert:safetensors:path:{weights}"
    first = make_store().fetch(source, None, no_progress, python=python)
    weights.write_bytes(gguf_bytes(payload_b=512))
    second = make_store().fetch(source, None, no_progress, python=python)
    make_store().fetch(source, None, no_progress, python=python)
    assert len(calls(python)) == 2
    assert first.made_of != second.made_of
    assert first.name == "m"


@pytest.mark.usefixtures("small")
def test_a_damaged_conversion_is_made_again(make_store: MakeStore, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine")
    first = make_store().fetch("small", None, no_progress, precision="bf16", formats=("gguf",), python=python)
    Path(first.path).write_bytes(b"cut short")
    assert make_store().fetch("small", None, no_progress, precision="bf16", formats=("gguf",), python=python) == first
    assert len(calls(python)) == 2


@pytest.mark.usefixtures("small")
def test_a_python_without_the_packages_is_told_how_to_get_them(make_store: MakeStore, tmp_path: Path) -> None:
    bare = a_python(tmp_path / "bare", lacks="gguf accelerate")
    with pytest.raises(MissingError, match=f"{bare} lacks gguf, accelerate") as caught:
        make_store().fetch("small", None, no_progress, precision="bf16", formats=("safetensors",), python=bare)
    assert f"{bare} -m pip install torch transformers gguf accelerate" in str(caught.value.hint)
    assert caught.value.exit_code == 4


@pytest.mark.usefixtures("small")
def test_the_first_python_that_can_is_taken(make_store: MakeStore, tmp_path: Path) -> None:
    bare, able = a_python(tmp_path / "bare", lacks="torch"), a_python(tmp_path / "able")
    store = make_store(BENCH_LMDEPLOY_PYTHON=str(tmp_path / "gone"), BENCH_VLLM_PYTHON=able)
    store.fetch("small", None, no_progress, precision="bf16", formats=("safetensors",), python=bare)
    assert (calls(bare), calls(able)) == ([], ["to_safetensors.py"])


def test_pythons_are_tried_in_order() -> None:
    env = {"BENCH_VLLM_PYTHON": "/v", "BENCH_TORCH_PYTHON": "/t", "BENCH_CACHE": "/c", "BENCH_SGLANG_PYTHON": ""}
    assert known_pythons("/case", env) == ("/case", "/t", "/v", sys.executable)
    assert known_pythons(None, {"BENCH_VLLM_PYTHON": sys.executable}) == (sys.executable,)


@pytest.mark.usefixtures("small")
def test_a_model_that_can_not_be_converted_says_why(make_store: MakeStore, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine", says="ValueError: GGUF model with architecture zork is not supported yet.")
    with pytest.raises(ModelError, match="architecture zork is not supported"):
        make_store().fetch("small", None, no_progress, precision="bf16", formats=("safetensors",), python=python)
    assert make_store().cached()[0].precision == "q4_1"
    assert len(make_store().cached()) == 1


@pytest.mark.usefixtures("small")
def test_weights_that_got_lost_on_the_way_are_refused(make_store: MakeStore, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine", weights={"model.norm.weight": (64,)})
    with pytest.raises(ModelError, match="came out with 64 weights instead of 6464"):
        make_store().fetch("small", None, no_progress, precision="bf16", formats=("safetensors",), python=python)
    assert all(entry.precision != "bf16" for entry in make_store().cached())


def test_only_gguf_is_converted(make_store: MakeStore, hub: Hub, tmp_path: Path) -> None:
    assert hub.script.files
    with pytest.raises(ModelError, match="is safetensors, and only a single GGUF file"):
        make_store().fetch("convert:gguf:hf:org/whole@main", None, no_progress, python=a_python(tmp_path / "engine"))
