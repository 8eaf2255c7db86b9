"""Every test of runners runs in a process tree of its own name, and must leave nothing of it behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.testing.processes import named_tree


@pytest.fixture(autouse=True)
def own_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is asked of scripted engines is not kept in the user's cache; real engines have their models in it."""
    if request.node.get_closest_marker("engine") is None:
        monkeypatch.setenv("BENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def tree_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from named_tree(monkeypatch)
