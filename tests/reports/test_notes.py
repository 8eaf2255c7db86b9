"""What stands under a table: each thing once, in the words of the header, with what to do next."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.records import LoadSpec, Reason, Status, TrialRecord
from bench.reports.footer import footer
from bench.reports.notes import PLAIN, TITLES
from bench.reports.rows import rows
from bench.reports.table import table_json
from tests.factories import make_case, make_metric, make_metrics, make_record
from tests.reports.samples import ERRORS, SATURATED, THERMAL, dead_repeats

NO_POWER = make_metrics(j_per_output_tok=None)


def batch(size: int, **over: object) -> TrialRecord:
    case = make_case(load=LoadSpec(kind="closed", batch_size=size))
    return make_record(case=case, **over)  # type: ignore[arg-type]


def test_rows_with_the_same_note_share_its_line() -> None:
    under = footer(rows([batch(size, reasons=(THERMAL,) if size < 3 else (ERRORS,)) for size in (1, 2, 3)]), PLAIN)
    assert under.marks == ("[1]", "[1]", "[2]")
    assert under.notes == (
        "[1] warning (all), throttled_thermal: hw_thermal was active",
        "[2] invalid (throughput), errors: 12 of 100 requests failed",
    )


def test_a_row_may_have_several_notes_and_each_is_shared_by_itself() -> None:
    records = [batch(1, reasons=(THERMAL,)), batch(2, reasons=(THERMAL, ERRORS)), batch(4)]
    assert footer(rows(records), PLAIN).marks == ("[1]", "[1,2]", "-")


def test_what_every_row_lacks_is_said_once_without_a_number() -> None:
    under = footer(rows([batch(size, metrics=NO_POWER) for size in (1, 2, 3)]), TITLES)
    assert under.marks == ("-", "-", "-")
    assert under.notes == ("J/token: not measured",)


def test_rows_that_were_not_measured_do_not_count_for_what_every_row_lacks() -> None:
    under = footer(rows([batch(1, metrics=NO_POWER), batch(2, metrics=NO_POWER), *dead_repeats()]), TITLES)
    assert under.marks == ("[1]", "-", "-")
    assert under.notes == ("[1] failed: the engine died: signal 9", "J/token: not measured")


def test_what_some_rows_lack_has_a_number() -> None:
    under = footer(rows([batch(1, metrics=NO_POWER), batch(2)]), PLAIN)
    assert (under.marks, under.notes) == (("[1]", "-"), ("[1] j_per_output_tok: not measured",))


def test_one_code_of_two_groups_is_one_line_that_names_both() -> None:
    under = footer(rows([batch(1, status=Status.INVALID, reasons=SATURATED)]), PLAIN)
    assert under.notes == ("[1] invalid (throughput, latency), client_saturated: the client was late",)


def test_repeats_that_say_the_same_thing_say_it_once() -> None:
    def late(repeat: int, text: str) -> TrialRecord:
        return make_record(repeat=repeat, status=Status.INVALID, reasons=tuple(replace(r, message=text) for r in SATURATED))

    head = "invalid (throughput, latency), client_saturated: "
    (alike,) = rows([late(i, "late") for i in range(3)])
    assert [note.text for note in alike.notes] == [f"{head}late"]
    (some,) = rows([late(0, "late"), late(1, "late"), make_record(repeat=2)])
    assert [note.text for note in some.notes] == [f"repeats 0, 1: {head}late"]
    (unlike,) = rows([late(0, "by 2 ms"), late(1, "by 3 ms"), make_record(repeat=2)])
    assert [note.text for note in unlike.notes] == [f"{head}repeat 0: by 2 ms; repeat 1: by 3 ms"]
    two_boards = tuple(Reason(code="foreign_process", group="all", severity="warning", message=uid) for uid in ("a", "b"))
    (boards,) = rows([make_record(repeat=i, reasons=two_boards) for i in range(2)])
    assert [note.text for note in boards.notes] == ["warning (all), foreign_process: a; b"]


@pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED, Status.KILLED])
def test_a_trial_that_ended_early_tells_its_error_alone(status: Status) -> None:
    records = [replace(record, status=status, metrics=NO_POWER) for record in dead_repeats(3)]
    (row,) = rows(records)
    assert (row.status, [note.text for note in row.notes]) == (
        f"{status.value} x3",
        [f"{status.value}: the engine died: signal 9"],
    )


def test_columns_are_named_as_the_header_names_them() -> None:
    table = rows([make_record(metrics=make_metrics(j_per_output_tok=None, tpot_ms=None))])
    assert footer(table, PLAIN).notes == ("tpot_p50_ms, j_per_output_tok: not measured",)
    assert footer(table, TITLES).notes == ("TPOT p50 ms, J/token: not measured",)
    assert table_json(table)["rows"][0]["notes"] == ["TPOT p50 ms, J/token: not measured"]


def test_what_helps_stands_last_unless_that_is_said_elsewhere() -> None:
    busy = rows([batch(1, status=Status.INVALID, reasons=SATURATED)])
    assert footer(busy, PLAIN).lines[-1].startswith("next: stop other work")
    assert footer(busy, PLAIN, again=None).following == ()


def test_a_wide_interval_says_what_to_do() -> None:
    unlike = [make_record(repeat=i, metrics=make_metrics(output_tok_per_s=speed)) for i, speed in enumerate((1.0, 4000.0))]
    (row,) = rows(unlike)
    assert "[wide] 2 repeats differ too much for an interval (factor over 10): run more" in footer([row], PLAIN).meanings
    assert any(line.startswith("±? 2 repeats") for line in footer([row], TITLES, full_intervals=False).meanings)
    vague = make_metric("j_per_output_tok", 0.25, low=-0.1, high=0.9)
    under = footer(rows([make_record(metrics=make_metrics(j_per_output_tok=vague))]), PLAIN)
    assert under.meanings[-1].startswith("[wide] j_per_output_tok of one trial")


def test_an_empty_table_has_nothing_under_it() -> None:
    assert footer([], PLAIN).lines == ()
