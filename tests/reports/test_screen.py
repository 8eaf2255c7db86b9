"""The table on a terminal: whatever the width, every column is there and no number is cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from bench.records import TrialRecord
from bench.reports.notes import TITLES
from bench.reports.table import summary
from tests.factories import make_case, make_metrics, make_record
from tests.reports.samples import a_bit_of_everything, a_first_evening

WIDE_NUMBERS = make_metrics(output_tok_per_s=123456.7, ttft_ms=12345.6)


def shown(records: list[TrialRecord], width: int) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(summary(records))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_table_of_a_terminal_is_stable(width: int) -> None:
    text = shown([*a_bit_of_everything(), *a_first_evening()], width)
    assert text == (Path(__file__).parent / f"screen_{width}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 92, 95, 100, 120, 140, 200])
def test_no_width_cuts_a_number_or_loses_a_column(width: int) -> None:
    long = make_case(model="a-model/with-a-very-long-name-that-must-fold-somewhere", engine="llamacpp")
    text = shown([*a_bit_of_everything(), *a_first_evening(), make_record(case=long, metrics=WIDE_NUMBERS)], width)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "…" not in text
    for part in ("403.0", "400.0!", "123457", "12346", "18518", "0.2500!", "valid x3", "(p90)", "(!)"):
        assert part in text, part
    for title in TITLES.values():
        assert all(word in text for word in title.split()), title


@settings(max_examples=30, deadline=None)
@given(st.integers(min_value=60, max_value=260))
def test_every_number_is_on_one_line_at_any_width(width: int) -> None:
    text = shown([*a_bit_of_everything(), make_record(run_id="run-2", metrics=WIDE_NUMBERS)], width)
    assert {"403.0", "50.99", "123457", "18518", "400.0!", "0.2500!"} <= set(text.replace("\n", " ").split())


@pytest.mark.parametrize("width", [100, 110, 120])
def test_a_word_that_fits_is_not_broken(width: int) -> None:
    words = set(shown(a_bit_of_everything(), width).replace("\n", " ").split())
    assert {"Accelerator", "llamacpp", "80GB", "poisson", "invalid"} <= words


def test_the_interval_is_in_full_where_there_is_room() -> None:
    records = a_bit_of_everything()
    assert "[395.6, 410.5]" in shown(records, 180)
    assert "±1.9%" not in shown(records, 180)
    assert "±1.9%" in shown(records, 100)
    assert "±1.9%" in shown(records, 80)


def test_a_repeat_that_is_not_valid_turns_the_status_yellow() -> None:
    console = Console(width=120, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(summary(a_first_evening()))
    text = captured.get()
    assert "\x1b[33m2/3 valid (!)" in text
    assert "\x1b[31mfailed x3" in text
    assert "\x1b[32mvalid x2" in text


@pytest.mark.parametrize("width", [80, 100])
def test_runs_are_told_apart_and_named_in_full(width: int) -> None:
    ids = ("20261130T173005Z-006931", "20261130T173036Z-f3b358")
    text = " ".join(shown([make_record(run_id=run_id) for run_id in ids], width).split())
    assert f"runs {', '.join(ids)}" in text
    assert all(f"run {run_id.rpartition('-')[2]}" in text or f"run {run_id}" in text for run_id in ids)


def test_a_failed_row_is_its_names_and_its_error_alone() -> None:
    text = shown(a_first_evening(), 80)
    block = text[text.index("gone") :].splitlines()
    assert block[:3] == ["gone, q4_1, mock, batch 8, 64/32", "  failed x3 [2]", block[2]]
    assert "QPS" not in block[2]
    assert text.count("signal 9") == 1
    assert "client_saturated" in text  # of the disturbed repeat alone
    assert text.count("client_saturated") == 1


@pytest.mark.parametrize("width", [20, 100, 200])
def test_an_empty_table_can_be_shown(width: int) -> None:
    assert all(len(line) <= width for line in shown([], width).splitlines())
