"""Memory between raw events and Parquet: bounded by pieces, not by how much was streamed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.load import gather, recover
from bench.records import EventLog
from tests.load.test_spill import write

ROOT = Path(__file__).parents[2]
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def peaks(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "benchmarks/memory.py", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@LINUX_ONLY
def test_three_times_the_chunks_need_hardly_more_memory() -> None:
    """Columns of one million chunks stay in memory, those of three are files: what is left is the pieces and DuckDB."""
    small, large = peaks("--chunks", "1000000"), peaks("--chunks", "3000000")
    assert [p["name"] for p in small] == [p["name"] for p in large]
    for before, after in zip(small, large, strict=True):
        assert after["anonymous_mib"] < 1.5 * before["anonymous_mib"]
    assert max(p["anonymous_mib"] for p in large) < 300


@LINUX_ONLY
@pytest.mark.proof
def test_thirty_million_chunks_need_less_than_a_gibibyte() -> None:
    """The kernel refuses every process of the way more than 1 GiB."""
    assert max(p["anonymous_mib"] for p in peaks("--chunks", "30000000", "--limit-mib", "1024")) < 1024


def same(one: EventLog, other: EventLog) -> bool:
    names = [name for name in EventLog.__struct_fields__ if name not in ("finish_reason", "error")]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_logs_are_the_same_in_memory_and_in_files_whatever_the_pieces(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker in range(3):
        write(tmp_path, worker, [(worker + 3 * i, 1000 + 700 * i + 31 * worker * i) for i in range(20)])
    whole = recover(tmp_path)
    monkeypatch.setattr(gather, "_IN_MEMORY_B", 0)
    monkeypatch.setattr(gather, "_PIECE", piece)
    pieced = recover(tmp_path)
    assert same(whole, pieced)
    assert np.all(np.diff(whole.sent_ns) >= 0)
    assert np.all((whole.chunk_ns - whole.sent_ns[whole.chunk_request]) <= 200)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"worker-{w}.spill" for w in range(3)]
