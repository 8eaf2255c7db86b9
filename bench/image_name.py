"""Names of container images: which parts they have, and whether one names the same bytes tomorrow. Pure.

Source: the grammar of references in the Distribution project (`reference/reference.go`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?"
    r"(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{32,}))?"
)
_MOVING = frozenset({"latest", "nightly", "main", "master", "dev", "edge", "stable"})
"""Tags that are moved to another image by habit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageName:
    """`registry/repository:tag@digest`, the last two where they are written."""

    name: str
    tag: str | None
    digest: str | None


def read_image(text: str) -> ImageName:
    """The parts of `text`. Raises: ValueError, with what to write."""
    found = _IMAGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not the name of an image: write it as in vllm/vllm-openai:v0.11.0")
    return ImageName(name=found["name"], tag=found["tag"], digest=found["digest"])


def check_pinned(text: str) -> None:
    """Refuse an image that may be another one tomorrow. Raises: ValueError, with what to write."""
    image = read_image(text)
    if image.digest is None and (image.tag is None or image.tag in _MOVING):
        what = "has no tag, which means latest" if image.tag is None else f"has the tag {image.tag}, which moves"
        raise ValueError(
            f"{text} {what}: write a version as in {image.name}:v1.2.3, or a digest "
            f"(docker image inspect --format '{{{{.RepoDigests}}}}' {text})"
        )
