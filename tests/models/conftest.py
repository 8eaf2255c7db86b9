"""A hub for each test, and a store that knows nothing of the person's own settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.clock import FakeClock
from bench.models import ModelStore
from tests.models.hub_server import Hub, Script, serve
from tests.models.samples import repository

MakeStore = Callable[..., ModelStore]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve(Script(files=repository())) as running:
        yield running


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def make_store(tmp_path: Path, hub: Hub, notes: list[str]) -> MakeStore:
    """A store on a temporary cache and the test's hub; keyword arguments are further variables of its environment."""

    def make(free_b: int = 1 << 40, hash_limit_b: int = 1 << 33, **env: str) -> ModelStore:
        settings = {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": hub.url, **env}
        return ModelStore(
            tmp_path / "cache",
            env=settings,
            note=notes.append,
            clock=FakeClock(),
            free_b=lambda _: free_b,
            hash_limit_b=hash_limit_b,
        )

    return make


def no_progress(what: str, done: int, total: int | None) -> None:
    """A progress callback that shows nothing."""
