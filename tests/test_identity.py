from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.identity import case_id, config_id, digest, series_id, trial_id, workload_id
from bench.records import (
    Case,
    ContainerSpec,
    DataSpec,
    DeviceInfo,
    EngineHandle,
    LengthSpec,
    LoadSpec,
    LocalModel,
    Parallelism,
    Profile,
    Sampling,
    Slo,
    Stage,
)

CASE = Case(
    name="c",
    suite="s",
    model="m",
    model_source=None,
    precision="fp16",
    engine="mock",
    engine_args={"threads": 2, "flash": True},
    load=LoadSpec(kind="closed", batch_size=4),
    input_tokens=LengthSpec(mean=64),
    output_tokens=LengthSpec(mean=32),
    duration_s=10.0,
    warmup_s=2.0,
    grace_s=30.0,
    request_timeout_s=600.0,
    idle_s=2.0,
    repeats=3,
    profile=Profile.SMOKE,
)
FOR_PEOPLE: dict[str, Any] = {"name": "other", "suite": "other", "labels": {"a": "b"}, "api_key_env": "OTHER"}
MEASURED: dict[str, Any] = {
    "model": "other",
    "model_source": "path:/other",
    "precision": "int8",
    "engine": "llamacpp",
    "engine_args": {"threads": 3, "flash": True},
    "engine_python": "/other/bin/python",
    "container": ContainerSpec(tool="docker", image="vllm/vllm-openai:v0.11.0"),
    "parallel": Parallelism(tp=2),
    "base_url": "http://other",
    "protocol": "openai-completions",
    "stream": False,
    "batching": "static",
    "tokenizer": "tokenizer.json",
    "devices": ("0",),
    "load": LoadSpec(kind="closed", batch_size=5),
    "input_tokens": LengthSpec(mean=65),
    "output_tokens": LengthSpec(mean=33),
    "exact_lengths": True,
    "dataset": "jsonl",
    "data": DataSpec(sha256="abc"),
    "seed": 1,
    "sampling": Sampling(temperature=0.5),
    "duration_s": 11.0,
    "warmup_s": 3.0,
    "grace_s": 31.0,
    "request_timeout_s": 601.0,
    "idle_s": 3.0,
    "repeats": 4,
    "profile": Profile.NIGHTLY,
    "slos": (Slo(metric="ttft", limit_ms=200.0),),
    "client_workers": 2,
}
INNER: list[tuple[str, Any]] = [
    ("load", LoadSpec(kind="open", batch_size=4)),
    ("load", LoadSpec(kind="closed", batch_size=4, request_rate=1.0)),
    ("load", LoadSpec(kind="closed", batch_size=4, arrivals="poisson")),
    ("load", LoadSpec(kind="closed", batch_size=4, burstiness=1.0)),
    ("load", LoadSpec(kind="closed", batch_size=4, max_concurrency=4)),
    ("load", LoadSpec(kind="closed", batch_size=4, num_prompts=4)),
    ("load", LoadSpec(kind="closed", batch_size=4, stages=(Stage(start=1, end=1, duration_s=1),))),
    ("load", LoadSpec(kind="closed", batch_size=4, stages=(Stage(start=2, end=1, duration_s=1),))),
    ("load", LoadSpec(kind="closed", batch_size=4, stages=(Stage(start=1, end=2, duration_s=1),))),
    ("load", LoadSpec(kind="closed", batch_size=4, stages=(Stage(start=1, end=1, duration_s=2),))),
    ("load", LoadSpec(kind="closed", batch_size=4, speed=1.0)),
    ("load", LoadSpec(kind="closed", batch_size=4, whole_trace=True)),
    ("data", DataSpec(path="a.jsonl")),
    ("data", DataSpec(rows=5)),
    ("data", DataSpec(prompt_column="p")),
    ("data", DataSpec(output_tokens_column="n")),
    ("data", DataSpec(min_input_tokens=1)),
    ("data", DataSpec(max_input_tokens=1)),
    ("data", DataSpec(min_output_tokens=1)),
    ("data", DataSpec(max_output_tokens=1)),
    ("data", DataSpec(shuffle=False)),
    ("data", DataSpec(salt=False)),
    ("data", DataSpec(prefix_tokens=1)),
    ("data", DataSpec(prefix_groups=1)),
    ("data", DataSpec(shares_prefixes=True)),
    ("input_tokens", LengthSpec(mean=64, largest=65)),
    ("input_tokens", LengthSpec(mean=64, dist="uniform", spread=0.0)),
    ("input_tokens", LengthSpec(mean=64, dist="fixed", spread=0.5)),
    ("sampling", Sampling(top_p=0.5)),
    ("sampling", Sampling(ignore_eos=False)),
]
OF_THE_WORKLOAD = {
    "load",
    "input_tokens",
    "output_tokens",
    "exact_lengths",
    "dataset",
    "data",
    "protocol",
    "stream",
    "seed",
    "sampling",
}


