"""kill -9 of whoever writes the database, at any moment: nothing lost, nothing doubled, and it opens.

Proof: `pytest -m proof -s tests/store/test_kill.py`, in pieces; its output is in `docs/proof/`.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from collections import Counter
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from bench.store import Lab
from bench.store.sql import ask
from tests.factories import make_record, save_trial

TRIALS = 40
AWAY = "away"
COUNTS = "SELECT count(*), count(DISTINCT trial_id), (SELECT count(*) FROM metrics), (SELECT count(*) FROM shards) FROM trials"


def ingest_for_ever(results: Path, shard: Path, ready: Event) -> None:
    """Take a trial away, bring it back, and build the whole of it, until killed."""
    lab = Lab(results)
    ready.set()
    while True:
        shard.rename(results / AWAY)
        lab.refresh()
        (results / AWAY).rename(shard)
        lab.ingest()
        lab.database.unlink()
        lab.ingest()


def trials_in(lab: Lab) -> int:
    """How many trials there are, each once, with all that belongs to it."""
    ((trials, *others),) = ask(lab, COUNTS).rows
    assert others == [trials, trials * 6, trials]
    return int(trials)


@pytest.fixture(scope="module")
def fork_server() -> ForkServerContext:
    """Starts processes that have DuckDB loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["duckdb", "numpy", "bench.store", "tests.factories"])
    return context


@pytest.mark.parametrize(
    ("seed", "moments"),
    [(0, 10), *(pytest.param(seed, 50, marks=[pytest.mark.proof, pytest.mark.timeout(3600)]) for seed in (1, 2, 3, 4))],
)
def test_kill_nine_at_any_moment_loses_and_doubles_nothing(
    tmp_path: Path, fork_server: ForkServerContext, capsys: pytest.CaptureFixture[str], seed: int, moments: int
) -> None:
    shard = [save_trial(tmp_path, make_record(repeat=repeat)) for repeat in range(TRIALS)][-1]
    lab, chance, found = Lab(tmp_path), random.Random(seed), Counter[str]()
    for _ in range(moments):
        ready = fork_server.Event()
        child = fork_server.Process(target=ingest_for_ever, args=(tmp_path, shard, ready))
        child.start()
        assert ready.wait(60)
        time.sleep(chance.random() * 0.5)
        child.kill()
        child.join()
        assert child.exitcode == -9
        copying = (tmp_path / ".lab.duckdb.new").exists()
        found["while a copy was being written" if copying else "between copies"] += 1
        found["with a database" if lab.database.exists() else "with none"] += 1
        if lab.database.exists():
            assert trials_in(lab) in (TRIALS - 1, TRIALS)
        if not shard.exists():
            (tmp_path / AWAY).rename(shard)
        (lab.refresh if chance.random() < 0.5 else lab.ingest)()
        assert trials_in(lab) == TRIALS
        assert not (tmp_path / ".lab.duckdb.new").exists()
        if chance.random() < 0.5:
            lab.database.unlink()  # the next one begins with none
    if moments >= 50:  # of a few, all may miss it on a slow machine
        assert found["while a copy was being written"] > moments / 10, "the moments missed what they are about"
    told = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
    with capsys.disabled():
        sys.stdout.write(f"\n{moments} kills (seed {seed}) over {TRIALS} trials, none lost, none doubled: {told}\n")
