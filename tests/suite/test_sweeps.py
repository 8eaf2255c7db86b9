"""`sweep:` in a suite and `--find` beside one: what it means, what contradicts it, and that the schema agrees."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from bench.errors import SuiteError, UsageError
from bench.records import LoadSpec, Search
from bench.suite import Suite, json_schema, override, suite_from_options
from bench.suite.build import load_text

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
GOODPUT = "    goodput: [ttft:200]\n"


def text_of(sweep: str, more: str = "") -> str:
    return f"cases:\n  - sweep: {sweep}\n    engine: mock\n    name: s\n{more}"


def suite_of(sweep: str, more: str = "") -> Suite:
    return load_text(text_of(sweep, more), "s.yaml")


def refusal(sweep: str, more: str = "") -> str:
    with pytest.raises(SuiteError) as caught:
        suite_of(sweep, more)
    return str(caught.value)


def test_a_sweep_is_a_search_and_the_case_at_its_lowest_load() -> None:
    suite = suite_of("{find: knee}")
    (sweep,) = suite.sweeps
    assert suite.cases == ()
    assert sweep.search == Search(find="knee", over="batch_size", low=1, high=256, points=12, attainment=0.99, gain=0.1)
    assert sweep.case.load == LoadSpec(kind="closed", batch_size=1)
    assert sweep.case.name == "s"


def test_a_sweep_over_rates_keeps_the_arrivals() -> None:
    more = "    arrivals: gamma\n    burstiness: 0.5\n    max_concurrency: 64\n" + GOODPUT
    (sweep,) = suite_of("{find: max-goodput, over: request_rate, low: 0.5, high: 20, attainment: 0.95}", more).sweeps
    assert sweep.search.attainment == 0.95
    expected = {"request_rate": 0.5, "arrivals": "gamma", "burstiness": 0.5, "max_concurrency": 64}
    assert sweep.case.load == LoadSpec(kind="open", **expected)  # type: ignore[arg-type]


def test_other_lists_make_a_sweep_each_and_plain_cases_stand_beside() -> None:
    text = "defaults: {engine: mock, sweep: {find: knee}}\ncases:\n  - {name: a, output_tokens: [8, 16]}\n"
    suite = load_text(text + "  - {name: b, sweep: null, batch_size: [1, 2]}\n", "s.yaml")
    assert [sweep.case.name for sweep in suite.sweeps] == ["a/output_tokens=8", "a/output_tokens=16"]
    assert [case.name for case in suite.cases] == ["b/batch_size=1", "b/batch_size=2"]


@pytest.mark.parametrize(
    ("sweep", "more", "said"),
    [
        (
            "{find: max-goodput}",
            "",
            "s.yaml:2: 'sweep' with find: max-goodput needs 'goodput': add limits as in goodput: [ttft:200",
        ),
        (
            "{find: knee}",
            "    batch_size: 4\n",
            "s.yaml:5: 'sweep' together with 'batch_size': a sweep chooses its own loads; drop",
        ),
        ("{find: knee}", "    request_rate: 4\n", "s.yaml:5: 'sweep' together with 'request_rate'"),
        ("{find: knee}", "    stages: [{rate: 1, duration: 10s}]\n", "s.yaml:5: 'sweep' together with 'stages'"),
        ("{find: knee}", "    arrivals: poisson\n", "'arrivals' without 'request_rate'"),
        (
            "{find: knee, over: request_rate}",
            "    arrivals: burst\n",
            "'sweep' with 'arrivals: burst' or 'trace', which have no rate",
        ),
        ("{find: knee, low: 8, high: 8}", "", "s.yaml:2: sweep.low is not below sweep.high"),
        (
            "{find: knee, low: 0.5}",
            "",
            "sweep.low and sweep.high must be whole numbers over batch_size: write over: request_rate",
        ),
        ("{find: knee, attainment: 0.9}", "", "sweep.attainment with find: knee, which looks at no limit"),
        ("{find: max-goodput, gain: 0.2}", GOODPUT, "sweep.gain with find: max-goodput, which looks at no throughput"),
        ("{find: knee, pionts: 9}", "", "unknown key 'pionts' in sweep: did you mean 'points'?"),
        ("{find: kne}", "", "sweep.find must be 'knee' or 'max-goodput', got 'kne': did you mean 'knee'?"),
        ("{over: batch_size}", "", "sweep needs 'find'"),
        ("{find: knee, points: 3}", "", "sweep.points must be at least 4, got 3"),
        ("{find: knee, high: 0}", "", "sweep.high must be more than 0, got 0"),
        ("{find: knee, high: inf}", "", "sweep.high must be a number, got 'inf'"),
        ("knee", "", "sweep must be a mapping as in {find: knee, over: batch_size, low: 1, high: 64}, got 'knee'"),
        ("[{find: knee}]", "", "sweep must be a mapping as in {find: knee"),
    ],
)
def test_what_contradicts_a_sweep_is_named_with_the_mend(sweep: str, more: str, said: str) -> None:
    message = refusal(sweep, more)
    assert said in message
    assert len(message.splitlines()) == 1


def test_two_sweeps_that_search_for_the_same_are_refused() -> None:
    text = "defaults: {engine: mock, goodput: [ttft:9]}\ncases:\n  - {name: a, sweep: {find: knee}}\n"
    text += "  - {name: b, sweep: {find: %s}}\n"
    assert len(load_text(text % "max-goodput", "s.yaml").sweeps) == 2
    with pytest.raises(SuiteError, match="'b' measures the same as 'a'"):
        load_text(text % "knee", "s.yaml")


@pytest.mark.parametrize(
    "sweep",
    [
        "{find: knee}",
        "{find: knee, over: request_rate, low: 0.1, high: 7, points: 4, gain: 0.2}",
        "{find: knee, low: 2.0, high: 100000, attainment: null}",
        "null",
    ],
)
def test_the_schema_accepts_what_we_accept(sweep: str) -> None:
    more = "    batch_size: 1\n" if sweep == "null" else ""
    suite = suite_of(sweep, more)
    assert len(suite.sweeps) + len(suite.cases) == 1
    assert VALIDATOR.is_valid(yaml.safe_load(text_of(sweep, more)))


@pytest.mark.parametrize(
    "sweep",
    [
        "knee",
        "{}",
        "4",
        "[{find: knee}]",
        "{find: best}",
        "{find: knee, over: rate}",
        "{find: knee, low: 0}",
        "{find: knee, low: x}",
        "{find: knee, high: 2000000}",
        "{find: knee, points: 3}",
        "{find: knee, points: 4.5}",
        "{find: knee, gain: 2}",
        "{find: knee, pionts: 9}",
    ],
)
def test_the_schema_refuses_what_we_refuse(sweep: str) -> None:
    assert refusal(sweep)
    assert not VALIDATOR.is_valid(yaml.safe_load(text_of(sweep)))


def test_the_schema_describes_every_key_of_a_sweep() -> None:
    mapping = json_schema()["properties"]["cases"]["items"]["properties"]["sweep"]["anyOf"][0]
    assert set(mapping["properties"]) == {"find", "over", "low", "high", "points", "attainment", "gain"}
    assert all(prop["description"] for prop in mapping["properties"].values())
    json.dumps(mapping)


def test_flags_make_a_sweep() -> None:
    options = {"engine": "mock", "goodput": ("ttft:200",), "sweep": {"find": "max-goodput", "high": 64.0, "points": 8}}
    (sweep,) = suite_from_options(options).sweeps
    assert (sweep.search.high, sweep.search.points) == (64.0, 8)


def test_flags_over_rates_keep_their_cap_and_their_burstiness() -> None:
    options = {"engine": "mock", "burstiness": 0.5, "max_concurrency": 9, "sweep": {"find": "knee", "over": "request_rate"}}
    (sweep,) = suite_from_options(options).sweeps
    assert (sweep.case.load.max_concurrency, sweep.case.load.arrivals) == (9, "gamma")


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"find": "max-goodput"}, "--find: 'sweep' with find: max-goodput needs 'goodput'"),
        ({"find": "knee", "low": 9.0, "high": 3.0}, "--find: sweep.low is not below sweep.high"),
        ({"find": "knee", "points": 1}, "--find: points must be at least 4, got 1"),
    ],
)
def test_wrong_flags_are_named(sweep: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        suite_from_options({"engine": "mock", "sweep": sweep})
    assert str(caught.value).startswith(said)


SUITE = """
defaults: {engine: mock, duration: 10s}
cases:
  - {name: closed, batch_size: [1, 4]}
  - {name: open, request_rate: 5, arrivals: gamma, burstiness: 0.5, max_concurrency: 8, seed: 1}
"""


def test_a_search_over_a_suite_replaces_its_loads() -> None:
    suite = load_text(SUITE, "s.yaml")
    closed = override(suite, {"sweep": {"find": "knee"}})
    assert closed.cases == ()
    assert [(s.case.name, s.case.load.kind) for s in closed.sweeps] == [("closed", "closed"), ("open", "closed")]
    rates = override(suite, {"sweep": {"find": "knee", "over": "request_rate"}})
    assert [(s.case.name, s.case.load.arrivals) for s in rates.sweeps] == [("closed", "poisson"), ("open", "gamma")]
    back = override(closed, {"batch_size": 2})
    assert back.sweeps == ()
    assert [case.load.batch_size for case in back.cases] == [2, 2]
