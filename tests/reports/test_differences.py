"""Rows that would read the same say what tells them apart, and nothing more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.records import DataSpec, LengthSpec, Sampling, Slo, TrialRecord
from bench.reports.differences import differences
from bench.reports.rows import Row, rows
from bench.reports.table import plain_table, table_json
from tests.factories import make_case, make_engine, make_host, make_record


def told(*records: TrialRecord, pooled: bool = True) -> list[str]:
    return differences(rows(list(records), pooled=pooled), lambda row: row.case.model)


def of_cases(*over: dict[str, Any]) -> list[str]:
    return told(*(make_record(run_id=f"run-{i}", case=make_case(**one)) for i, one in enumerate(over)))


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        ({"engine_args": {"threads": 2, "fa": True}}, {"engine_args": {"threads": 4, "fa": True}}, {"threads=2", "threads=4"}),
        ({"engine_args": {}}, {"engine_args": {"fa": True}}, {"fa=unset", "fa=true"}),
        ({"labels": {"room": "a"}, "seed": 1}, {"labels": {"room": "b"}, "seed": 1}, {"room=a", "room=b"}),
        ({"sampling": Sampling(temperature=0.5)}, {"sampling": Sampling(temperature=1.0)}, {"temperature=0.5", "temperature=1"}),
        (
            {"input_tokens": LengthSpec(mean=64)},
            {"input_tokens": LengthSpec(mean=64, dist="uniform", spread=0.2)},
            {
                "input_tokens.dist=fixed, input_tokens.spread=0",
                "input_tokens.dist=uniform, input_tokens.spread=0.2",
            },
        ),
        ({"data": DataSpec(sha256="a" * 64)}, {"data": DataSpec(sha256="b" * 64)}, {f"sha256={'a' * 12}", f"sha256={'b' * 12}"}),
        ({"slos": (Slo(metric="ttft", limit_ms=200.0),)}, {"slos": ()}, {"slos=ttft 200", "slos=none"}),
        ({"duration_s": 10.0}, {"duration_s": 20.0}, {"duration_s=10", "duration_s=20"}),
    ],
)
def test_settings_that_differ_are_named(one: dict[str, Any], other: dict[str, Any], texts: set[str]) -> None:
    assert set(of_cases(one, other)) == texts


def test_a_label_and_an_argument_of_one_name_are_kept_apart() -> None:
    assert set(
        of_cases(
            {"labels": {"threads": "2"}, "engine_args": {"threads": 1}},
            {"labels": {"threads": "2"}, "engine_args": {"threads": 3}},
        )
    ) == {"engine_args.threads=1", "engine_args.threads=3"}


def test_two_dimensions_are_both_named_and_other_rows_say_nothing() -> None:
    grid: list[dict[str, Any]] = [{"engine_args": {"a": a, "b": b}} for a in (1, 2) for b in (1, 2)]
    assert set(of_cases(*grid, {"model": "other"})) == {"a=1, b=1", "a=1, b=2", "a=2, b=1", "a=2, b=2", ""}


@pytest.mark.parametrize(
    ("over", "text"),
    [
        ({"case": make_case(name="second")}, "case=second"),
        ({"engine": make_engine(version="2.0"), "config_id": "other"}, "engine_version=2.0"),
        ({"host": make_host(host_id="another-host")}, "host=another-host"),
        ({"config_id": "f" * 16}, f"config={'f' * 12}"),
    ],
)
def test_one_case_is_told_apart_by_what_else_differs(over: dict[str, Any], text: str) -> None:
    assert text in told(make_record(run_id="a"), make_record(run_id="b", **over))


def test_single_trials_of_a_matrix_have_their_settings_and_their_repeat() -> None:
    cases = [make_case(engine_args={"threads": threads}) for threads in (2, 4)]
    texts = told(*(make_record(case=case, repeat=i) for case in cases for i in range(2)), pooled=False)
    assert set(texts) == {f"threads={threads}, repeat={i}" for threads in (2, 4) for i in range(2)}


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=6, unique_by=json.dumps))
def test_rows_that_read_the_same_never_do_so_in_the_end(arguments: list[dict[str, Any]]) -> None:
    texts = of_cases(*({"engine_args": one} for one in {json.dumps(one, sort_keys=True): one for one in arguments}.values()))
    assert len(set(texts)) == len(texts)


def test_the_table_has_the_column_only_where_it_is_needed_and_the_data_always() -> None:
    def table(*threads: int) -> list[Row]:
        return rows([make_record(case=make_case(name=f"t{n}", engine_args={"threads": n})) for n in threads])

    assert "case" not in plain_table(table(2)).splitlines()[0].split()
    header, first, second, *_ = (line.split() for line in plain_table(table(2, 4)).splitlines())
    assert header[6] == "case"
    assert "threads=2" in first
    assert "threads=4" in second
    assert [(row["case"], row["engine_args"], row["labels"]) for row in table_json(table(2, 4))["rows"]] == [
        ("t2", {"threads": 2}, {}),
        ("t4", {"threads": 4}, {}),
    ]


def test_runs_are_told_apart_by_their_id_alone() -> None:
    lines = plain_table(rows([make_record(run_id=run_id) for run_id in ("a", "b")])).splitlines()
    assert lines[0].split()[-1] == "run"
    assert "case" not in lines[0].split()
