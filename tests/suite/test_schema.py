from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from bench.errors import SuiteError
from bench.suite import json_schema, shipped, text_of
from bench.suite.build import load_text
from bench.suite.settings import EXPANDABLE, KEYS

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def ours(text: str) -> bool:
    try:
        load_text(text, "s.yaml")
    except SuiteError:
        return False
    return True


def schemas(text: str) -> bool:
    return bool(VALIDATOR.is_valid(yaml.safe_load(text)))


def with_line(line: str) -> str:
    model = "" if line.startswith(("model:", "engine:")) else "    model: m\n"
    return f"cases:\n  - {line}\n{model}"


def test_it_is_a_schema_of_the_stated_draft() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(json_schema())) == json_schema()


@pytest.mark.parametrize("name", [info.name for info in shipped()])
def test_shipped_suites_agree_with_it(name: str) -> None:
    assert schemas(text_of(name))
    assert ours(text_of(name))


def test_it_knows_every_key_with_a_description() -> None:
    keys = json_schema()["properties"]["cases"]["items"]["properties"]
    assert tuple(keys) == KEYS
    assert all(prop["description"] for prop in keys.values())
    assert "name" not in json_schema()["properties"]["defaults"]["properties"]


def test_the_keys_that_expand_are_those_that_take_lists() -> None:
    def takes_a_list(prop: dict[str, Any]) -> bool:
        return any(kind.get("type") == "array" for kind in prop["anyOf"])

    keys = json_schema()["properties"]["cases"]["items"]["properties"]
    assert {key for key, prop in keys.items() if takes_a_list(prop)} == EXPANDABLE | {"devices", "goodput", "stages"}


GOOD = [
    "model: m",
    "model: [m, n]",
    "engine: mock",
    "batch_size: 4",
    "batch_size: 4.0",
    "batch_size: [1, 4]",
    "batch_size: [null, 2]",
    "batch_size: null",
    "request_rate: 0.5",
    "request_rate: [1, 2.5]",
    "input_tokens: {mean: 64, dist: uniform, spread: 0.5}",
    "output_tokens: [64, {mean: 64, dist: lognormal, spread: 0.5}]",
    "duration: 300s",
    "duration: 5m",
    "duration: 250ms",
    "duration: '1.5 h'",
    "duration: 30",
    "duration: [10s, 20]",
    "warmup: 0",
    "warmup: 0s",
    "profile: nightly",
    "profile: [smoke, official]",
    "devices: 0",
    "devices: 0,1",
    "devices: [0, cuda:1]",
    "goodput: ttft:200",
    "goodput: ttft:200 tpot:50.5",
    "goodput: [ttft:200, e2e:5000]",
    "goodput: {ttft: 200, tpot: 50.5}",
    "engine_args: {threads: 4, flash: true, mode: x, list: [1, 2], off: null}",
    "engine_args: null",
    "labels: {team: a}",
    "ignore_eos: [true, false]",
    "base_url: https://host:8000/v1",
    "base_url: unix:/run/llm.sock",
    "base_url: unix:///run/llm@1.sock:/prefix",
    "tokenizer: models/tokenizer.json",
    "seed: 0",
    "top_p: 1",
    "dataset: prompts.jsonl",
    "dataset: synthetic",
    "dataset: sub/prompts",
    "dataset: [synthetic, a.jsonl, {path: b.csv, prompt_column: q}]",
    "dataset: {type: sharegpt, path: s.json, min_input_tokens: 4, max_output_tokens: 900, shuffle: false, salt: false}",
    "dataset: {type: synthetic, salt: false}",
    "prefix_tokens: [0, 512]",
    "stages: [{rate: 5, duration: 30s}, {from: 5, to: 0, duration: 1m}, {rate: {from: 1, to: 2.5}, duration: 5}]",
    "stages: [{batch_size: 4, duration: 30s}, {batch_size: {from: 4, to: 16}, duration: 1m}]",
]


