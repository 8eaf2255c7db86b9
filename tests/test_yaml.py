"""YAML that people write: what the parser itself stumbles over is told like any other mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import suite
from bench.catalog.prices import read_prices
from bench.errors import SuiteError, UsageError
from bench.probes.external_config import load as read_meter
from bench.probes.values import Unavailable

VALUES = {
    "a date that is none": "2026-13-01",
    "a time that is none": "2026-12-01 25:00:00",
    "more digits than are read": "9" * 5000,
    "a tag that does not fit": "!!int x",
    "half a list": "[1",
    "a deep list": "[" * 3000 + "]" * 3000,
    "a character that may not be there": "\x00",
}


@pytest.fixture(params=[*VALUES.values()], ids=[*VALUES])
def value(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_price_file(value: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(f"devices:\n  - {{device: x, usd_per_device_hour: 1, source: s, since: {value}}}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"prices\.yaml can't be read as prices: ") as caught:
        read_prices(path)
    assert caught.value.hint


def test_a_meter(value: str, tmp_path: Path) -> None:
    path = tmp_path / "meter.yaml"
    path.write_text(f"command: [a]\nunit: W\nscope: {value}\n", encoding="utf-8")
    with pytest.raises(Unavailable, match=r"meter\.yaml: "):
        read_meter(path)


def test_a_suite(value: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\ndefaults: {{engine: mock, model: m}}\ncases: [{{batch_size: {value}}}]\n", encoding="utf-8")
    with pytest.raises(SuiteError, match=r"s\.yaml:\d+: "):
        suite.load(str(path))


def test_a_flag_with_a_value_is_text_where_it_is_nothing_else(value: str) -> None:
    (case,) = suite.from_options({"engine": "mock", "model": "m", "engine_args": (f"x={value}",)})
    assert case.engine_args["x"] == value
