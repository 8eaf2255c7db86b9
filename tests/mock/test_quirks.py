"""Names, values and combinations of quirks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.mock.quirks import EXCLUSIVE, SPECS, TABLE, list_quirks, parse_quirks

EXAMPLES = {
    "split-bytes": "random",
    "status": "500:0.05",
    "stall": "10:200",
}


def test_names_are_unique_and_every_quirk_says_what_it_does() -> None:
    assert len(SPECS) == len(TABLE)
    assert all(text for _, text in list_quirks())
    assert all(name in SPECS for group in EXCLUSIVE for name in group)


def test_the_page_about_the_mock_engine_lists_every_quirk() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mock.md").read_text(encoding="utf-8")
    assert [name for name in SPECS if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", list(SPECS))
def test_every_quirk_parses_as_it_is_listed(name: str) -> None:
    spec = SPECS[name]
    text = name if spec.parse is None else f"{name}={EXAMPLES.get(name, '2')}"
    assert name in parse_quirks([text])
    if spec.form.startswith("["):
        assert name in parse_quirks([name])


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.parse is not None])
@pytest.mark.parametrize("value", ["", "x", "-1", "nan"])
def test_a_value_that_makes_no_sense_is_refused_with_the_way_to_write_it(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_quirks([f"{name}={value}"])
    assert name in str(caught.value)
    assert f"--quirk {name}" in str(caught.value.hint)


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.form.startswith("=")])
def test_a_missing_value_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="needs a value"):
        parse_quirks([name])


def test_a_flag_takes_no_value() -> None:
    with pytest.raises(UsageError, match="takes no value"):
        parse_quirks(["crlf=1"])


@pytest.mark.parametrize(
    ("wrong", "right"), [("role-nul", "role-null"), ("usage_late=3", "usage-late"), ("spilt-bytes", "split-bytes")]
)
def test_an_unknown_quirk_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{right}'"):
        parse_quirks([wrong])


@pytest.mark.parametrize("pair", [("http10", "trailers"), ("no-usage", "wrong-usage"), ("role-null", "no-role")])
def test_quirks_that_exclude_each_other_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="exclude"):
        parse_quirks(pair)


def test_values_come_in_their_units() -> None:
    quirks = parse_quirks(["usage-late=1.5", "status=429:0.25", "stall=3:2", "cached=7"])
    assert quirks.ms_ns("usage-late") == 1_500_000
    assert quirks.status == (429, 0.25)
    assert quirks.stall == (3, 2_000_000)
    assert quirks.count("cached") == 7
    assert quirks.count("truncate") is None
    assert quirks.ms_ns("slow-headers") == 0
