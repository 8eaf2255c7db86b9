"""Asking an engine for its counters while a load runs."""

from __future__ import annotations

import math
import threading
from pathlib import Path

from bench.clock import SYSTEM
from bench.records import Window
from bench.session import engine_watch
from bench.session.engine_watch import EngineWatch
from tests.session.fakes import FakeEngine, a_case


class Counting(FakeEngine):
    """Tells how often it was asked, and rings when it was asked `enough` times."""

    def __init__(self, tmp_path: Path, enough: int = 0) -> None:
        super().__init__(case=a_case(), events=[], pids=(1,), log_path=str(tmp_path / "log"))
        self.asked, self.enough, self.rang = 0, enough, threading.Event()

    def server_metrics(self, window: Window | None = None) -> dict[str, float]:
        self.asked += 1
        if self.asked >= self.enough:
            self.rang.set()
        return {"requests_running": float(self.asked), **({"kv_cache_util": math.nan} if self.asked % 2 else {})}


def test_it_is_asked_again_and_again_and_once_more_at_the_end(tmp_path: Path) -> None:
    engine = Counting(tmp_path, enough=3)
    with EngineWatch(engine, SYSTEM, {"requests_running": 0.0}, period_s=0.01) as watch:
        assert engine.rang.wait(30)
        found = watch.samples()
    running = found.counters["requests_running"]
    assert running == tuple(float(number) for number in range(engine.asked + 1))
    assert len(running) == len(found.at_ns) >= 5
    assert list(found.at_ns) == sorted(found.at_ns)
    assert set(found.counters["kv_cache_util"]) == {None}


def test_an_engine_without_counters_is_not_asked(tmp_path: Path) -> None:
    engine = Counting(tmp_path)
    with EngineWatch(engine, SYSTEM, {}, period_s=0.001) as watch:
        assert watch.samples().at_ns == ()
    assert engine.asked == 0


def test_a_dead_engine_is_not_asked_once_more(tmp_path: Path) -> None:
    engine = Counting(tmp_path)
    engine.dead = "killed"
    with EngineWatch(engine, SYSTEM, {"requests_running": 0.0}, period_s=60.0) as watch:
        assert len(watch.samples().at_ns) == 1
    assert engine.asked == 0


def test_a_long_night_keeps_a_bounded_number(tmp_path: Path) -> None:
    engine = Counting(tmp_path, enough=3 * engine_watch.MOST_SAMPLES)
    with EngineWatch(engine, SYSTEM, {"requests_running": 0.0}, period_s=1e-6) as watch:
        assert engine.rang.wait(60)
        found = watch.samples()
    assert len(found.at_ns) <= engine_watch.MOST_SAMPLES + 1
    assert found.counters["requests_running"][0] == 0.0
    assert found.counters["requests_running"][-1] == float(engine.asked)
