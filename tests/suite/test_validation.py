from __future__ import annotations

import re
from typing import get_args

import pytest

from bench.errors import EXIT_USAGE, SuiteError
from bench.records import ProtocolName
from bench.suite.build import load_text
from bench.suite.settings import KEYS


def refusal(text: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        load_text(text, "s.yaml")
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value).splitlines()


def refusal_of(key_and_value: str) -> str:
    """The one message for a case with this line in it (line 3)."""
    model = "" if key_and_value.startswith("model:") else "model: m"
    lines = refusal(f"cases:\n  - {model or 'seed: 1'}\n    {key_and_value}\n")
    assert len(lines) == 1, lines
    return lines[0].removeprefix("s.yaml:3: ")


PROTOCOLS = ", ".join(map(repr, get_args(ProtocolName)[:-1])) + f" or {get_args(ProtocolName)[-1]!r}"


@pytest.mark.parametrize(
    ("key_and_value", "said"),
    [
        ("batchsize: 4", "unknown key 'batchsize': did you mean 'batch_size'?"),
        ("Batch-Size: 4", "unknown key 'Batch-Size': did you mean 'batch_size'?"),
        ("api_key: sk-1", "unknown key 'api_key': keys never go into a suite: set a variable and write 'api_key_env: NAME'"),
        ("batch_size: 0", "batch_size must be at least 1, got 0"),
        ("batch_size: four", "batch_size must be a whole number, got 'four'"),
        ("batch_size: '4'", "batch_size must be a whole number, got '4': write it plainly, without quotes or exponent"),
        ("batch_size: 1.5", "batch_size must be a whole number, got 1.5"),
        ("batch_size: true", "batch_size must be a whole number, got true"),
        ("batch_size: [1, 4, 4.0]", "batch_size lists 4 twice"),
        ("batch_size: []", "batch_size is an empty list: write at least one value"),
        ("batch_size: [1, x]", "batch_size must be a whole number, got 'x'"),
        ("batch_size: [[1]]", "batch_size must be a whole number, got [1]"),
        ("batch_size: {a: 1}", "batch_size must be a whole number, got {'a': 1}"),
        ("batch_size: 10000000", "batch_size must be at most 100000, got 10000000"),
        ("request_rate: 0", "request_rate must be more than 0, got 0"),
        ("request_rate: 1e3", "request_rate must be a number, got '1e3': write it plainly, without quotes or exponent"),
        ("request_rate: .nan", "request_rate must be a number, got nan"),
        ("request_rate: -.inf", "request_rate must be a number, got -inf"),
        ("request_rate: 1e+9", "request_rate must be a number, got '1e+9': write it plainly, without quotes or exponent"),
        ("request_rate: 2000000", "request_rate must be at most 1,000,000 a second, or inf for all at once, got 2000000"),
        ("model: 8", "model must be text, got 8: quote it"),
        ("model: no", "model must be text, got false: quote it"),
        ("model: ' m'", "model must be text on one line, without spaces around it, got ' m'"),
        ('model: "a\\e[31mb"', "model must be text on one line, without spaces around it, got 'a\\x1b[31mb'"),
        ("model: {name: m}", "model must be text, got {'name': 'm'}"),
        ("duration: 5x", "duration: '5x' is not a duration: write 300s, 5m or 1h"),
        ("duration: 0", "duration must be more than 0, got 0"),
        ("duration: -3", "duration: -3 is not a usable duration"),
        ("duration: true", "duration: True is not a duration: write 300s, 5m or 1h"),
        ("duration: {s: 3}", "duration: {'s': 3} is not a duration: write 300s, 5m or 1h"),
        ("warmup: .nan", "warmup: nan is not a usable duration"),
        ("profile: nigtly", "profile must be 'smoke', 'nightly' or 'official', got 'nigtly': did you mean 'nightly'?"),
        (
            "protocol: openai",
            f"protocol must be {PROTOCOLS}, got 'openai': did you mean 'openai-chat'?",
        ),
        ("input_tokens: 0", "input_tokens must be at least 1, got 0"),
        ("input_tokens: long", "input_tokens must be a whole number, got 'long'"),
        ("input_tokens: {mean: 4, spred: 1}", "unknown key 'spred' in input_tokens: did you mean 'spread'?"),
        ("input_tokens: {dist: uniform, spread: 1}", "input_tokens needs 'mean'"),
        ("input_tokens: {mean: 4, spread: 1}", "input_tokens: a spread needs a dist: add dist: uniform, normal or lognormal"),
        (
            "input_tokens: {mean: 4, dist: normal}",
            "input_tokens: dist normal needs a spread: add spread: 0.5, or write the mean alone",
        ),
        ("output_tokens: {mean: 4, dist: uniform, spread: 2}", "output_tokens: a uniform spread is at most 1 (mean +- 100%)"),
        ("goodput: [ttft:200, tpot]", "goodput: 'tpot' is not a limit: write ttft:200, tpot:50 or e2e:5000 (in ms)"),
        ("goodput: {ttft: 200, tpt: 1}", "unknown key 'tpt' in goodput: did you mean 'tpot'?"),
        ("goodput: {ttft: 0}", "goodput.ttft must be more than 0, got 0"),
        ("goodput: ttft:0", "goodput: 'ttft:0' is not a limit: write ttft:200, tpot:50 or e2e:5000 (in ms)"),
        ("goodput: [ttft:1, ttft:2]", "goodput: limits ttft twice"),
        ("goodput: 5", "goodput must be limits as in [ttft:200, tpot:50], got 5"),
        ("goodput: []", "goodput must not be empty, got []"),
        ("devices: [0, 0]", "devices: lists '0' twice"),
        ("devices: []", "devices must not be empty, got []"),
        ("devices: [true]", "devices must be text, got true: quote it"),
        ("ignore_eos: 1", "ignore_eos must be true or false, got 1"),
        ("top_p: 0", "top_p must be more than 0, got 0"),
        ("top_p: 1.5", "top_p must be at most 1, got 1.5"),
        ("temperature: -1", "temperature must be at least 0, got -1"),
        ("seed: -1", "seed must be at least 0, got -1"),
        ("labels: x", "labels must be a mapping of names to values, got 'x'"),
        ("labels: {a: 1}", "labels.a must be text, got 1: quote it"),
        ("labels: {a: [x, z]}", "labels.a must be text, got ['x', 'z']"),
        ("engine_args: 4", "engine_args must be a mapping of names to values, got 4"),
        ("engine_args: {a: {b: 1}}", "engine_args.a must be text, a number, true or false, got {'b': 1}"),
        ("engine_args: {a: .inf}", "engine_args.a must be text, a finite number, true or false, got inf"),
        ("api_key_env: 12", "api_key_env must be text"),
    ],
)
def test_a_wrong_value_is_named_with_the_mend(key_and_value: str, said: str) -> None:
    assert refusal_of(key_and_value) == said


