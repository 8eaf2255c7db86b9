"""The table: what people choose by, with nothing invalid that looks valid and nothing missing without its reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.records import LoadSpec, Metric, Reason, Status, TrialRecord
from bench.reports.rows import device_label, load_label, newest, rows
from bench.reports.table import plain_table, rich_table, summary, summary_text, table_json
from bench.reports.text import number_text, printable
from tests.factories import make_case, make_device, make_engine, make_host, make_metric, make_metrics, make_record

ERRORS = Reason(code="errors", group="throughput", severity="invalid", message="12 of 100 requests failed")
THERMAL = Reason(code="throttled_thermal", group="all", severity="warning", message="hw_thermal was active")
MEMORY = Reason(code="shared_device", group="memory", severity="invalid", message="another process is on the board")


def three_repeats() -> list[TrialRecord]:
    return [make_record(repeat=i, metrics=make_metrics(output_tok_per_s=400.0 + 3 * i, ttft_ms=50.0 + i)) for i in range(3)]


def a_bit_of_everything() -> list[TrialRecord]:
    open_loop = make_case(model="big", engine="llamacpp", load=LoadSpec(kind="open", request_rate=5.0, arrivals="poisson"))
    failing = make_case(name="failing", load=LoadSpec(kind="closed", batch_size=64))
    dead = make_case(name="dead", model="gone")
    boards = tuple(make_device(uid=f"GPU-{i}", name="Example 80GB", index=i) for i in range(2))
    return [
        *three_repeats(),
        make_record(case=open_loop, devices=boards, metrics=make_metrics(ttft_scheduled_ms=80.0), reasons=(THERMAL,)),
        make_record(case=failing, status=Status.INVALID, reasons=(ERRORS,)),
        make_record(
            case=dead,
            status=Status.FAILED,
            error="the engine died: signal 9\nlog",
            metrics={},
            config_id=None,
            engine=None,
            devices=(),
        ),
    ]


def test_the_plain_table_is_stable() -> None:
    text = summary_text(a_bit_of_everything())
    assert text + "\n" == (Path(__file__).parent / "table.txt").read_text(encoding="utf-8")
    assert summary_text(list(reversed(a_bit_of_everything()))) == text


def test_every_column_begins_at_one_place() -> None:
    header, *lines = summary_text(a_bit_of_everything()).splitlines()[:5]
    for title in header.split():
        at = header.index(title)
        assert all(line[at - 1 : at] in (" ", "") and line[at : at + 1] != " " for line in lines), title


def test_the_rich_table_fits_a_hundred_columns_and_cuts_no_number() -> None:
    console = Console(width=100, force_terminal=True, color_system=None, record=True)
    long = make_case(model="a-model/with-a-very-long-name-that-must-fold-somewhere", engine="llamacpp")
    console.print(
        summary(
            [*a_bit_of_everything(), make_record(case=long, metrics=make_metrics(output_tok_per_s=123456.7, ttft_ms=12345.6))]
        )
    )
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for part in ("403.0", "±1.9%", "400.0!", "123457", "12346", "18518", "0.2500!", "valid x3", "[3]", "2x Example"):
        assert part in text


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
    assert row.notes == ("repeat 2: invalid (throughput), errors: 12 of 100 requests failed",)


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
    assert row.notes == ("TTFT p99 ms: 20 samples are too few for a p99", "TPOT p50 ms: not recorded", "J/token: no sensor")
    assert row.numbers["ttft_p99"].value is None
    assert row.numbers["energy"].value is None
    text = plain_table([row])
    assert "[1] J/token: no sensor" in text


def test_a_measured_zero_is_not_missing() -> None:
    (row,) = rows([make_record(repeat=i, metrics=make_metrics(requests_per_s=0.0)) for i in range(2)])
    assert row.numbers["qps"].value == 0.0
    assert table_json([row])["rows"][0]["numbers"]["qps"]["value"] == 0.0


def test_a_number_of_fewer_repeats_says_so() -> None:
    (row,) = rows([make_record(repeat=0), make_record(repeat=1, metrics=make_metrics(j_per_output_tok=None))])
    assert row.notes == ("J/token: only 1 of 2 repeats (not measured)",)
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


def test_rows_of_trials_name_trial_and_run() -> None:
    records = [make_record(run_id=run_id, repeat=i) for run_id in ("a", "b") for i in range(2)]
    header, *lines = plain_table(rows(records, pooled=False)).splitlines()[:5]
    assert header.split()[-2:] == ["run", "trial"]
    assert {tuple(line.split()[-2:]) for line in lines} == {(r.key.run_id, r.key.trial_id) for r in records}
    assert plain_table(rows(records)).splitlines()[0].split()[-1] == "run"


def test_an_empty_table_has_its_header() -> None:
    assert summary_text([]).split()[0] == "model"
    Console(width=100, quiet=True).print(rich_table([]))


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
        (LoadSpec(kind="closed", batch_size=8), "8"),
        (LoadSpec(kind="closed", batch_size=8, num_prompts=100), "8 n=100"),
        (LoadSpec(kind="open", request_rate=2.5, arrivals="poisson"), "2.5/s"),
        (LoadSpec(kind="open", arrivals="burst", num_prompts=64), "inf n=64"),
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