def test_digests_are_the_same_for_ever() -> None:
    """A changed digest splits every history in two: raise the schema version, and say so in the changelog."""
    assert digest(None) == "74234e98afe7498f"
    assert digest({"b": [1, 2.5, "ü"], "a": {"x": True, "y": None}}) == "5e1074c80b0b79ed"
    assert case_id(CASE) == "e353069edafd82e5"
    assert workload_id(CASE) == "ef8e6036186a3ea2"
    assert trial_id("run", "case", 0, "measure") == "eadeeee80f6c8d24"


def test_the_tables_of_this_file_hold_every_field_of_a_case() -> None:
    assert {field.name for field in structs.fields(Case)} == set(FOR_PEOPLE) | set(MEASURED)


@pytest.mark.parametrize("field", sorted(MEASURED))
def test_every_measured_field_changes_the_case(field: str) -> None:
    changed = structs.replace(CASE, **{field: MEASURED[field]})
    assert case_id(changed) != case_id(CASE)
    assert (workload_id(changed) != workload_id(CASE)) == (field in OF_THE_WORKLOAD)


@pytest.mark.parametrize(("field", "value"), INNER)
def test_every_field_inside_changes_the_case_and_the_workload(field: str, value: Any) -> None:
    changed = structs.replace(CASE, **{field: value})
    assert case_id(changed) != case_id(CASE)
    assert workload_id(changed) != workload_id(CASE)


@pytest.mark.parametrize("field", sorted(FOR_PEOPLE))
def test_what_is_for_people_does_not(field: str) -> None:
    changed = structs.replace(CASE, **{field: FOR_PEOPLE[field]})
    assert (case_id(changed), workload_id(changed)) == (case_id(CASE), workload_id(CASE))


def test_ids_of_one_changed_field_are_all_different() -> None:
    cases = [CASE, *(structs.replace(CASE, **{field: value}) for field, value in [*MEASURED.items(), *INNER])]
    assert len({case_id(case) for case in cases}) == len(cases)


def test_a_dataset_is_known_by_its_content() -> None:
    one = structs.replace(CASE, dataset="a.jsonl")
    other = structs.replace(CASE, dataset="copy/of/a.jsonl")
    assert workload_id(one, "sha") == workload_id(other, "sha") != workload_id(one, "other sha")
    assert workload_id(one) != workload_id(other)


def test_a_file_whose_content_is_known_counts_by_that_wherever_it_lies() -> None:
    here, there = (structs.replace(CASE, data=DataSpec(path=path, sha256="abc")) for path in ("a.jsonl", "/data/b.jsonl"))
    changed = structs.replace(CASE, data=DataSpec(path="a.jsonl", sha256="def"))
    assert (case_id(here), workload_id(here)) == (case_id(there), workload_id(there))
    assert case_id(here) != case_id(changed)
    assert workload_id(here) != workload_id(changed)


