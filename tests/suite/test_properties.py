"""Properties of every suite that can be written: round trips, spelling, matrices, and lines of errors."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench import codec
from bench.errors import SuiteError
from bench.identity import case_id, workload_id
from bench.records import Case, LengthSpec, ProtocolName
from bench.suite import from_options, shipped, text_of
from bench.suite.build import load_text

WORDS = st.from_regex(r"[a-z][a-z0-9_.-]{0,11}", fullmatch=True)
SECONDS = st.integers(5, 900)
LENGTHS = st.one_of(
    st.integers(1, 5000),
    st.fixed_dictionaries(
        {"mean": st.integers(1, 5000), "dist": st.sampled_from(["uniform", "normal", "lognormal"]), "spread": st.floats(0.01, 1)}
    ),
)
CLOSED: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={"batch_size": st.integers(1, 512), "num_prompts": st.integers(1, 900)}
)
ARRIVALS: list[dict[str, Any]] = [
    {},
    {"arrivals": "poisson"},
    {"arrivals": "constant"},
    {"arrivals": "gamma", "burstiness": 0.5},
]
OPEN: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"request_rate": st.floats(0.1, 900)}, optional={"max_concurrency": st.integers(1, 512)}
).flatmap(lambda load: st.sampled_from(ARRIVALS).map(lambda arrivals: {**load, **arrivals}))
RAMPS = st.one_of(
    st.fixed_dictionaries({"rate": st.floats(0.5, 900), "duration": SECONDS}),
    st.fixed_dictionaries({"from": st.floats(0, 90), "to": st.floats(0.5, 90), "duration": SECONDS}),
)
STAGED: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"stages": st.lists(RAMPS, min_size=1, max_size=3)}),
    st.fixed_dictionaries(
        {
            "stages": st.lists(
                st.fixed_dictionaries({"batch_size": st.integers(1, 64), "duration": SECONDS}), min_size=1, max_size=3
            )
        }
    ),
)
FILES = st.fixed_dictionaries(
    {"path": st.sampled_from(["a.jsonl", "sub/b.csv"])},
    optional={"type": st.sampled_from(["sharegpt", "jsonl", "csv"]), "prompt_column": WORDS, "salt": st.booleans()},
)
DATA: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"dataset": FILES}),
    st.fixed_dictionaries({"prefix_tokens": st.integers(1, 500)}, optional={"prefix_groups": st.integers(1, 9)}),
)
REST: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"model": WORDS},
    optional={
        "precision": WORDS,
        "protocol": st.sampled_from(get_args(ProtocolName)),
        "stream": st.booleans(),
        "batching": st.just("continuous"),
        "engine_args": st.dictionaries(
            WORDS.filter(lambda word: word not in ("password", "token")),
            st.one_of(WORDS, st.booleans(), st.integers(-9, 9), st.floats(-9, 9)),
            max_size=3,
        ),
        "devices": st.lists(WORDS, min_size=1, max_size=3, unique=True),
        "input_tokens": LENGTHS,
        "output_tokens": LENGTHS,
        "exact_lengths": st.booleans(),
        "seed": st.integers(0, 2**63 - 1),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0.01, 1),
        "warmup": st.integers(0, 100),
        "grace": st.integers(0, 100),
        "idle": st.integers(0, 100),
        "repeats": st.integers(1, 9),
        "profile": st.sampled_from(["smoke", "nightly", "official"]),
        "goodput": st.dictionaries(st.sampled_from(["ttft", "tpot", "e2e"]), st.floats(1, 9999), min_size=1),
        "workers": st.integers(1, 8),
        "labels": st.dictionaries(WORDS, WORDS, max_size=2),
    },
)


@st.composite
def settings_of_a_case(draw: st.DrawFn) -> dict[str, Any]:
    settings = draw(REST) | draw(st.one_of(CLOSED, OPEN, STAGED))
    if draw(st.booleans()):
        settings |= draw(DATA)
        if "dataset" in settings:
            settings.pop("input_tokens", None)
    if "num_prompts" not in settings and "stages" not in settings and draw(st.booleans()):
        settings["duration"] = draw(SECONDS)
    keys = draw(st.permutations(list(settings)))
    return {key: settings[key] for key in keys}


def load_one(settings: dict[str, Any]) -> Case:
    text = yaml.safe_dump({"cases": [settings]}, sort_keys=False, allow_unicode=True)
    (case,) = load_text(text, "s.yaml").cases
    return case


def tried(text: str) -> tuple[tuple[Case, ...], list[str]]:
    """Cases, or what is wrong; any other exception is a bug."""
    try:
        return load_text(text, "s.yaml").cases, []
    except SuiteError as error:
        return (), str(error).splitlines()


def written_out(case: Case) -> dict[str, Any]:
    """A resolved case as explicit settings: what a person would write who trusts no default."""

    def length(spec: LengthSpec) -> Any:
        return spec.mean if spec.dist == "fixed" else {"mean": spec.mean, "dist": spec.dist, "spread": spec.spread}

    load, data = case.load, case.data
    unit = "rate" if load.kind == "open" else "batch_size"
    file = {"path": data.path, "prompt_column": data.prompt_column, "salt": data.salt, "shuffle": data.shuffle}
    more: dict[str, Any] = {
        "stages": [{unit: {"from": s.start, "to": s.end}, "duration": s.duration_s} for s in load.stages] or None,
        "dataset": "synthetic"
        if case.dataset == "synthetic"
        else {**file, "type": None if case.dataset == "file" else case.dataset},
        "prefix_tokens": data.prefix_tokens,
        "prefix_groups": data.prefix_groups or None,
    }
    if case.dataset != "synthetic":
        more |= {"prefix_tokens": None, "input_tokens": None}
        more |= {"output_tokens": None} if case.output_tokens.dist == "dataset" else {}
    settings: dict[str, Any] = {
        "name": case.name,
        "model": case.model,
        "precision": case.precision,
        "engine": case.engine,
        "engine_args": case.engine_args,
        "protocol": case.protocol,
        "stream": case.stream,
        "batching": case.batching,
        "batch_size": None if load.stages else load.batch_size,
        "request_rate": load.request_rate,
        "arrivals": load.arrivals,
        "burstiness": load.burstiness,
        "max_concurrency": load.max_concurrency,
        "num_prompts": load.num_prompts,
        "input_tokens": length(case.input_tokens),
        "output_tokens": length(case.output_tokens),
        "exact_lengths": case.exact_lengths,
        "seed": case.seed,
        "temperature": case.sampling.temperature,
        "top_p": case.sampling.top_p,
        "ignore_eos": case.sampling.ignore_eos,
        "duration": None if load.num_prompts or load.stages else case.duration_s,
        "warmup": f"{case.warmup_s:.0f}s",
        "grace": case.grace_s,
        "request_timeout": f"{case.request_timeout_s / 60:.0f}m",
        "idle": case.idle_s,
        "repeats": float(case.repeats),
        "profile": case.profile.value,
        "goodput": {slo.metric: slo.limit_ms for slo in case.slos} or None,
        "workers": case.client_workers,
        "labels": case.labels,
    }
    return {**settings, **more, "devices": list(case.devices) or None}


@given(settings_of_a_case())
def test_a_case_written_out_in_full_is_the_same_case(settings: dict[str, Any]) -> None:
    case = load_one(settings)
    again = load_one(written_out(case))
    assert again == case
    assert case_id(again) == case_id(case)


@given(settings_of_a_case())
def test_a_case_survives_json_with_its_ids(settings: dict[str, Any]) -> None:
    case = load_one(settings)
    again = codec.decode(codec.encode(case), Case)
    assert again == case
    assert (case_id(again), workload_id(again)) == (case_id(case), workload_id(case))


@given(settings_of_a_case(), st.randoms(use_true_random=False))
def test_neither_key_order_nor_defaults_change_the_case(settings: dict[str, Any], random: Any) -> None:
    keys = list(settings)
    random.shuffle(keys)
    moved = {key: settings[key] for key in keys if random.random() < 0.5}
    text = yaml.safe_dump(
        {"defaults": moved, "cases": [{key: settings[key] for key in keys if key not in moved}]}, sort_keys=False
    )
    (case,) = load_text(text, "s.yaml").cases
    assert case == load_one(settings)
    assert case_id(case) == case_id(load_one(settings))


@given(settings_of_a_case())
def test_flags_and_files_mean_the_same(settings: dict[str, Any]) -> None:
    (from_flags,) = from_options(settings, name="s")
    assert from_flags == load_one(settings)


@given(st.integers(1, 10_000))
def test_how_a_duration_is_spelled_does_not_change_the_case(minutes: int) -> None:
    spellings = [60 * minutes, 60.0 * minutes, f"{60 * minutes}s", f"{60 * minutes} sec", f"{minutes}m", f"{minutes} MIN"]
    spellings += [f"{60 * minutes}", f"{60_000 * minutes}ms"] + ([f"{minutes // 60}h"] if minutes % 60 == 0 else [])
    ids = {case_id(load_one({"model": "m", "duration": spelling})) for spelling in spellings}
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"batch_size": 4}, {"batch_size": 4.0}),
        ({}, {"batch_size": 1}),
        ({}, {"batch_size": None, "profile": "smoke", "duration": "10s", "seed": 0}),
        ({"input_tokens": 64}, {"input_tokens": {"mean": 64.0}}),
        ({"input_tokens": 64}, {"input_tokens": {"mean": 64, "dist": "fixed", "spread": 0}}),
        ({"request_rate": 2}, {"request_rate": 2.0, "arrivals": "poisson"}),
        ({"request_rate": "inf", "num_prompts": 3}, {"request_rate": math.inf, "num_prompts": 3, "arrivals": "burst"}),
        ({"temperature": 0}, {"temperature": -0.0}),
        ({"warmup": 0}, {"warmup": -0.0}),
        ({"goodput": ["ttft:200", "tpot:50"]}, {"goodput": {"tpot": 50.0, "ttft": 200}}),
        ({"devices": 0}, {"devices": ["0"]}),
        ({"devices": "0,1"}, {"devices": [0, "1"]}),
        ({"base_url": "http://h/v1"}, {"base_url": "http://h/v1/", "engine": "openai"}),
        ({"name": "a", "labels": {"x": "y"}}, {"name": "b"}),
        ({"base_url": "http://h", "api_key_env": "A"}, {"base_url": "http://h", "api_key_env": "B"}),
    ],
)
def test_two_spellings_of_one_meaning_have_one_id(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert case_id(load_one({"model": "m", **one})) == case_id(load_one({"model": "m", **other}))


AXES: dict[str, list[Any]] = {
    "model": ["a", "b", "c", "d"],
    "precision": ["w", "x", "y", "z"],
    "batch_size": [1, 2, 4, 8],
    "input_tokens": [16, {"mean": 16, "dist": "uniform", "spread": 0.5}, 32, 64],
    "duration": ["10s", "20s", "1m", 600],
    "ignore_eos": [True, False],
    "profile": ["smoke", "nightly", "official"],
    "seed": [1, 2, 3, 4],
}


@given(st.dictionaries(st.sampled_from(sorted(AXES)), st.integers(1, 4), max_size=5), st.booleans())
def test_sizes_of_a_matrix_multiply_and_every_point_is_its_own(sizes: dict[str, int], in_defaults: bool) -> None:
    axes = {key: AXES[key][:size] for key, size in sizes.items()}
    rest = {} if "model" in axes else {"model": "m"}
    parts = {"defaults": axes, "cases": [rest]} if in_defaults else {"cases": [{**axes, **rest}]}
    cases = load_text(yaml.safe_dump(parts, sort_keys=False), "s.yaml").cases
    expected = math.prod(len(values) for values in axes.values())
    assert len(cases) == len({case_id(case) for case in cases}) == len({case.name for case in cases}) == expected


@given(
    st.lists(settings_of_a_case(), min_size=1, max_size=3),
    st.integers(0, 30),
    st.sampled_from(["batchsize", "durration", "zzz", "Model", "input-tokens"]),
)
def test_an_unknown_key_anywhere_names_its_line(cases: list[dict[str, Any]], where: int, key: str) -> None:
    named = [{"name": f"c{i}", **settings, "seed": i} for i, settings in enumerate(cases)]
    mappings: list[dict[str, Any]] = [{"idle": 1}, *named]
    at = where % len(mappings)
    entries = list(mappings[at].items())
    entries.insert(where % (len(entries) + 1), (key, 1))
    mappings[at] = dict(entries)
    text = yaml.safe_dump({"defaults": mappings[0], "cases": mappings[1:]}, sort_keys=False)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f" {key}: 1"))
    _, problems = tried(text)
    assert len(problems) == 1
    assert problems[0].startswith(f"s.yaml:{line}: unknown key {key!r}")


@given(st.text(max_size=200))
def test_any_text_is_a_suite_or_a_suite_error(text: str) -> None:
    cases, problems = tried(text)
    assert bool(cases) != bool(problems)
    assert all(line.startswith("s.yaml:") for line in problems)


@given(st.sampled_from([info.name for info in shipped()]), st.data())
def test_a_damaged_suite_is_a_suite_or_a_suite_error(name: str, data: st.DataObject) -> None:
    text = text_of(name)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.sampled_from([0, 1, 2, 40]))
        text = (
            text[:at]
            + data.draw(st.sampled_from([*"\t\n :-[]{}&*!|>'\"%@`#,?0a", "\n\n", "- ", ": ", "*x", "&x "]))
            + text[at + length :]
        )
    cases, problems = tried(text)
    assert bool(cases) != bool(problems)
    assert all(line.startswith("s.yaml:") for line in problems)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["m", "5m", "inf"])),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["mean", "ttft", "a"]), inner)),
        max_leaves=5,
    ),
    st.sampled_from(
        ["model", "batch_size", "input_tokens", "goodput", "devices", "duration", "engine_args", "labels", "request_rate"]
    ),
)
def test_any_value_of_any_key_is_a_case_or_a_suite_error(value: Any, key: str) -> None:
    text = yaml.safe_dump({"cases": [{"model": "m", key: value}]}, allow_unicode=True)
    cases, problems = tried(text)
    assert bool(cases) != bool(problems)
    assert all(line.startswith("s.yaml:") for line in problems)
    assert all(len(case_id(case)) == 16 for case in cases)
