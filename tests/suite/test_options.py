from __future__ import annotations

import pytest

from bench.errors import EXIT_USAGE, UsageError
from bench.identity import case_id
from bench.records import LengthSpec
from bench.suite import Suite, from_options, override, suite_from_options
from bench.suite.build import load_text

SUITE = """
name: s
defaults: {engine: mock, model: m, duration: 10s, engine_args: {gap_ms: 20}}
cases:
  - {name: closed, batch_size: [1, 4]}
  - {name: open, request_rate: 5, arrivals: gamma, burstiness: 0.5, max_concurrency: 8}
"""


@pytest.fixture
def suite() -> Suite:
    return load_text(SUITE, "s.yaml")


def refusal(options: dict[str, object]) -> list[str]:
    with pytest.raises(UsageError) as caught:
        from_options(options)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value).splitlines()


def test_text_from_the_shell_means_the_same_as_values_in_a_file() -> None:
    (from_flags,) = from_options(
        {
            "model": "m",
            "base_url": "http://h:1",
            "batch_size": "64",
            "input_tokens": "32",
            "duration": "5m",
            "warmup": 2,
            "temperature": "0.5",
            "ignore_eos": "false",
            "engine_args": ("a=1", "b=1.5", "c=true", "d=x=y", "e="),
            "labels": ("team=7",),
            "devices": "0,1",
            "goodput": "ttft:200 tpot:50",
            "seed": None,
            "precision": (),
        }
    )
    (from_file,) = load_text(
        """cases:
  - model: m
    base_url: http://h:1
    batch_size: 64
    input_tokens: 32
    duration: 300
    warmup: 2s
    temperature: 0.5
    ignore_eos: false
    engine_args: {a: 1, b: 1.5, c: true, d: x=y, e: ''}
    labels: {team: '7'}
    devices: [0, 1]
    goodput: {ttft: 200, tpot: 50}
""",
        "s.yaml",
    ).cases
    assert from_flags.engine_args == {"a": 1, "b": 1.5, "c": True, "d": "x=y", "e": ""}
    assert from_flags.labels == {"team": "7"}
    assert case_id(from_flags) == case_id(from_file)


@pytest.mark.parametrize("written", ["1,4,16", (1, 4, 16), ("1", "4", "16"), ("1,4", "16"), [1, 4, 16]])
def test_several_values_of_a_flag_make_a_matrix(written: object) -> None:
    cases = from_options({"model": "m", "batch_size": written})
    assert [case.load.batch_size for case in cases] == [1, 4, 16]
    assert [case.name for case in cases] == ["m/batch_size=1", "m/batch_size=4", "m/batch_size=16"]


@pytest.mark.parametrize(
    "limits", ["ttft:200 tpot:50", ("ttft:200", "tpot:50"), ("ttft:200 tpot:50",), {"ttft": 200, "tpot": 50}]
)
def test_limits_in_every_spelling(limits: object) -> None:
    (case,) = from_options({"model": "m", "goodput": limits})
    assert [(slo.metric, slo.limit_ms) for slo in case.slos] == [("tpot", 50.0), ("ttft", 200.0)]


@pytest.mark.parametrize("devices", ["0,cuda:1", ("0", "cuda:1"), ("0,cuda:1",), [0, "cuda:1"]])
def test_devices_in_every_spelling_are_one_value(devices: object) -> None:
    (case,) = from_options({"model": "m", "devices": devices})
    assert case.devices == ("0", "cuda:1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": "0"}, "--batch-size: must be at least 1, got 0"),
        ({"batch_size": "x"}, "--batch-size: must be a whole number, got 'x'"),
        ({"batch_size": 2.5}, "--batch-size: must be a whole number, got 2.5"),
        ({"request_rate": "fast"}, "--request-rate: must be a number, got 'fast'"),
        ({"request_rate": float("nan")}, "--request-rate: must be a number, got nan"),
        ({"input_tokens": "0"}, "--input-tokens: must be at least 1, got 0"),
        ({"input_tokens": {"mean": 3, "sprd": 1}}, "--input-tokens: unknown key 'sprd' in input_tokens: did you mean 'spread'?"),
        ({"duration": "5x"}, "--duration: '5x' is not a duration: write 300s, 5m or 1h"),
        ({"profile": "nigtly"}, "--profile: must be 'smoke', 'nightly' or 'official', got 'nigtly': did you mean 'nightly'?"),
        ({"engine": "llamacp"}, "--engine: unknown engine 'llamacp': did you mean 'llamacpp'?"),
        ({"engine_args": ("threads",)}, "--engine-arg: 'threads' is not of the form NAME=VALUE"),
        ({"engine_args": ("a=1", "a=2")}, "--engine-arg: 'a' is given twice"),
        ({"engine_args": ("api_key=sk-1",)}, "--engine-arg: engine_args.api_key looks like a secret"),
        ({"goodput": "ttft"}, "--goodput: 'ttft' is not a limit"),
        ({"base_url": "host:80"}, "--base-url: must be a URL as in http://127.0.0.1:8000/v1"),
        ({"api_key_env": "sk-secret"}, "--api-key-env: must be the name of an environment variable"),
        ({"arrivals": "poisson"}, "--arrivals: 'arrivals' without 'request_rate'"),
    ],
)
def test_errors_name_the_flag(options: dict[str, object], said: str) -> None:
    lines = refusal({"model": "m", **options})
    assert len(lines) == 1
    assert lines[0].startswith(said)
    assert "sk-" not in lines[0]


