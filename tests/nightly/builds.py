"""Builds of an engine whose speed is known: programs that llama-server's runner starts, which answer as the mock engine does."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.models.samples import gguf_bytes

_PROGRAM = """#!/bin/sh
case "$1" in
  --help) echo "--metrics --no-webui --no-cache-prompt"; exit ;;
  --version) echo "version: {number} (abcdef{number})"; exit ;;
esac
while [ $# -gt 0 ]; do
  case "$1" in
    --port) port=$2 ;;
    --alias) alias=$2 ;;
  esac
  shift
done
exec {python} -m bench mock-server --port "$port" --model "$alias" --ttft-ms {ttft_ms} --gap-ms {gap_ms}
"""


def build(folder: Path, number: int, slower: float = 0.0) -> Path:
    """A build that is slower by a share of its speed than one that takes 400 ms to the first token and 200 ms for each later."""
    path = folder / f"b{number}" / "llama-server"
    path.parent.mkdir(parents=True)
    times = {"ttft_ms": 400.0 / (1.0 - slower), "gap_ms": 200.0 / (1.0 - slower)}
    path.write_text(_PROGRAM.format(number=number, python=sys.executable, **times))
    path.chmod(0o755)
    return path


def weights(folder: Path) -> Path:
    """A small GGUF file."""
    path = folder / "tiny.gguf"
    path.write_bytes(gguf_bytes())
    return path