def test_every_field_of_the_parts_is_tried_above() -> None:
    """A new field of a load, a length or the data without a line in `INNER` fails here."""
    base = {"load": CASE.load, "input_tokens": CASE.input_tokens, "data": CASE.data, "sampling": CASE.sampling}
    for name, record in base.items():
        tried = {
            field.name
            for part, value in [*INNER, *((n, v) for n, v in MEASURED.items() if n in base)]
            if part == name
            for field in structs.fields(record)
            if getattr(value, field.name) != getattr(record, field.name)
        }
        assert tried == {field.name for field in structs.fields(record)}, name


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_the_order_of_keys(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert digest({key: value[key] for key in keys}) == digest(value)
    assert len(digest(value)) == 16


@given(st.lists(VALUES, max_size=4))
def test_tuples_and_lists_are_the_same_and_their_order_counts(values: list[Any]) -> None:
    assert digest(tuple(values)) == digest(values)
    assert digest([values, 1]) != digest([1, values])


def test_not_a_number_has_no_digest() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest({"x": float("nan")})


@pytest.mark.parametrize("changed", [("r2", "c", 0, "m"), ("r", "c2", 0, "m"), ("r", "c", 1, "m"), ("r", "c", 0, "m2")])
def test_every_part_of_a_trial_counts(changed: tuple[str, str, int, str]) -> None:
    assert trial_id(*changed) != trial_id("r", "c", 0, "m")


MODEL = LocalModel(name="m", source="path:/m", path="/m", format="gguf", size_b=1, weights_sha256="abc")
ENGINE = EngineHandle(
    name="mock",
    version="1",
    build="b1",
    command=("x",),
    env={},
    pids=(1,),
    settings={"n": 1},
    precision=None,
    start_s=1.0,
    log_path=None,
)
BOARD = DeviceInfo(
    uid="gpu-0", name="Chip", vendor="v", probe="nvidia", index=0, scope="accelerator", driver="1.0", power_limit_w=300.0
)


def series(case: Case = CASE, model: LocalModel | None = MODEL, engine: EngineHandle = ENGINE, *boards: DeviceInfo) -> str:
    return series_id(case, workload_id(case), model, engine, boards or (BOARD,))


def test_a_series_goes_on_over_versions_drivers_ports_and_machines() -> None:
    moved = structs.replace(CASE, engine_args={**CASE.engine_args, "port": 9, "log_file": "/x", "api_key": "k"})
    newer = structs.replace(ENGINE, version="2", build="b2", settings={"n": 2}, pids=(7,))
    twin = structs.replace(BOARD, uid="gpu-7", driver="2.0")
    elsewhere = structs.replace(MODEL, path="/elsewhere")
    assert series(moved, elsewhere, newer, twin) == series()


@pytest.mark.parametrize(
    "other",
    [
        series(structs.replace(CASE, engine_args={"threads": 3})),
        series(structs.replace(CASE, precision="int8")),
        series(structs.replace(CASE, seed=9)),
        series(structs.replace(CASE, batching="static")),
        series(CASE, structs.replace(MODEL, weights_sha256="other")),
        series(CASE, None),
        series(CASE, MODEL, structs.replace(ENGINE, name="other")),
        series(CASE, MODEL, structs.replace(ENGINE, precision="int4")),
        series(CASE, MODEL, ENGINE, BOARD, BOARD),
        series(CASE, MODEL, ENGINE, structs.replace(BOARD, name="Other")),
        series(CASE, MODEL, ENGINE, structs.replace(BOARD, power_limit_w=200.0)),
    ],
)
def test_another_workload_model_engine_or_board_is_another_series(other: str) -> None:
    assert other != series()


@pytest.mark.parametrize(
    "engine", [structs.replace(ENGINE, **change) for change in ({"version": "2"}, {"build": "b2"}, {"settings": {"n": 2}})]
)
def test_a_configuration_ends_with_the_version_build_and_settings(engine: EngineHandle) -> None:
    assert config_id("s", engine, (BOARD,)) != config_id("s", ENGINE, (BOARD,))


def test_a_configuration_ends_with_the_driver_and_ignores_the_host() -> None:
    assert config_id("s", ENGINE, (structs.replace(BOARD, driver="2"),)) != config_id("s", ENGINE, (BOARD,))
    host = structs.replace(BOARD, scope="cpu_package", driver="other")
    assert config_id("s", ENGINE, (BOARD, host)) == config_id("s", ENGINE, (BOARD,))
    moved = structs.replace(ENGINE, pids=(9,), command=("y",), log_path="/x")
    assert config_id("s", moved, (BOARD,)) == config_id("s", ENGINE, (BOARD,))


def test_another_attempt_is_another_trial_and_the_first_has_the_id_it_always_had() -> None:
    first = trial_id("run", "case", 1, "measure")
    assert trial_id("run", "case", 1, "measure", 1) == first == digest(["run", "case", 1, "measure"])
    assert len({first, trial_id("run", "case", 1, "measure", 2), trial_id("run", "case", 1, "measure", 3)}) == 3
