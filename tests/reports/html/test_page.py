"""The report as a file: its numbers are those of the table, nothing in it acts, nothing is loaded, it stays small."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from bench import codec
from bench.analysis.ab import paired_cases
from bench.records import Status, TrialRecord
from bench.reports.html import Report, Trace, report_html
from bench.reports.numbers import COLUMNS
from bench.reports.rows import rows
from bench.reports.text import interval_text, shown, status_text, value_text
from tests.factories import make_case, make_key, make_metrics, make_record
from tests.reports.html.parsed import Element, parsed
from tests.reports.html.samples import SETTINGS, sample_histories, sample_records, sample_report, sample_trace
from tests.reports.samples import a_bit_of_everything, a_first_evening

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&</style></title>\u202e\x1b]--><!--"


def page(report: Report) -> Element:
    return parsed(report_html(report))


def plain(records: list[TrialRecord]) -> Report:
    return Report(chosen="latest", made_ns=0, records=records)


@pytest.mark.parametrize(
    "records", [a_bit_of_everything(), a_first_evening(), sample_records()], ids=["all", "evening", "sweeps"]
)
def test_the_numbers_are_those_of_the_table(records: list[TrialRecord]) -> None:
    (table,) = page(plain(records)).all("table", class_="results")
    lines = table.all("tbody")[0].all("tr")
    made = rows(records)
    assert len(lines) == len(made)
    for line, row in zip(lines, made, strict=True):
        cells = [cell.text for cell in line.children]
        assert cells[0].startswith(row.case.model)
        assert cells[11].startswith(status_text(row))
        for cell, column in zip(cells[4:], COLUMNS, strict=False):
            assert cell == value_text(row, column.key) + interval_text(shown(row, column.key))


def test_each_row_has_the_command_that_measures_a_valid_repeat_again() -> None:
    records = [
        make_record(repeat=0, status=Status.INVALID),
        make_record(repeat=1),
        make_record(case=make_case(seed=9), status=Status.FAILED, error="x", metrics={}),
    ]
    told = [code.text for code in page(plain(records)).all("table", class_="results")[0].all("code")]
    assert sorted(told) == sorted(f"bench reproduce {record.key.trial_id}" for record in records[1:])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_run_of_pairs_says_what_they_show(language: Any) -> None:
    """Both sides by what differs between them, each metric once a case, memory in the unit of its number."""
    sides = [("ab_base", 1, 100.0), ("ab_cand", 2, 130.0)]
    records = [
        make_record(
            repeat=repeat,
            run_id="r",
            case=(case := make_case(name="point", engine_args={"threads": threads})),
            key=structs.replace(make_key(case, "r", repeat), role=role, trial_id=f"{role}{repeat}"),
            metrics=make_metrics(output_tok_per_s=speed + repeat),
        )
        for role, threads, speed in sides
        for repeat in range(4)
    ]
    found = paired_cases(records)
    report = Report(chosen="run", named=("r",), made_ns=0, records=records, pairs=found)
    told = parsed(report_html(report, language))
    (table,) = told.all("table", class_="comparison")
    lines = table.all("tbody")[0].all("tr")
    assert len(lines) == len(found[0].metrics)
    speed = next(line for line in lines if line.text.startswith("output_tok_per_s"))
    assert f"{found[0].metrics[0].ratio.value:.4f}" in speed.text  # type: ignore[union-attr]
    assert next(line for line in lines if "GiB" in line.text).text.startswith("memory_used_peak_GiBGiB")
    (named,) = told.all("ol", class_="pairs")
    assert "threads=1" in named.text
    assert "threads=2" in named.text
    assert "4" in named.text


def test_missing_numbers_say_why() -> None:
    record = make_record(metrics=make_metrics(j_per_output_tok=None, memory_used_peak_b=None))
    found = page(plain([record]))
    missing = found.all("table", class_="results")[0].all("span")
    assert [(cell.text, cell.attributes["title"]) for cell in missing] == [("-", "not measured")] * 2
    assert "Memory GiB, J/token" in found.all("table", class_="reasons")[0].text
    assert "#validity" in [link.attributes["href"] for link in found.all("section", id="energy")[0].all("a")]


def test_reasons_are_told_with_their_rule_and_lead_to_their_rows() -> None:
    found = page(sample_report())
    reasons = found.all("table", class_="reasons")[0]
    assert "repeat 1: output tokens moved by -18.6%" in reasons.text
    assert "trend across the window above this share: 0.05" in reasons.text
    targets = {element.attributes["id"] for element in found.all("tr") if "id" in element.attributes}
    links = [link.attributes["href"] for link in found.all("a") if re.match(r"#[nr]\d", link.attributes["href"])]
    assert links
    assert {link[1:] for link in links} <= targets


# --- nothing acts -----------------------------------------------------------------------------------------------------


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in plain data that holds a text: its container and its key."""
    places = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, inside in places:
        if isinstance(inside, str):
            yield value, key
        yield from leaves(inside)


