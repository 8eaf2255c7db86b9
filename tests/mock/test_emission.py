"""The emission file against the engine's own truth."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from bench import mock
from bench.errors import EngineStartError
from bench.mock.emission import MAGIC, Emission
from bench.mock.schedule import now_ns
from tests.mock.wire import ask, chat_body
from tests.probes.polling import until


def records(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(stamp, tokens) rows; whole ones only."""
    data = path.read_bytes()
    assert data.startswith(MAGIC)
    body = data[len(MAGIC) + 8 :]
    return np.frombuffer(body[: len(body) // 16 * 16], dtype="<i8").reshape(-1, 2)


def _generate(server: mock.MockServer, tokens: int) -> None:
    answer = ask(int(server.url.rpartition(":")[2]), chat_body(tokens))
    assert answer.status == 200


def test_every_token_is_in_the_file_at_the_stamp_of_its_write(tmp_path: Path) -> None:
    path = tmp_path / "emission"
    with mock.start(ttft_ms=5, gap_ms=2, tokens_per_chunk=3, emission_file=path) as server:
        for tokens in (10, 7, 1):
            _generate(server, tokens)
        done_ns = now_ns()
        until(lambda: records(path)[-1, 0] > done_ns)
        rows = records(path)
        truth = server.truth()
        assert rows[:, 1].sum() == 18 == truth.output_tokens
        sent = rows[rows[:, 1] > 0]
        assert sent[:4, 1].tolist() == [3, 3, 3, 1]  # the last chunk of a reply holds the rest
        half = server.truth(int(sent[0, 0]), int(sent[4, 0]))
        assert half.output_tokens == sent[:4, 1].sum()
    assert (np.diff(records(path)[:, 0]) >= 0).all()


def test_it_tells_that_nothing_was_sent(tmp_path: Path) -> None:
    """Stamps without tokens say up to when the file is whole."""
    path = tmp_path / "emission"
    with mock.start(emission_file=path):
        until(lambda: path.exists() and len(records(path)) >= 3)
    assert records(path)[:, 1].sum() == 0


def test_a_second_start_begins_the_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "emission"
    for _ in range(2):
        with mock.start(ttft_ms=1, gap_ms=1, emission_file=path) as server:
            _generate(server, 4)
        assert records(path)[:, 1].sum() == 4


def test_a_file_that_can_not_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError) as caught:
        mock.start(emission_file=tmp_path / "no/such/folder")
    assert "emission file" in caught.value.log_tail


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_after_a_failed_write_no_stamp_follows(tmp_path: Path) -> None:
    """A reader must not take a file with a hole for a whole one."""

    async def run() -> None:
        emission = Emission(tmp_path / "emission", asyncio.get_running_loop())
        kept = os.dup(emission._fd)
        os.dup2(os.open("/dev/full", os.O_WRONLY), emission._fd)
        emission.add(1, 1)
        while emission._writing is None or not emission._writing.done():
            await asyncio.sleep(0.001)
        while not emission._timer.cancelled() and emission._timer.when() > asyncio.get_running_loop().time():
            await asyncio.sleep(0.001)
        os.dup2(kept, emission._fd)  # there is room again
        await asyncio.sleep(0.05)
        emission.close()

    asyncio.run(run())
    assert len(records(tmp_path / "emission")) == 0
