from __future__ import annotations

import pytest

from bench.errors import SuiteError, UsageError
from bench.suite.build import load_text
from bench.suite.options import from_options

# settings of one case, each key on a line of its own from line 3 on; the line that is named; what is said
IMPOSSIBLE: list[tuple[dict[str, str], int, str]] = [
    ({"seed": "1"}, 2, "a case needs a 'model'"),
    ({"model": "m", "batch_size": "4", "request_rate": "2"}, 5, "'batch_size' together with 'request_rate'"),
    ({"model": "m", "request_rate": "[1, 2, 3]", "batch_size": "[4, 5]"}, 5, "'max_concurrency'"),
    ({"model": "m", "engine": "openai"}, 4, "needs 'base_url'"),
    ({"model": "m", "engine": "llamacpp", "base_url": "http://h"}, 5, "'base_url' with engine: llamacpp"),
    ({"model": "m", "base_url": "http://h", "engine": "mock"}, 5, "use engine: openai or drop base_url"),
    ({"model": "m", "engine": "llamacp"}, 4, "unknown engine 'llamacp': did you mean 'llamacpp'?"),
    ({"model": "m", "engine": "zzz"}, 4, "unknown engine 'zzz': known: "),
    ({"model": "m", "arrivals": "poisson"}, 4, "'arrivals' without 'request_rate'"),
    ({"model": "m", "burstiness": "0.5"}, 4, "'burstiness' without 'request_rate'"),
    ({"model": "m", "request_rate": "4", "burstiness": "0.5"}, 5, "'burstiness' without 'arrivals: gamma'"),
    ({"model": "m", "request_rate": "4", "arrivals": "poisson", "burstiness": "2"}, 6, "add arrivals: gamma or drop burstiness"),
    ({"model": "m", "request_rate": "4", "arrivals": "gamma"}, 5, "'arrivals: gamma' needs 'burstiness'"),
    ({"model": "m", "request_rate": "4", "arrivals": "burst"}, 5, "'arrivals: burst' with a finite 'request_rate'"),
    ({"model": "m", "request_rate": "inf"}, 4, "'request_rate: inf' needs 'num_prompts'"),
    ({"model": "m", "num_prompts": "9", "request_rate": "inf", "arrivals": "poisson"}, 6, "'arrivals' with request_rate: inf"),
    ({"model": "m", "max_concurrency": "4"}, 4, "'max_concurrency' without 'request_rate'"),
    ({"model": "m", "max_concurrency": "4", "batch_size": "4"}, 5, "'max_concurrency' together with 'batch_size'"),
    ({"model": "m", "num_prompts": "9", "duration": "10s"}, 5, "'num_prompts' together with 'duration'"),
    ({"model": "m", "batching": "static"}, 4, "'batching: static' without 'num_prompts'"),
    ({"model": "m", "ignore_eos": "false", "exact_lengths": "true"}, 5, "'exact_lengths: true' with 'ignore_eos: false'"),
    ({"model": "m", "warmup": "10s", "request_timeout": "10s"}, 5, "'warmup' is not shorter than 'request_timeout'"),
    ({"model": "m", "grace": "20s", "request_timeout": "10s"}, 5, "'grace' is longer than 'request_timeout'"),
    ({"model": "m", "engine": "mock", "api_key_env": "KEY"}, 5, "'api_key_env' with engine: mock"),
]

POSSIBLE: list[dict[str, str]] = [
    {"model": "m"},
    {"engine": "mock"},
    {"model": "m", "base_url": "http://h", "api_key_env": "KEY"},
    {"model": "m", "engine": "openai", "base_url": "https://h:1/v1"},
    {"model": "m", "request_rate": "4", "max_concurrency": "9"},
    {"model": "m", "request_rate": "4", "arrivals": "gamma", "burstiness": "0.5"},
    {"model": "m", "request_rate": "inf", "num_prompts": "9"},
    {"model": "m", "request_rate": ".inf", "num_prompts": "9", "arrivals": "burst", "max_concurrency": "4"},
    {"model": "m", "exact_lengths": "true"},
    {"model": "m", "ignore_eos": "false"},
    {"model": "m", "num_prompts": "9", "duration": "null"},
    {"model": "m", "request_timeout": "10s"},
]


def suite_of(settings: dict[str, str]) -> str:
    return "cases:\n  - name: c\n" + "".join(f"    {key}: {value}\n" for key, value in settings.items())


