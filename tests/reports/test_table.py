"""The table: what people choose by, with nothing invalid that looks valid and nothing missing without its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from bench.printable import printable
from bench.records import LoadSpec, Metric, Reason, Stage, Status, TrialRecord
from bench.reports.notes import TITLES
from bench.reports.numbers import Number
from bench.reports.rows import Row, device_label, load_label, newest, rows
from bench.reports.table import plain_table, summary, summary_text, table_json
from bench.reports.text import cell, interval_text, number_text, spread_text
from tests.factories import make_case, make_device, make_engine, make_host, make_metric, make_metrics, make_record
from tests.reports.samples import ERRORS, a_bit_of_everything, a_first_evening

MEMORY = Reason(code="shared_device", group="memory", severity="invalid", message="another process is on the board")


def notes_of(row: Row) -> list[str]:
    return [note.spelled(TITLES) for note in row.notes]


@pytest.mark.parametrize(("name", "records"), [("table", a_bit_of_everything()), ("evening", a_first_evening())])
def test_the_plain_table_is_stable(name: str, records: list[TrialRecord]) -> None:
    text = summary_text(records)
    assert text + "\n" == (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8")
    assert summary_text(list(reversed(records))) == text


def test_every_column_begins_at_one_place() -> None:
    header, *lines = summary_text([*a_bit_of_everything(), *a_first_evening()]).splitlines()[:8]
    assert header.split()[6] == "case"
    for title in header.split():
        at = header.index(title)
        assert all(line[at - 1 : at] in (" ", "") and line[at : at + 1] != " " for line in lines), title


def test_an_invalid_trial_marks_all_its_numbers_and_a_bad_group_only_its_own() -> None:
    (bad,) = rows([make_record(status=Status.INVALID, reasons=(ERRORS,))])
    assert not any(number.valid for number in bad.numbers.values())
    (memory,) = rows([make_record(reasons=(MEMORY,))])
    assert {key for key, number in memory.numbers.items() if not number.valid} == {"memory"}
    assert "1.500!" in plain_table([memory])


def test_valid_repeats_alone_are_pooled_where_there_are_any() -> None:
    good = [make_record(repeat=i, metrics=make_metrics(output_tok_per_s=400.0)) for i in (0, 1)]
    bad = make_record(repeat=2, status=Status.INVALID, reasons=(ERRORS,), metrics=make_metrics(output_tok_per_s=9.0))
    (row,) = rows([*good, bad])
    output = row.numbers["output"]
    assert (round(output.value or 0, 9), output.n, output.valid, row.status) == (400.0, 2, True, "2/3 valid")
    assert notes_of(row) == ["repeat 2: invalid (throughput), errors: 12 of 100 requests failed"]
    assert "2/3 valid (!)" in plain_table([row])
    assert "(!) some repeats are not valid: the numbers are those of the others" in plain_table([row])


def test_a_repeat_that_failed_before_its_configuration_was_known_joins_the_others() -> None:
    lost = make_record(repeat=1, status=Status.FAILED, error="no start", metrics={}, config_id=None, engine=None)
    (row,) = rows([make_record(repeat=0), lost])
    assert row.status == "1/2 valid"
    assert len(rows([make_record(repeat=0), make_record(repeat=2, config_id="other"), lost])) == 3


@pytest.mark.parametrize(
    "over",
    [
        {"config_id": "other"},
        {"host": make_host(host_id="other")},
        {"run_id": "other"},
        {"case": make_case(seed=1)},
    ],
)
def test_only_repeats_of_one_thing_are_pooled(over: dict[str, object]) -> None:
    assert len(rows([make_record(repeat=0), make_record(repeat=1, **over)])) == 2  # type: ignore[arg-type]


def test_missing_numbers_say_why() -> None:
    few = make_metric("ttft_ms", 50.0, p99=None, n=20)
    metrics = make_metrics(ttft_ms=few, j_per_output_tok=Metric(name="j_per_output_tok", unit="J/tok", reason="no sensor"))
    del metrics["tpot_ms"]
    (row,) = rows([make_record(metrics=metrics)])
    assert notes_of(row) == ["TTFT p99 ms: 20 samples are too few for a p99", "TPOT p50 ms: not recorded", "J/token: no sensor"]
    assert row.numbers["ttft_p99"].value is None
    assert row.numbers["energy"].value is None
    text = plain_table([row])
    assert "tpot_p50_ms: not recorded\nj_per_output_tok: no sensor" in text


def test_a_measured_zero_is_not_missing() -> None:
    (row,) = rows([make_record(repeat=i, metrics=make_metrics(requests_per_s=0.0)) for i in range(2)])
    assert row.numbers["qps"].value == 0.0
    assert table_json([row])["rows"][0]["numbers"]["qps"]["value"] == 0.0


def test_a_number_of_fewer_repeats_says_so() -> None:
    (row,) = rows([make_record(repeat=0), make_record(repeat=1, metrics=make_metrics(j_per_output_tok=None))])
    assert notes_of(row) == ["J/token: only 1 of 2 repeats (not measured)"]
    assert row.numbers["energy"].n == 1


def test_a_single_trial_has_the_interval_of_its_energy_only() -> None:
    energy = make_metric("j_per_output_tok", 0.25, low=0.24, high=0.27)
    (row,) = rows(
        [
            make_record(
                metrics=make_metrics(j_per_output_tok=energy, output_tok_per_s=make_metric("output_tok_per_s", 1.0, low=0.9))
            )
        ]
    )
    assert (row.numbers["energy"].low, row.numbers["energy"].high) == (0.24, 0.27)
    assert row.numbers["output"].low is None


def test_newest_shows_the_last_run_of_each_case_but_no_failure_hides_a_good_one() -> None:
    def trial(run_id: str, at: int, status: Status = Status.VALID) -> TrialRecord:
        return make_record(run_id=run_id, repeat=at, status=status)

    def kept(*trials: TrialRecord) -> list[str]:
        return [record.key.run_id for record in newest(list(trials))]

    assert kept(trial("a", 0), trial("b", 1)) == ["b"]
    assert kept(trial("a", 0), trial("b", 1, Status.FAILED)) == ["a", "b"]
    assert kept(trial("a", 0, Status.FAILED), trial("b", 1)) == ["b"]
    assert kept(trial("a", 0, Status.FAILED), trial("b", 1, Status.FAILED)) == ["b"]
    assert kept(trial("a", 0), trial("b", 1), trial("b", 2, Status.FAILED)) == ["b", "b"]
    assert kept() == []


def test_a_trial_that_was_measured_again_is_in_no_pooled_row_but_among_the_trials() -> None:
    lost = make_record(repeat=1, status=Status.KILLED, config_id=None)
    again = replace(make_record(repeat=1), key=replace(lost.key, attempt=2, trial_id="again"))
    records = [make_record(repeat=0), lost, again]
    (row,) = rows(records)
    assert [trial.key.trial_id for trial in row.trials] == [records[0].key.trial_id, "again"]
    assert row.status == "valid x2"
    assert len(rows(records, pooled=False)) == 3


def test_rows_of_trials_name_trial_and_run() -> None:
    records = [make_record(run_id=run_id, repeat=i) for run_id in ("a", "b") for i in range(2)]
    header, *lines = plain_table(rows(records, pooled=False)).splitlines()[:5]
    assert header.split()[-2:] == ["run", "trial"]
    assert {tuple(line.split()[-2:]) for line in lines} == {(r.key.run_id, r.key.trial_id) for r in records}
    assert plain_table(rows(records)).splitlines()[0].split()[-1] == "run"


def test_an_empty_table_has_its_header() -> None:
    assert summary_text([]).split()[0] == "model"


def test_hostile_names_stay_on_their_line() -> None:
    case = make_case(model="a\x1b[31mb\nc\u202ed", engine="x\ty")
    text = summary_text([make_record(case=case)])
    assert "a\\x1b[31mb\\nc\\u202ed" in text
    assert "\x1b" not in text
    console = Console(width=100, force_terminal=True, record=True)
    console.print(summary([make_record(case=make_case(model="[red]x[/]"))]))
    assert "[red]x[/]" in console.export_text().replace("\n", "")


def test_table_json_is_json() -> None:
    data = json.loads(json.dumps(table_json(rows(a_bit_of_everything())), allow_nan=False))
    assert [row["status"] for row in data["rows"]] == ["valid", "failed", "valid x3", "invalid"]
    assert data["rows"][0]["numbers"]["ttft_p50"]["metric"] == "ttft_scheduled_ms"
    assert data["rows"][2]["numbers"]["output"]["n"] == 3


@pytest.mark.parametrize(
    ("over", "label"),
    [
        ({}, "Example Accelerator"),
        ({"devices": ()}, "Example CPU"),
        ({"devices": (), "host": make_host(cpu_model=None)}, "CPU"),
        ({"devices": (make_device(scope="cpu_package", name="package 0"),)}, "Example CPU"),
        ({"devices": (), "engine": make_engine(pids=())}, "endpoint"),
        ({"devices": (), "engine": None}, "-"),
        ({"devices": tuple(make_device(uid=str(i)) for i in range(4))}, "4x Example Accelerator"),
    ],
)
def test_device_labels(over: dict[str, object], label: str) -> None:
    assert device_label(make_record(**over)) == label  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("load", "label"),
    [
        (LoadSpec(kind="closed", batch_size=8), "batch 8"),
        (LoadSpec(kind="closed", batch_size=8, num_prompts=100), "batch 8 n=100"),
        (LoadSpec(kind="closed", batch_size=8, stages=(Stage(start=1, end=8, duration_s=2.0),)), "batch 1-8"),
        (LoadSpec(kind="open", request_rate=2.5, arrivals="poisson"), "2.5/s poisson"),
        (LoadSpec(kind="open", arrivals="constant", stages=(Stage(start=0.5, end=3, duration_s=2.0),)), "0.5-3/s"),
        (LoadSpec(kind="open", arrivals="trace", speed=2.0), "trace x2"),
        (LoadSpec(kind="open", arrivals="burst", num_prompts=64), "burst n=64"),
    ],
)
def test_load_labels(load: LoadSpec, label: str) -> None:
    assert load_label(load) == label


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_numbers_keep_four_digits_without_exponent(value: float) -> None:
    text = number_text(value)
    assert "e" not in text
    assert abs(float(text) / value - 1) <= 0.0005000001


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (-1.5, "-1.500"), (0.25031, "0.2503"), (9999.96, "10000"), (1e-9, "1.000e-09")]
)
def test_number_texts(value: float, text: str) -> None:
    assert number_text(value) == text


@given(st.text())
def test_printable_is_one_line_and_has_no_controls(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() or all(c.isprintable() or not c.isascii() for c in shown)
    assert len(shown.splitlines()) <= 1


def numbered(low: float | None, high: float | None, value: float = 1.0, n: int = 2) -> Number:
    return Number(metric="requests_per_s", field="value", value=value, low=low, high=high, n=n)


@pytest.mark.parametrize(
    ("low", "high", "interval", "spread"),
    [
        (None, None, "", ""),
        (0.9, 1.2, "[0.9000, 1.200]", "±20.0%"),
        (0.1, 1.0, "[0.1000, 1.000]", "±90.0%"),
        (0.00004015, 46329.0, "[wide]", "±?"),
        (-0.5, 2.5, "[wide]", "±?"),
        (0.0, 1.0, "[wide]", "±?"),
        (None, 1.2, "[-, 1.200]", ""),
        (-0.1, None, "[0, -]", ""),
    ],
)
def test_an_interval_says_something_or_says_that_it_is_wide(
    low: float | None, high: float | None, interval: str, spread: str
) -> None:
    assert interval_text(numbered(low, high)) == interval
    assert spread_text(numbered(low, high)) == spread


def test_a_measured_zero_has_an_interval_that_is_not_wide() -> None:
    assert interval_text(numbered(0.0, 0.0, value=0.0)) == "[0, 0]"


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=4))
def test_no_end_of_an_interval_is_shown_below_zero(values: list[float]) -> None:
    energy = [make_metric("j_per_output_tok", value, low=value - 1e3, high=value + 1.0) for value in values]
    records = [make_record(repeat=i, metrics=make_metrics(j_per_output_tok=metric)) for i, metric in enumerate(energy)]
    (row,) = rows(records)
    assert "-" not in cell(row, "energy")
    data = table_json([row])["rows"][0]["numbers"]["energy"]
    assert (data["low"], data["high"]) == (row.numbers["energy"].low, row.numbers["energy"].high)


def test_a_withheld_p99_shows_the_p90_and_leaves_the_data_as_it_was() -> None:
    records = [make_record(metrics=make_metrics(ttft_ms=make_metric("ttft_ms", 50.0, p99=None, n=26)))]
    (row,) = rows(records)
    text = plain_table([row])
    assert "60.00 (p90)" in text
    assert "(p90) ttft_p99_ms: a trial of under 100 samples has no p99, this is its p90" in text
    assert "too few" not in text
    number = table_json([row])["rows"][0]["numbers"]["ttft_p99"]
    assert (number["field"], number["value"], number["reason"]) == ("p99", None, "26 samples are too few for a p99")


def test_an_invalid_stand_in_is_marked_as_well() -> None:
    few = make_metrics(ttft_ms=make_metric("ttft_ms", 50.0, p99=None, n=26))
    text = plain_table(rows([make_record(status=Status.INVALID, reasons=(ERRORS,), metrics=few)]))
    assert "60.00! (p90)" in text


def test_a_p99_that_is_missing_for_another_reason_has_no_stand_in() -> None:
    odd = make_metric("ttft_ms", 50.0, p99=None, reason="p99: 4 of 200 requests never succeeded")
    text = plain_table(rows([make_record(metrics=make_metrics(ttft_ms=odd))]))
    assert "(p90)" not in text
    assert "ttft_p99_ms: p99: 4 of 200 requests never succeeded" in text


def test_where_there_is_no_p90_either_the_note_says_why_there_is_no_p99() -> None:
    (row,) = rows([make_record(metrics=make_metrics(ttft_ms=make_metric("ttft_ms", 50.0, p90=None, p99=None, n=2)))])
    text = plain_table([row])
    assert "(p90)" not in text
    assert "ttft_p99_ms: 2 samples are too few for a p99" in text
