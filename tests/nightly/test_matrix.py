"""A suite as jobs: every case once, none too long, never too many; and the cases that `bench run --case` picks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import plugins, suite
from bench.errors import UsageError
from bench.lab.matrix import ENGINE_START_S, LONGEST_LIMIT_MINUTES, Job, Place, Wishes, jobs_of, paired, place_of
from bench.suite import Suite
from bench.suite.build import load_text
from tests.in_process import Bench

CPU = Place(vendor="cpu")
NVIDIA = Place(vendor="nvidia", device="h100")


def a_suite(*cases: str) -> Suite:
    """Cases of a mock engine, of a minute each with ten seconds before it."""
    head = "defaults: {engine: mock, model: m, duration: 60s, warmup: 10s, idle: 10s, profile: nightly}\ncases:\n"
    return load_text(head + "\n".join(f"- {{{case}}}" for case in cases) + "\n", "demo.yaml")


def jobs(chosen: Suite, *places: Place, **wishes: object) -> list[Job]:
    return jobs_of(chosen, "demo", Wishes(places=places or (CPU,), **wishes))  # type: ignore[arg-type]


def names(job: Job) -> list[str]:
    return job.cases.splitlines()


def test_one_job_a_kind_of_host_and_engine() -> None:
    chosen = a_suite("name: a", "name: b, engine: openai, base_url: 'http://x'", "name: c, devices: [0, 1]")
    found = {job.id: (job.runs_on, names(job)) for job in jobs(chosen, NVIDIA, CPU)}
    lab = ("self-hosted", "bench")
    assert found == {
        "nvidia-h100-x1-mock": ((*lab, "vendor-nvidia", "dev-h100", "x1"), ["a"]),
        "nvidia-h100-x1-openai": ((*lab, "vendor-nvidia", "dev-h100", "x1"), ["b"]),
        "nvidia-h100-x2-mock": ((*lab, "vendor-nvidia", "dev-h100", "x2"), ["c"]),
        "cpu-x1-mock": ((*lab, "vendor-cpu", "x1"), ["a"]),
        "cpu-x1-openai": ((*lab, "vendor-cpu", "x1"), ["b"]),
        "cpu-x2-mock": ((*lab, "vendor-cpu", "x2"), ["c"]),
    }


def test_a_case_runs_where_its_devices_are() -> None:
    chosen = a_suite("name: a, devices: ['nvidia:0']", "name: b, devices: ['ascend:0']")
    assert [names(job) for job in jobs(chosen, NVIDIA)] == [["a"]]
    by_address = a_suite("name: a, devices: ['0000:3b:00.0']")
    assert [names(job) for job in jobs(by_address, NVIDIA)] == [["a"]]
    with pytest.raises(UsageError, match="no case of demo runs on cpu"):
        jobs(chosen, CPU)


def test_parallel_ranks_and_sweeps_count() -> None:
    chosen = a_suite("name: wide, engine: vllm, tp: 4", "name: knee, sweep: {find: knee, points: 6}, repeats: 1")
    wide, knee = jobs(chosen)
    assert (wide.devices, wide.id) == (4, "cpu-x4-vllm")
    assert (names(knee), knee.minutes) == (["knee"], 10)  # 6 points of 70 s, 20 s of idle, 120 s for the start


def test_expected_time_is_load_and_idle_and_a_start() -> None:
    (job,) = jobs(a_suite("name: a, batch_size: [1, 2]"))
    assert job.minutes == -(-(2 * 3 * 70 + 20 + ENGINE_START_S) // 60)
    assert job.limit_minutes > 2 * job.minutes
    (endless,) = jobs(a_suite("name: a, duration: 72h, profile: official"))
    assert endless.limit_minutes == LONGEST_LIMIT_MINUTES


@given(
    starts=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    minutes=st.floats(1.0, 60.0),
    most=st.integers(1, 12),
)
def test_every_case_is_in_one_job(starts: list[int], minutes: float, most: int) -> None:
    """Whatever is asked for; and a job that is longer than wanted is so because there may be no more of them."""
    chosen = a_suite(
        *(f"name: 'c{n}', engine_args: {{gap_ms: {n}}}, batch_size: {list(range(1, c + 1))}" for n, c in enumerate(starts))
    )
    found = jobs(chosen, job_minutes=minutes, most_jobs=most)
    assert [name for job in found for name in names(job)] == [case.name for case in chosen.cases]
    assert len(found) <= most
    assert len({job.id for job in found}) == len(found)
    assert found == jobs(chosen, job_minutes=minutes, most_jobs=most)
    unlimited = jobs(chosen, job_minutes=minutes)
    if len(unlimited) <= most:
        assert all(job.minutes <= minutes + 1 or len(names(job)) == 1 for job in found)


def test_an_engine_start_is_cut_only_where_it_must_be() -> None:
    chosen = a_suite("name: a, engine_args: {gap_ms: 1}, batch_size: [1, 2]", "name: b, engine_args: {gap_ms: 2}")
    assert [len(names(job)) for job in jobs(chosen, job_minutes=10.0)] == [2, 1]
    assert [len(names(job)) for job in jobs(chosen, job_minutes=1.0)] == [1, 1, 1]
    assert [len(names(job)) for job in jobs(chosen, job_minutes=60.0)] == [3]


def test_githubs_limit_holds_for_the_largest_suite() -> None:
    chosen = a_suite("name: a, batch_size: [" + ", ".join(map(str, range(1, 601))) + "]")
    found = jobs(chosen, job_minutes=1.0)
    assert len(found) <= 256
    assert sum(len(names(job)) for job in found) == 600
    with pytest.raises(UsageError, match="2 kinds of host and engine are more than 1 jobs"):
        jobs(chosen, CPU, NVIDIA, most_jobs=1)


def test_pairs_run_where_the_case_ran() -> None:
    chosen = a_suite("name: a, batch_size: [1, 2]")
    (job,) = jobs(chosen)
    pairs = paired(job, chosen, ["a/batch_size=2"], ("engine_python=/old", "engine_python=/new"))
    assert (pairs.runs_on, names(pairs), pairs.pairs) == (job.runs_on, ["a/batch_size=2"], 5)
    assert (pairs.ab_base, pairs.ab_cand) == ("engine_python=/old", "engine_python=/new")
    assert pairs.minutes == -(-10 * (70 + 20 + ENGINE_START_S) // 60)
    assert pairs.id.startswith(f"{job.id}-ab-")
    assert pairs.id != paired(job, chosen, ["a/batch_size=2"], ("engine_python=/older", "engine_python=/new")).id


@pytest.mark.parametrize(
    ("text", "place"), [("cpu", CPU), ("nvidia/h100", NVIDIA), ("amd/mi300x-8.2", Place(vendor="amd", device="mi300x-8.2"))]
)
def test_places(text: str, place: Place) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["", "/", "nvidia/", "NVIDIA", "a b", "nvidia/h100/0", "x\n", "-x"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no VENDOR or VENDOR/DEVICE"):
        place_of(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("nvidea/h100", "did you mean nvidia/h100?"),
        ("nvidea", "did you mean nvidia?"),
        ("ascent/910b", "did you mean ascend/910b?"),
        ("h100", "did you mean nvidia/h100?"),
        ("mi300x", "did you mean amd/mi300x?"),
        ("zzzz/h100", "one of: amd, "),
    ],
)
def test_a_vendor_that_nobody_knows_is_refused_with_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match="names no vendor") as caught:
        place_of(text)
    assert (caught.value.hint or "").startswith(hint)


@pytest.mark.parametrize("vendor", plugins.names("bench.probes"))
def test_every_vendor_is_a_place(vendor: str) -> None:
    assert place_of(f"{vendor}/any-word-1") == Place(vendor=vendor, device="any-word-1")


def test_the_command_prints_one_line_for_github(bench: Bench) -> None:
    ran = bench("matrix", "smoke", "--on", "nvidia/h100,cpu,cpu", "--image", "a/b:1", "--json")
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    include = json.loads(ran.out)["include"]
    assert [job["id"] for job in include] == ["nvidia-h100-x1-mock", "cpu-x1-mock"]
    assert {job["image"] for job in include} == {"a/b:1"}
    assert include[0]["cases"].splitlines() == [case.name for case in suite.load("smoke").cases]
    assert (include[0]["pairs"], include[0]["ab_base"]) == (0, "")


def test_the_command_prints_a_table_for_people(bench: Bench) -> None:
    ran = bench("matrix", "smoke", "--runner", "ubuntu-24.04")
    assert ran.code == 0
    assert [line.split() for line in ran.out.splitlines()[:2]] == [
        ["job", "runs", "on", "cases", "expected", "limit"],
        ["cpu-x1-mock", "ubuntu-24.04", "3", "3", "min", "16", "min"],
    ]
    assert ran.out.endswith("1 job, 3 minutes of machines\n")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("nothing",), "there is no such suite"),
        (("smoke", "--on", "no where"), "is no VENDOR"),
        (("smoke", "--on", "cpu,nvidea/h100"), "did you mean nvidia/h100?"),
        (("smoke", "--image", "a/b:latest"), "which moves"),
        (("smoke", "--image", "a/b"), "has no tag"),
        (("smoke", "--job-time", "soon"), "--job-time"),
        (("smoke", "--most-jobs", "300"), "--most-jobs"),
        (("smoke", "--night", "2026-12-01"), "--night without --confirm"),
        (("smoke", "--confirm", "--night", "2026-12-1"), "is no day"),
    ],
)
def test_bad_wishes_are_errors(bench: Bench, args: tuple[str, ...], told: str) -> None:
    ran = bench("matrix", *args)
    assert (ran.code, told in ran.err) == (2, True), ran.err


def test_nothing_to_confirm_is_no_job(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "results" / "shards").mkdir(parents=True)
    assert json.loads(bench("matrix", "smoke", "--confirm", "--json").out) == {"include": []}


# --- bench run --case ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "measured"),
    [
        (("open",), ["open"]),
        (("closed/*",), ["closed/batch_size=1", "closed/batch_size=16"]),
        (("closed/batch_size=1",), ["closed/batch_size=1"]),
        (("open\nclosed/batch_size=16",), ["closed/batch_size=16", "open"]),
        (("open", "*=1"), ["closed/batch_size=1", "open"]),
        ((), ["closed/batch_size=1", "closed/batch_size=16", "open"]),
    ],
)
def test_cases_are_picked_by_name(bench: Bench, wanted: tuple[str, ...], measured: list[str]) -> None:
    ran = bench("run", "smoke", *(part for name in wanted for part in ("--case", name)), "--dry-run", "--json")
    assert [case["name"] for case in json.loads(ran.out)["lines"]] == measured


def test_a_case_that_is_not_there_is_an_error_with_the_nearest(bench: Bench) -> None:
    ran = bench("run", "smoke", "--case", "opn", "--dry-run")
    assert ran.code == 2
    assert "no case is called 'opn': did you mean 'open'?" in ran.err


def test_pairs_of_a_picked_case_also_where_a_side_changes_its_name(bench: Bench) -> None:
    ran = bench("run", "smoke", "--case", "open", "--ab", "", "engine_args.gap_ms=108", "--dry-run", "--json")
    assert [(case["name"], case["trials"]) for case in json.loads(ran.out)["lines"]] == [
        ("open (ab_base)", 5),
        ("open (ab_cand)", 5),
    ]
    ran = bench("run", "smoke", "--case", "closed/batch_size=16", "--ab", "batch_size=2", "", "--dry-run")
    assert ran.code == 2
    assert "how many cases" in ran.err or "the base has" in ran.err


def test_a_resumed_run_takes_no_cases(bench: Bench) -> None:
    ran = bench("run", "--resume", "latest", "--case", "open")
    assert ran.code == 2
    assert "--case" in ran.err