def hostile(record: TrialRecord) -> TrialRecord:
    """The same with every text that may be anything being markup."""
    plain_data = codec.to_builtins(codec.decode(codec.encode(record), TrialRecord))
    plain_data["case"]["labels"] = {EVIL: EVIL}
    plain_data["case"]["engine_args"] = {EVIL: EVIL}
    changed = 0
    for container, key in leaves(plain_data):
        kept, container[key] = container[key], EVIL
        try:
            codec.decode(codec.encode(plain_data), TrialRecord)
            changed += 1
        except ValueError:
            container[key] = kept  # one of a few names
    assert changed > 20
    return codec.decode(codec.encode(plain_data), TrialRecord)


def hostile_report() -> Report:
    report = sample_report(named=(EVIL, EVIL))
    records = [hostile(record) for record in report.records[:: len(report.records) // 6]]
    again = [hostile(make_record(case=make_case(seed=at), status=Status.FAILED, error=EVIL, metrics={})) for at in range(2)]
    assert report.trace is not None
    trace = Trace(record=hostile(report.trace.record), telemetry=report.trace.telemetry)
    histories = [
        replace(
            one,
            label=EVIL,
            builds=tuple(f"{EVIL}{at // 9}" for at in range(len(one.builds))),
            nights=tuple(replace(night, accepted=night.accepted and EVIL) for night in one.nights),
        )
        for one in report.histories
    ]
    pairs = [
        replace(
            one, pair=replace(one.pair, reason=one.pair.reason and EVIL, flags=(EVIL,), base=replace(one.pair.base, model=EVIL))
        )
        for one in report.compared
        if one.pair.base is not None
    ]
    return replace(report, records=[*records, *again], trace=trace, histories=histories, compared=pairs)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_text_of_others_becomes_markup(language: Any) -> None:
    found = parsed(report_html(hostile_report(), language))
    assert len(found.all("script")) == len(found.all("style")) == len(found.all("title")[:1]) == 1
    names = {element.name for element in everything(found)}
    assert names.isdisjoint({"img", "iframe", "object", "embed", "link", "form", "base", "foreignobject"})
    assert {key for element in everything(found) for key in element.attributes if key.startswith("on")} == set()
    assert found.text.count("<script>alert(1)</script>") > 30
    assert "\u202e" not in found.text
    assert "\x1b" not in found.text


def everything(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from everything(child)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_is_loaded_and_only_our_own_script_runs(language: Any) -> None:
    made = report_html(sample_report(), language)
    found = parsed(made)
    addresses = [value for element in everything(found) for key, value in element.attributes.items() if key in ("href", "src")]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    style, script = found.all("style")[0].text, found.all("script")[0].text
    assert not re.search(r"url\(|@import|http", style + script)
    (policy,) = [
        m.attributes["content"] for m in found.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    hashes = [base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() for inside in (style, script)]
    own = f"style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    assert policy == f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    assert not any("style" in element.attributes for element in everything(found))


def test_200_trials_stay_under_500_kb() -> None:
    settings = {(*key[:3], f"{key[3]} {at}", 8): value for at in range(8) for key, value in SETTINGS.items()}
    records = sample_records(1, settings)[:200]
    apart = [make_record(case=record.case, run_id=f"run-{at}", metrics=record.metrics) for at, record in enumerate(records)]
    nights = [replace(one, label=f"{one.label} {at}") for at in range(20) for one in sample_histories(60)]
    made = report_html(
        Report(chosen="latest", made_ns=0, records=apart, trace=sample_trace(records[0], boards=8), histories=nights)
    )
    assert len(rows(apart)) == 200
    assert len(made) < 500_000


def test_the_same_results_make_the_same_file() -> None:
    assert report_html(sample_report()) == report_html(sample_report())
