"""Which files make a model."""

from __future__ import annotations

import pytest

from bench.errors import ModelError
from bench.models.layout import choose

SPLIT = [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def test_safetensors_before_everything_else() -> None:
    found = choose(
        ["model.safetensors", "pytorch_model.bin", "m.gguf", "config.json", "merges.txt", "tokenizer", "x.py"], None, "s"
    )
    assert (found.format, found.main, found.weights) == ("safetensors", "", ("model.safetensors",))
    assert found.keep == ("config.json", "merges.txt", "model.safetensors", "tokenizer")


def test_consolidated_weights_count_only_where_there_are_no_others() -> None:
    assert choose(["consolidated.safetensors", "model.safetensors"], None, "s").weights == ("model.safetensors",)
    assert choose(["consolidated.safetensors"], None, "s").weights == ("consolidated.safetensors",)


def test_the_only_gguf_and_not_its_projector() -> None:
    found = choose(["m.gguf", "mmproj-m.gguf", "README.md"], None, "s")
    assert (found.format, found.main, found.keep) == ("gguf", "m.gguf", ("m.gguf",))


@pytest.mark.parametrize("file", [None, SPLIT[0], SPLIT[2]])
def test_a_split_gguf_is_one_model(file: str | None) -> None:
    found = choose(SPLIT, file, "s")
    assert (found.main, found.weights) == (SPLIT[0], tuple(SPLIT))


def test_a_split_gguf_with_a_part_missing() -> None:
    with pytest.raises(ModelError, match=r"m-00002-of-00003\.gguf"):
        choose([SPLIT[0], SPLIT[2]], SPLIT[0], "s")


def test_a_split_of_absurdly_many_parts_ends() -> None:
    with pytest.raises(ModelError, match="missing"):
        choose(["m-00001-of-99999.gguf"], None, "s")


@pytest.mark.parametrize("more", [[], ["pytorch_model.bin"]])
def test_openvinos_own_folder_with_its_tokenizer(more: list[str]) -> None:
    names = ["openvino_model.bin", "openvino_model.xml", "openvino_tokenizer.bin", "openvino_tokenizer.xml", "config.json"]
    found = choose([*names, "README.md", *more], None, "s")
    assert (found.format, found.main, found.weights) == ("openvino", "", ("openvino_model.bin",))
    assert found.keep == tuple(sorted(names))


def test_half_of_an_openvino_model_is_none() -> None:
    with pytest.raises(ModelError, match="no weights"):
        choose(["openvino_model.xml", "openvino_tokenizer.xml"], None, "s")


def test_pytorch_weights_where_there_is_nothing_better() -> None:
    found = choose(["pytorch_model.bin", "training_args.bin", "config.json"], None, "s")
    assert (found.format, found.weights, found.keep) == ("other", ("pytorch_model.bin",), ("config.json", "pytorch_model.bin"))


@pytest.mark.parametrize("names", [[], ["README.md"], ["sub/model.safetensors"]])
def test_no_weights(names: list[str]) -> None:
    with pytest.raises(ModelError, match="no weights at its top level"):
        choose(names, None, "hf:a/b@c")


@pytest.mark.parametrize(("where", "example"), [("hf:a/b@c", "hf:a/b@c#x.gguf"), ("path:/m", "path:/m/x.gguf")])
def test_several_models(where: str, example: str) -> None:
    with pytest.raises(ModelError, match=r"holds 2 models: x\.gguf, y\.gguf") as caught:
        choose(["y.gguf", "x.gguf"], None, where)
    assert caught.value.hint == f"name one of them, for example {example}"
