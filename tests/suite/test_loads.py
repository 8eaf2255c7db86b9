"""Stages, traces, data sets and prefixes as a suite or flags write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.errors import SuiteError, UsageError
from bench.identity import case_id
from bench.records import Case, DataSpec, LengthSpec, Stage
from bench.suite import from_options, load, override
from bench.suite.build import load_text


def cases_of(settings: str) -> tuple[Case, ...]:
    return load_text(f"cases:\n  - {{model: m, {settings}}}\n", "s.yaml").cases


def case_of(settings: str) -> Case:
    (case,) = cases_of(settings)
    return case


def refusal(settings: str) -> str:
    with pytest.raises(SuiteError) as caught:
        cases_of(settings)
    return str(caught.value)


# --- stages ---------------------------------------------------------------------------------------------------------------


def test_stages_of_a_rate() -> None:
    case = case_of("stages: [{rate: 5, duration: 30s}, {from: 5, to: 20, duration: 1m}, {rate: {from: 20, to: 0}, duration: 5}]")
    load = case.load
    assert (load.kind, load.arrivals, load.request_rate, load.batch_size) == ("open", "poisson", None, None)
    assert load.stages == (
        Stage(start=5, end=5, duration_s=30), Stage(start=5, end=20, duration_s=60), Stage(start=20, end=0, duration_s=5),
    )  # fmt: skip
    assert case.duration_s == 95
    assert case_of("arrivals: gamma, burstiness: 2, max_concurrency: 9, stages: [{rate: 1, duration: 9s}]").load.burstiness == 2


def test_stages_of_a_batch_size_are_sized_for_the_largest() -> None:
    load = case_of("stages: [{batch_size: 4, duration: 30s}, {from: 4, to: 16, duration: 1m}, {batch_size: 2, duration: 5}]").load
    assert (load.kind, load.batch_size, load.arrivals) == ("closed", 16, None)
    assert [stage.end for stage in load.stages] == [4, 16, 2]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("stages: [{rate: 5, duration: 3s}, {batch_size: 2, duration: 3s}]", "some stages have a rate and others a batch_size"),
        ("stages: [{rate: 5, batch_size: 2, duration: 3s}]", "a stage has one load"),
        ("stages: [{rate: 5, from: 1, to: 2, duration: 3s}]", "a stage has one load"),
        ("stages: [{duration: 3s}]", "a stage has one load"),
        ("stages: [{from: 1, duration: 3s}]", "a ramp needs both ends"),
        ("stages: [{rate: 0, duration: 3s}]", "no stage has a load above 0"),
        ("stages: [{batch_size: 1.5, duration: 3s}]", "1.5 is not a batch_size"),
        ("stages: [{batch_size: {from: 0, to: 4}, duration: 3s}]", "0 is not a batch_size"),
        ("stages: 5", "stages must be a list as in [{rate: 5, duration: 30s}], got 5"),
        ("stages: [{rate: 5}]", "a stage needs a duration"),
        ("stages: [{rate: 5, duration: never}]", "'never' is not a duration"),
        ("stages: [{rte: 5, duration: 3s}]", "unknown key 'rte' in a stage: did you mean 'rate'?"),
        ("stages: [{rate: 5, duration: 3s}], batch_size: 4", "'stages' together with 'batch_size'"),
        ("stages: [{rate: 5, duration: 3s}], request_rate: 4", "'stages' together with 'request_rate'"),
        ("stages: [{rate: 5, duration: 3s}], duration: 9s", "'stages' together with 'duration'"),
        ("stages: [{rate: 5, duration: 3s}], num_prompts: 9", "'stages' together with 'num_prompts'"),
        ("stages: [{rate: 5, duration: 3s}], arrivals: burst", "'stages' with arrivals that have no rate"),
        ("stages: [{rate: 5, duration: 3s}], arrivals: gamma", "'arrivals: gamma' needs 'burstiness'"),
        ("stages: [{rate: 5, duration: 3s}], burstiness: 2", "'burstiness' without 'arrivals: gamma'"),
        ("stages: [{batch_size: 5, duration: 3s}], max_concurrency: 9", "'max_concurrency'"),
        ("stages: [{batch_size: 5, duration: 3s}], arrivals: poisson", "'arrivals' without 'request_rate'"),
    ],
)
def test_stages_that_can_not_be(settings: str, said: str) -> None:
    lines = refusal(settings).splitlines()
    assert said in lines[0]
    assert lines[0].startswith("s.yaml:2: ")


def test_a_wrong_stage_is_reported_at_its_own_line() -> None:
    text = "cases:\n  - model: m\n    stages:\n      - {rate: 5, duration: 3s}\n      - {rate: x, duration: 3s}\n"
    with pytest.raises(SuiteError, match=r"s\.yaml:5: stages: 'x' is not a load"):
        load_text(text, "s.yaml")


# --- traces ---------------------------------------------------------------------------------------------------------------


def test_a_trace_is_replayed_as_a_whole_unless_something_else_is_said() -> None:
    whole = case_of("dataset: t.jsonl, arrivals: trace").load
    assert (whole.kind, whole.arrivals, whole.speed, whole.whole_trace) == ("open", "trace", 1.0, True)
    assert not case_of("dataset: t.jsonl, arrivals: trace, duration: 60s").load.whole_trace
    some = case_of("dataset: t.jsonl, arrivals: trace, num_prompts: 50, speed: 2.5, max_concurrency: 8").load
    assert (some.num_prompts, some.whole_trace, some.speed, some.max_concurrency) == (50, False, 2.5, 8)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("arrivals: trace", "'arrivals: trace' needs the trace as 'dataset'"),
        ("arrivals: trace, dataset: synthetic", "'arrivals: trace' needs the trace as 'dataset'"),
        ("arrivals: trace, dataset: t.jsonl, request_rate: 5", "'request_rate' with 'arrivals: trace'"),
        ("arrivals: trace, dataset: t.jsonl, batch_size: 5", "'batch_size' with 'arrivals: trace'"),
        ("arrivals: trace, dataset: t.jsonl, burstiness: 5", "'burstiness' with 'arrivals: trace'"),
        ("arrivals: trace, dataset: t.jsonl, speed: 0", "speed must be at least 1e-06"),
        ("dataset: t.jsonl, request_rate: 5, speed: 2", "'speed' without 'arrivals: trace'"),
    ],
)
def test_traces_that_can_not_be(settings: str, said: str) -> None:
    assert said in refusal(settings)


# --- data -----------------------------------------------------------------------------------------------------------------


def test_a_data_set_as_text_and_as_a_mapping() -> None:
    assert case_of("dataset: synthetic") == case_of("dataset: {type: synthetic}") == case_of("batch_size: 1")
    plain = case_of("dataset: data/q.jsonl")
    assert (plain.dataset, plain.data) == ("file", DataSpec(path="data/q.jsonl"))
    assert plain == case_of("dataset: {path: data/q.jsonl}")
    assert plain.input_tokens == plain.output_tokens == LengthSpec(dist="dataset", mean=128)
    full = case_of(
        "dataset: {type: csv, path: q.txt, prompt_column: q, output_tokens_column: n, min_input_tokens: 4,"
        " shuffle: false, salt: false}"
    )
    assert full.dataset == "csv"
    assert full.data == DataSpec(
        path="q.txt", prompt_column="q", output_tokens_column="n", min_input_tokens=4, shuffle=False, salt=False
    )
    assert case_of("dataset: q.csv, output_tokens: 40").output_tokens == LengthSpec(mean=40)


def test_data_sets_expand_and_name_their_cases() -> None:
    cases = cases_of("dataset: [synthetic, sub/a.jsonl, {type: mooncake, path: t.jsonl}]")
    assert [case.name for case in cases] == ["m/dataset=synthetic", "m/dataset=a.jsonl", "m/dataset=t.jsonl"]
    assert len({case_id(case) for case in cases}) == 3


def test_a_path_is_seen_from_the_folder_of_its_suite_and_a_flags_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/s.yaml").write_text("defaults: {dataset: ../q.jsonl, model: m}\ncases: [{name: a}, {name: b, dataset: r.jsonl}]\n")
    suite = load("sub/s.yaml")
    assert [case.data.path for case in suite.cases] == ["q.jsonl", "sub/r.jsonl"]
    absolute = load(str(tmp_path / "sub" / "s.yaml"))
    assert [case.data.path for case in absolute.cases] == [str(tmp_path / "q.jsonl"), str(tmp_path / "sub" / "r.jsonl")]
    Path("sub/s.yaml").write_text(f"cases: [{{model: m, dataset: {tmp_path}/x.csv}}]\n")
    assert load("sub/s.yaml").cases[0].data.path == f"{tmp_path}/x.csv"
    assert override(suite, {"dataset": "r.jsonl", "batch_size": 2}).cases[0].data.path == "r.jsonl"
    assert [case.data.path for case in override(suite, {"seed": 4}).cases] == ["q.jsonl", "sub/r.jsonl"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("dataset: sharegpt", "sharegpt needs a file: write {type: sharegpt, path: FILE}"),
        ("dataset: synthetc", "'synthetc' is neither a data set nor a file: did you mean 'synthetic'?"),
        ("dataset: {type: sharegpt}", "type sharegpt needs a file: add path: FILE"),
        ("dataset: {type: synthetic, path: a.jsonl}", "'path' is for data from a file"),
        ("dataset: {prompt_column: q}", "'prompt_column' is for data from a file"),
        ("dataset: {path: a.jsonl, prompt_colum: q}", "unknown key 'prompt_colum' in dataset: did you mean 'prompt_column'?"),
        ("dataset: {path: a.jsonl, min_input_tokens: 9, max_input_tokens: 8}", "min_input_tokens is above max_input_tokens"),
        ("dataset: a.jsonl, input_tokens: 64", "'input_tokens' with a data file"),
        ("dataset: a.jsonl, prefix_tokens: 64", "'prefix_tokens' with a data file"),
        ("dataset: [a.jsonl, a.jsonl]", "lists a.jsonl twice"),
        ("prefix_groups: 4", "'prefix_groups' without 'prefix_tokens'"),
        ("prefix_groups: 4, prefix_tokens: 0", "'prefix_groups' without 'prefix_tokens'"),
        ("prefix_groups: 1000000, prefix_tokens: 64", "'prefix_tokens' x 'prefix_groups' is above"),
    ],
)
def test_data_that_can_not_be(settings: str, said: str) -> None:
    assert said in refusal(settings)


def test_prefixes() -> None:
    data = case_of("prefix_tokens: 100, prefix_groups: 5").data
    assert (data.prefix_tokens, data.prefix_groups, data.wants_cache_hits) == (100, 5, True)
    assert case_of("prefix_tokens: 100").data.prefix_groups == 1
    assert case_of("prefix_tokens: 0").data == DataSpec()
    assert [case.data.prefix_tokens for case in cases_of("prefix_tokens: [0, 512]")] == [0, 512]


# --- flags ----------------------------------------------------------------------------------------------------------------


def flagged(**options: Any) -> Case:
    (case,) = from_options({"model": "m", **options})
    return case


def test_flags_of_data() -> None:
    assert flagged(dataset="q.jsonl").data.path == "q.jsonl"
    assert flagged(dataset={"type": "csv", "path": "q.txt"}).dataset == "csv"
    assert flagged(prefix_tokens="64", prefix_groups=3).data.prefix_groups == 3
    trace = flagged(dataset="t.jsonl", arrivals="trace", speed="2", max_concurrency=4).load
    assert (trace.speed, trace.max_concurrency, trace.batch_size) == (2.0, 4, None)
    with pytest.raises(UsageError, match=r"^--dataset: 'x' is neither a data set nor a file"):
        flagged(dataset="x")


def test_flags_take_back_what_contradicts_them() -> None:
    suite = load_text(
        "defaults: {model: m, input_tokens: 9, output_tokens: 9}\n"
        "cases: [{name: a, batch_size: 4, duration: 9s}, {name: b, stages: [{rate: 5, duration: 3s}]}]\n",
        "s.yaml",
    )
    for case in override(suite, {"dataset": "q.jsonl"}).cases:
        assert case.input_tokens.dist == case.output_tokens.dist == "dataset"
    (replayed,) = override(suite, {"dataset": "t.jsonl", "arrivals": "trace"}).cases
    assert replayed.load.whole_trace
    for option in ({"batch_size": 2}, {"request_rate": 2}):
        assert all(case.load.stages == () for case in override(suite, option).cases)