def test_all_wrong_flags_come_at_once() -> None:
    assert len(refusal({"model": "m", "batch_size": 0, "duration": "x", "repeats": 0})) == 3


def test_an_option_that_is_no_key_is_refused_with_the_nearest() -> None:
    assert refusal({"batchsize": 3}) == ["unknown option 'batchsize': did you mean 'batch_size'?"]


def test_spellings_of_other_load_generators() -> None:
    (closed,) = from_options({"model": "m", "max_concurrency": 8})
    assert (closed.load.kind, closed.load.batch_size, closed.load.max_concurrency) == ("closed", 8, None)
    (bursty,) = from_options({"model": "m", "request_rate": 10, "burstiness": 0.5})
    assert (bursty.load.arrivals, bursty.load.burstiness) == ("gamma", 0.5)
    (burst,) = from_options({"model": "m", "request_rate": "inf", "num_prompts": "100"})
    assert (burst.load.arrivals, burst.load.request_rate, burst.load.num_prompts) == ("burst", None, 100)
    assert from_options({"model": "m", "request_rate": float("inf"), "num_prompts": 100}) == (burst,)


def test_flags_bring_warnings_too() -> None:
    assert suite_from_options({"model": "m", "duration": "1s"}).warnings == (
        "--duration: 'duration' is shorter than the 5s of profile: smoke: trials will be marked too_short",
    )


def test_override_changes_every_case_and_keeps_the_matrix(suite: Suite) -> None:
    changed = override(suite, {"duration": "20s", "repeats": 2, "input_tokens": "64", "warmup": None})
    assert [case.name for case in changed.cases] == [case.name for case in suite.cases]
    assert {(case.duration_s, case.repeats, case.input_tokens) for case in changed.cases} == {(20.0, 2, LengthSpec(mean=64))}
    assert [case.load for case in changed.cases] == [case.load for case in suite.cases]
    assert {case.suite for case in changed.cases} == {"s"}


def test_override_without_changes_is_the_same_suite(suite: Suite) -> None:
    assert override(suite, {"duration": None, "engine_args": ()}) is suite


def test_override_of_an_axis_replaces_it_in_its_place(suite: Suite) -> None:
    changed = override(suite, {"batch_size": "2,3"})
    assert [case.name for case in changed.cases] == ["closed/batch_size=2", "closed/batch_size=3"]
    assert len(changed.warnings) == 2  # the open case is now the same as the closed one, point by point
    assert all("measures the same as" in warning for warning in changed.warnings)


def test_override_takes_back_what_it_contradicts(suite: Suite) -> None:
    loads = [case.load for case in override(suite, {"request_rate": 7}).cases]
    assert [(load.kind, load.request_rate, load.batch_size, load.arrivals) for load in loads] == [
        ("open", 7.0, None, "poisson"),
        ("open", 7.0, None, "gamma"),
    ]
    counted = override(suite, {"num_prompts": 50})
    assert {case.load.num_prompts for case in counted.cases} == {50}
    burst = override(suite, {"request_rate": "inf", "num_prompts": 50}).cases
    assert [(case.load.arrivals, case.load.max_concurrency) for case in burst] == [("burst", None), ("burst", 8)]


def test_override_of_the_engine_drops_the_arguments_of_the_old_one(suite: Suite) -> None:
    assert {str(case.engine_args) for case in override(suite, {"engine": "llamacpp"}).cases} == {"{}"}
    assert {str(case.engine_args) for case in override(suite, {"engine": "mock"}).cases} == {"{'gap_ms': 20}"}
    attached = override(suite, {"engine": "openai", "base_url": "http://h"})
    assert {(case.engine, case.base_url) for case in attached.cases} == {("openai", "http://h")}


def test_override_of_one_engine_argument_keeps_the_others(suite: Suite) -> None:
    changed = override(suite, {"engine_args": ("ttft_ms=50",)})
    assert changed.cases[0].engine_args == {"gap_ms": 20, "ttft_ms": 50}


def test_override_goes_through_the_same_checks(suite: Suite) -> None:
    with pytest.raises(UsageError) as caught:
        override(suite, {"duration": "0s", "engine": "openai"})
    lines = str(caught.value).splitlines()
    assert "--duration: must be more than 0, got '0s'" in lines
    assert any(line.startswith("--engine: ") and "needs 'base_url'" in line for line in lines)
    with pytest.raises(UsageError, match="--base-url: 'base_url' with engine: mock") as conflict:
        override(suite, {"base_url": "http://h"})
    assert len(str(conflict.value).splitlines()) == 1


def test_override_can_be_repeated(suite: Suite) -> None:
    twice = override(override(suite, {"duration": "20s"}), {"repeats": 3})
    assert twice.cases == override(suite, {"duration": "20s", "repeats": 3}).cases