@pytest.mark.parametrize(("settings", "line", "said"), IMPOSSIBLE)
def test_an_impossible_combination_is_named_once_with_its_mend(settings: dict[str, str], line: int, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load_text(suite_of(settings), "s.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"s.yaml:{line}: ")
    assert said in lines[0]


@pytest.mark.parametrize("settings", POSSIBLE)
def test_possible_combinations_pass(settings: dict[str, str]) -> None:
    assert len(load_text(suite_of(settings), "s.yaml").cases) == 1


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"model": "m", "batch_size": 4, "request_rate": 2.0}, "--request-rate: 'batch_size' together with"),
        ({"model": "m", "engine": "openai"}, "--engine"),
        ({"batch_size": 4}, "command line"),
        ({"model": "m", "num_prompts": 4, "duration": "10s"}, "--num-prompts: 'num_prompts' together with 'duration'"),
    ],
)
def test_the_same_rules_name_flags_on_the_command_line(options: dict[str, object], flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_options(options)
    assert str(caught.value).startswith(flag)


def test_a_conflict_with_defaults_is_reported_and_null_takes_it_back() -> None:
    text = "defaults: {model: m, batch_size: 4}\ncases:\n  - name: a\n  - name: b\n    request_rate: 5\n"
    with pytest.raises(SuiteError, match=r"s\.yaml:5: 'batch_size' together with 'request_rate'"):
        load_text(text, "s.yaml")
    loads = [case.load for case in load_text(text + "    batch_size: null\n", "s.yaml").cases]
    assert [(load.kind, load.batch_size, load.request_rate) for load in loads] == [("closed", 4, None), ("open", None, 5.0)]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"duration": "4s"}, "'duration' is shorter than the 5s of profile: smoke"),
        ({"duration": "59s", "profile": "nightly"}, "'duration' is shorter than the 60s of profile: nightly"),
        ({"duration": "5m", "profile": "official"}, "'duration' is shorter than the 600s of profile: official"),
        ({"batch_size": "8", "num_prompts": "4"}, "'batch_size' is more than 'num_prompts'"),
        ({"batch_size": "2", "workers": "4"}, "'workers' is more than 'batch_size'"),
        ({"workers": "2"}, "'workers' is more than 'batch_size'"),
        ({"top_p": "0.9"}, "'top_p' has no effect at temperature: 0"),
    ],
)
def test_what_is_odd_but_possible_is_a_warning(settings: dict[str, str], said: str) -> None:
    suite = load_text(suite_of({"model": "m", **settings}), "s.yaml")
    assert len(suite.warnings) == 1
    assert said in suite.warnings[0]
    assert suite.warnings[0].startswith("s.yaml:")


@pytest.mark.parametrize(
    "settings",
    [
        {"duration": "5s"},
        {"profile": "nightly"},
        {"profile": "official"},
        {"num_prompts": "4"},
        {"request_rate": "5", "workers": "4"},
        {"top_p": "0.9", "temperature": "0.5"},
    ],
)
def test_the_usual_brings_no_warning(settings: dict[str, str]) -> None:
    assert load_text(suite_of({"model": "m", **settings}), "s.yaml").warnings == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("batch_size: 100001", "batch_size must be at most 100000, got 100001"),
        ("max_concurrency: 100001", "max_concurrency must be at most 100000, got 100001"),
        ("num_prompts: 10000001", "num_prompts must be at most 10000000, got 10000001"),
        ("workers: 257", "workers must be at most 256, got 257"),
        ("input_tokens: 10000001", "input_tokens must be at most 10000000, got 10000001"),
        ("burstiness: 1.0e-308", "burstiness must be at least 0.01, got 1e-308"),
        ("burstiness: 1.0e+300", "burstiness must be"),
        ("speed: 1.0e-300", "speed must be at least 1e-06, got 1e-300"),
        ("stages: [{batch_size: 100001, duration: 5s}]", "100001 is not a batch_size: write whole numbers from 1 to 100,000"),
        ("sweep: {find: knee, high: 100001}", "sweep.high is above 100,000 over batch_size"),
        ("request_rate: 1000000", "'request_rate' brings more than 20,000,000 requests: lower it or shorten the time"),
        ("stages: [{from: 0, to: 1000000, duration: 60s}]", "'stages' brings more than 20,000,000 requests"),
        ("sweep: {find: knee, over: request_rate, high: 1000000}", "'request_rate' brings more than 20,000,000 requests"),
    ],
)
def test_what_no_client_could_do_is_refused_before_anything_starts(line: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load_text(f"cases:\n  - model: m\n    {line}\n", "s.yaml")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "batch_size: 100000",
        "workers: 256, batch_size: 256",
        "input_tokens: 10000000",
        "request_rate: 4, arrivals: gamma, burstiness: 0.01",
        "request_rate: 1000000, num_prompts: 10000000",
        "request_rate: 100000, duration: 30s, warmup: 1s",
    ],
)
def test_the_limits_themselves_are_allowed(line: str) -> None:
    assert len(load_text(f"cases:\n  - {{model: m, {line}}}\n", "s.yaml").cases) == 1
