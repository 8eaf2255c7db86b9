"""Which images are the same tomorrow."""

from __future__ import annotations

import pytest

from bench.image_name import check_pinned, read_image

SHA = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "name", "tag", "digest"),
    [
        ("vllm/vllm-openai:v0.11.0", "vllm/vllm-openai", "v0.11.0", None),
        (f"vllm/vllm-openai@{SHA}", "vllm/vllm-openai", None, SHA),
        (f"vllm/vllm-openai:latest@{SHA}", "vllm/vllm-openai", "latest", SHA),
        ("localhost:5000/engine:1", "localhost:5000/engine", "1", None),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc1", "nvcr.io/nvidia/tensorrt-llm/release", "1.2.0rc1", None),
        (
            "cr.metax-tech.com/a/maca/vllm:maca.ai3.1.0.7-torch2.6",
            "cr.metax-tech.com/a/maca/vllm",
            "maca.ai3.1.0.7-torch2.6",
            None,
        ),
    ],
)
def test_pinned_images_are_taken_apart(text: str, name: str, tag: str | None, digest: str | None) -> None:
    check_pinned(text)
    image = read_image(text)
    assert (image.name, image.tag, image.digest) == (name, tag, digest)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm/vllm-openai", "has no tag, which means latest"),
        ("localhost:5000/engine", "has no tag, which means latest"),
        ("vllm/vllm-openai:latest", "has the tag latest, which moves"),
        ("vllm/vllm-openai:nightly", "has the tag nightly, which moves"),
        ("", "is not the name of an image"),
        ("Vllm/VLLM:1", "is not the name of an image"),
        ("a b:1", "is not the name of an image"),
        ("vllm:1 --privileged", "is not the name of an image"),
        ("--privileged", "is not the name of an image"),
        ("vllm@sha256:12", "is not the name of an image"),
    ],
)
def test_an_image_that_may_be_another_tomorrow_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_pinned(text)