@pytest.mark.parametrize("line", GOOD)
def test_what_we_accept_the_schema_accepts(line: str) -> None:
    assert ours(with_line(line))
    assert schemas(with_line(line))


BAD = [
    "modle: m",
    "batch-size: 4",
    "batch_size: 0",
    "batch_size: '4'",
    "batch_size: true",
    "batch_size: 1.5",
    "batch_size: []",
    "batch_size: [1, x]",
    "batch_size: [1, 1]",
    "batch_size: [[1]]",
    "batch_size: 10000000",
    "request_rate: 0",
    "request_rate: fast",
    "request_rate: 1e3",
    "input_tokens: 0",
    "input_tokens: {dist: uniform, spread: 1}",
    "input_tokens: {mean: 4, sprd: 1}",
    "input_tokens: {mean: 4, dist: zipf}",
    "input_tokens: {mean: 4, dist: uniform, spread: 11}",
    "duration: 5x",
    "duration: 0",
    "duration: 0s",
    "duration: 0.0m",
    "duration: -1",
    "duration: true",
    "warmup: -1s",
    "profile: smok",
    "protocol: openai",
    "arrivals: uniform",
    "devices: []",
    "devices: [true]",
    "devices: '0,,1'",
    "goodput: ttft",
    "goodput: []",
    "goodput: [ttft:x]",
    "goodput: {tft: 1}",
    "goodput: {ttft: 0}",
    "goodput: {}",
    "engine_args: 4",
    "engine_args: {a: {b: 1}}",
    "engine_args: {a: []}",
    "labels: {a: 1}",
    "labels: {a: [x]}",
    "ignore_eos: 1",
    "base_url: host:80",
    "base_url: unix:llm.sock",
    "base_url: unix:/run/llm.sock?key=1",
    "base_url: http://me:pw@host",
    "api_key_env: sk-secret",
    "tokenizer: 4",
    "seed: -1",
    "temperature: -1",
    "top_p: 0",
    "top_p: 2",
    "repeats: 0",
    "workers: 0",
    "model: 8",
    "model: ' m'",
    "name: [a, b]",
    "dataset: synthetc",
    "dataset: sharegpt",
    "dataset: 7",
    "dataset: {pth: a.jsonl}",
    "dataset: {path: a.jsonl, type: xml}",
    "dataset: {path: a.jsonl, max_input_tokens: 0}",
    "dataset: {path: a.jsonl, salt: 1}",
    "dataset: []",
    "prefix_tokens: -1",
    "prefix_groups: 0",
    "speed: 0",
    "stages: []",
    "stages: 5",
    "stages: {rate: 5, duration: 30s}",
    "stages: [5]",
    "stages: [{rate: 5}]",
    "stages: [{rate: -5, duration: 3s}]",
    "stages: [{rate: fast, duration: 3s}]",
    "stages: [{rate: true, duration: 3s}]",
    "stages: [{rate: 5, duration: 0s}]",
    "stages: [{rate: 5, duration: soon}]",
    "stages: [{rate: 5, durtion: 3s}]",
    "stages: [{rate: {from: 5}, duration: 3s}]",
    "stages: [{rate: {from: 5, until: 6, to: 7}, duration: 3s}]",
    "name: ''",
]


@pytest.mark.parametrize("line", BAD)
def test_what_the_schema_refuses_we_refuse_and_the_other_way_round(line: str) -> None:
    assert not ours(with_line(line))
    assert not schemas(with_line(line))


@pytest.mark.parametrize(
    "text",
    [
        "nme: x\ncases: [{model: m}]",
        "cases: []",
        "cases: {}",
        "cases: [4]",
        "name: x",
        "name: 4\ncases: [{model: m}]",
        "name: ''\ncases: [{model: m}]",
        "defaults: 4\ncases: [{model: m}]",
        "defaults: {name: a}\ncases: [{model: m}]",
        "defaults: {sed: 1}\ncases: [{model: m}]",
        "[]",
        "x",
    ],
)
def test_the_shape_of_the_file_is_judged_alike(text: str) -> None:
    assert not ours(text)
    assert not schemas(text)
