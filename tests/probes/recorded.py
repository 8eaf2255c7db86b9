"""Recorded outputs of vendors' tools: files whose first line says where they come from."""

from __future__ import annotations

from pathlib import Path


def recorded(path: Path) -> str:
    """The output, without that line."""
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    assert first.startswith("# SOURCE")
    return rest