def test_secrets_are_refused_and_never_repeated() -> None:
    secret = "sk-very-secret"
    text = f"""
cases:
  - model: m
    base_url: http://me:{secret}@host/v1
    api_key_env: {secret}
    engine_args: {{api-key: {secret}, --hf_token: {secret}}}
"""
    lines = refusal(text)
    assert [line.split(":")[1] for line in lines] == ["4", "5", "6", "6"]
    assert secret not in "\n".join(lines)


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    lines = refusal(
        """nme: x
defaults:
  batchsize: 4
  input_tokens:
    mean: 12
    dist: unifrm
cases:
  - name: a
    model: m
    labels:
      who: me
      team: 7
  - name: b
    model: m
    goodput:
      - ttft:20
      - tpt:2
    batch_size:
      - 1
      - none
  - just text
"""
    )
    assert [int(line.split(":")[1]) for line in lines] == [1, 3, 6, 12, 17, 20, 21]


def test_a_typo_does_not_also_say_that_the_key_is_missing() -> None:
    lines = refusal(
        "cases:\n  - modle: m\n    engine: openai\n    base_ur: http://h\n    arrivals: poisson\n    request_rat: 3\n"
    )
    assert len(lines) == 3
    assert all("unknown key" in line for line in lines)


def test_a_wrong_value_does_not_also_break_rules() -> None:
    lines = refusal(
        "cases:\n  - model: m\n    request_rate: fast\n    arrivals: poisson\n    engine: 5\n    base_url: http://h\n"
    )
    assert lines == ["s.yaml:3: request_rate must be a number, got 'fast'", "s.yaml:5: engine must be text, got 5: quote it"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\n", "s.yaml:1: a suite needs 'cases'"),
        ("cases: []\n", "s.yaml:1: a suite needs 'cases'"),
        ("name: x\ncases:\n", "s.yaml:2: a suite needs 'cases'"),
        ("cases: {model: m}\n", "s.yaml:1: 'cases' must be a list"),
        ("defaults: 4\ncases: [{model: m}]\n", "s.yaml:1: 'defaults' must be a mapping"),
        ("defaults: {name: x}\ncases: [{model: m}]\n", "s.yaml:1: 'name' belongs to a case"),
        ("name: 5\ncases: [{model: m}]\n", "s.yaml:1: name must be text, got 5"),
        ("name: ''\ncases: [{model: m}]\n", "s.yaml:1: name must be text of 1 to 100 characters"),
        ("cases:\n  -\n", "s.yaml:2: a case must be a mapping of keys, got nothing"),
        ("cases:\n  - {}\n", "s.yaml:2: a case needs a 'model'"),
        ("case: []\n", "s.yaml:1: unknown key 'case': did you mean 'cases'?"),
    ],
)
def test_the_shape_of_the_file(text: str, said: str) -> None:
    assert any(line.startswith(said) for line in refusal(text))


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("engine_args", "labels")])
def test_every_key_refuses_a_mapping_it_does_not_know(key: str) -> None:
    message = refusal(f"cases:\n  - {key}:\n      zzz: 1\n" + ("    model: m\n" if key != "model" else ""))[0]
    assert re.match(r"s\.yaml:[23]: ", message)
    assert key in message


def test_many_problems_are_cut_with_their_number() -> None:
    lines = refusal("cases:\n" + "".join(f"  - {{model: m, name: c{i}, seed: x}}\n" for i in range(70)))
    assert len(lines) == 51
    assert lines[-1] == "... and 20 more"


def test_two_cases_need_two_names_and_two_meanings() -> None:
    same_name = refusal("cases:\n  - {name: a, model: m}\n  - {name: a, model: n}\n")
    assert same_name == ["s.yaml:3: two cases are called 'a', the first in line 2: give each its own 'name'"]
    same_meaning = refusal("cases:\n  - {name: a, model: m, duration: 300s}\n  - {name: b, model: m, duration: 5m}\n")
    assert same_meaning == ["s.yaml:3: case 'b' measures the same as 'a': one of them is enough (see 'repeats')"]
