from __future__ import annotations

import pytest

from bench.errors import SuiteError
from bench.records import LengthSpec, Profile, Sampling
from bench.suite import Suite, expand
from bench.suite.build import load_text


def suite_of(text: str) -> Suite:
    return load_text(text, "s.yaml")


def test_lists_expand_in_file_order_with_the_last_key_fastest() -> None:
    suite = suite_of("defaults: {model: m}\ncases:\n  - name: c\n    precision: [fp16, int8]\n    batch_size: [1, 4]\n")
    assert [case.name for case in expand(suite)] == [
        "c/precision=fp16,batch_size=1",
        "c/precision=fp16,batch_size=4",
        "c/precision=int8,batch_size=1",
        "c/precision=int8,batch_size=4",
    ]
    assert [(case.precision, case.load.batch_size) for case in suite.cases] == [
        ("fp16", 1),
        ("fp16", 4),
        ("int8", 1),
        ("int8", 4),
    ]


def test_defaults_vary_slower_than_the_case_and_a_case_replaces_a_list() -> None:
    suite = suite_of(
        "cases:\n  - {name: a, seed: [1, 2]}\n  - {name: b, batch_size: 9}\ndefaults: {model: m, batch_size: [3, 4]}\n"
    )
    assert [(case.name, case.load.batch_size, case.seed) for case in suite.cases] == [
        ("a/batch_size=3,seed=1", 3, 1),
        ("a/batch_size=3,seed=2", 3, 2),
        ("a/batch_size=4,seed=1", 4, 1),
        ("a/batch_size=4,seed=2", 4, 2),
        ("b", 9, 0),
    ]


def test_a_list_of_one_still_names_its_value() -> None:
    assert suite_of("cases: [{name: c, model: m, batch_size: [7]}]").cases[0].name == "c/batch_size=7"


def test_an_unnamed_case_is_called_by_its_model() -> None:
    names = [case.name for case in suite_of("cases:\n  - {model: m}\n  - {engine: mock}\n").cases]
    assert names == ["m", "mock"]


def test_lengths_rates_and_nulls_in_names() -> None:
    suite = suite_of(
        "cases:\n  - name: c\n    model: m\n    input_tokens: [64, {dist: uniform, mean: 100, spread: 0.5}]\n"
        "    precision: [null, q8]\n  - name: r\n    model: m\n    num_prompts: 3\n    request_rate: [0.5, inf]\n"
    )
    assert [case.name for case in suite.cases] == [
        "c/input_tokens=64,precision=default",
        "c/input_tokens=64,precision=q8",
        "c/input_tokens=uniform:100:0.5,precision=default",
        "c/input_tokens=uniform:100:0.5,precision=q8",
        "r/request_rate=0.5",
        "r/request_rate=inf",
    ]
    assert suite.cases[0].precision is None


def test_engine_arguments_expand_and_merge_with_those_of_defaults() -> None:
    suite = suite_of(
        "defaults: {model: m, engine_args: {threads: [1, 2], flash: true, mode: x}, labels: {team: a}}\n"
        "cases:\n  - {name: a, engine_args: {mode: null, n: 1.5}, labels: {who: b}}\n  - {name: b, engine_args: null}\n"
    )
    assert [(case.name, case.engine_args, case.labels) for case in suite.cases] == [
        ("a/threads=1", {"threads": 1, "flash": True, "n": 1.5}, {"team": "a", "who": "b"}),
        ("a/threads=2", {"threads": 2, "flash": True, "n": 1.5}, {"team": "a", "who": "b"}),
        ("b", {}, {"team": "a"}),
    ]


def test_lists_of_devices_and_limits_are_one_value() -> None:
    case = suite_of("cases: [{model: m, devices: [0, cuda:1], goodput: [ttft:200, e2e:5000]}]").cases[0]
    assert case.devices == ("0", "cuda:1")
    assert [(slo.metric, slo.limit_ms) for slo in case.slos] == [("e2e", 5000.0), ("ttft", 200.0)]


def test_too_large_a_matrix_is_refused_before_it_is_made() -> None:
    numbers = list(range(1, 1001))
    with pytest.raises(SuiteError) as caught:
        suite_of(f"cases:\n  - name: c\n    model: m\n    seed: {numbers}\n    batch_size: {numbers}\n    repeats: {numbers}\n")
    assert str(caught.value) == (
        "s.yaml:2: the matrix 1000 (seed) x 1000 (batch_size) x 1000 (repeats) makes 1,000,000,000 cases; "
        "a suite has at most 10,000"
    )


def test_many_cases_together_are_bounded_too() -> None:
    numbers = list(range(6000))
    with pytest.raises(SuiteError, match=r"s.yaml:3: the matrix 6000 \(seed\) makes 12,000 cases with those before it"):
        suite_of(f"cases:\n  - {{name: a, model: m, seed: {numbers}}}\n  - {{name: b, model: m, seed: {numbers}}}\n")


@pytest.mark.parametrize(
    ("profile", "duration_s", "warmup_s", "idle_s", "repeats"),
    [("smoke", 10.0, 2.0, 2.0, 1), ("nightly", 60.0, 10.0, 10.0, 3), ("official", 600.0, 60.0, 30.0, 5)],
)
def test_defaults_by_profile(profile: str, duration_s: float, warmup_s: float, idle_s: float, repeats: int) -> None:
    case = suite_of(f"cases: [{{model: m, profile: {profile}}}]").cases[0]
    assert (case.duration_s, case.warmup_s, case.idle_s, case.repeats) == (duration_s, warmup_s, idle_s, repeats)
    assert case.profile is Profile(profile)


def test_what_is_written_stands_over_the_profile() -> None:
    case = suite_of("cases: [{model: m, profile: nightly, duration: 90, warmup: 0, idle: 0s, repeats: 1}]").cases[0]
    assert (case.duration_s, case.warmup_s, case.idle_s, case.repeats) == (90.0, 0.0, 0.0, 1)


def test_every_other_default() -> None:
    case = suite_of("name: s\ncases: [{model: m}]").cases[0]
    assert (case.engine, case.protocol, case.dataset, case.seed) == ("llamacpp", "openai-chat", "synthetic", 0)
    assert case.input_tokens == case.output_tokens == LengthSpec(dist="fixed", mean=128, spread=0.0)
    assert (case.grace_s, case.request_timeout_s, case.profile) == (30.0, 600.0, Profile.SMOKE)
    assert (case.load.kind, case.load.batch_size, case.exact_lengths) == ("closed", 1, False)
    assert case.sampling == Sampling(temperature=0.0, top_p=1.0, ignore_eos=True)
    assert (case.devices, case.slos, case.labels, case.engine_args, case.client_workers) == ((), (), {}, {}, None)
    assert case.suite == "s"


def test_an_address_means_the_openai_engine_and_a_rate_means_poisson() -> None:
    case = suite_of("cases: [{model: m, base_url: http://h/v1/, request_rate: 2}]").cases[0]
    assert (case.engine, case.base_url) == ("openai", "http://h/v1")
    assert (case.load.kind, case.load.arrivals, case.load.request_rate) == ("open", "poisson", 2.0)


def test_an_infinite_rate_is_a_burst_without_a_rate() -> None:
    load = suite_of("cases: [{model: m, request_rate: inf, num_prompts: 9}]").cases[0].load
    assert (load.kind, load.request_rate, load.arrivals, load.num_prompts) == ("open", None, "burst", 9)
