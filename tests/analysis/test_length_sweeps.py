"""Which stored trials make a sweep of lengths, and what it splits into."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bench.analysis.energy_split import EnergySplit
from bench.analysis.length_sweeps import LengthSweep, length_sweeps
from bench.records import LengthSpec, LoadSpec, Status, TrialRecord, Window
from tests.factories import make_case, make_device, make_engine, make_metrics, make_record

A_J, B_J, C_W = 0.02, 0.3, 110.0
LENGTHS = list(itertools.product((64, 1024, 4096), (32, 256)))
SECONDS = 60.0


def trial(
    prompt: int, reply: int, *, energy: str = "energy_accelerator_j", case: dict[str, Any] | None = None, **over: Any
) -> TrialRecord:
    """A minute of eight requests at once, each taking 0.2 s and 10 ms a token; joules by the law."""
    each_s = 0.2 + 0.01 * reply
    metrics = make_metrics(
        input_tok_per_s=8 * prompt / each_s,
        output_tok_per_s=8 * reply / each_s,
        **{energy: SECONDS * (C_W + 8 * (A_J * prompt + B_J * reply) / each_s)},
    )
    lengths = {"input_tokens": LengthSpec(mean=prompt), "output_tokens": LengthSpec(mean=reply)}
    window = Window(t0_ns=0, t1_ns=round(SECONDS * 1e9))
    return make_record(case=make_case(**lengths, **(case or {})), **{"metrics": metrics, "window": window, **over})


def sweep(records: list[TrialRecord]) -> LengthSweep:
    (found,) = length_sweeps(records)
    return found


def test_the_law_comes_back() -> None:
    found = sweep([trial(*lengths) for lengths in LENGTHS])
    assert isinstance(found.split, EnergySplit), found.split
    assert found.split.j_per_input_tok.value == pytest.approx(A_J)
    assert found.split.j_per_output_tok.value == pytest.approx(B_J)
    assert found.split.idle_w.value == pytest.approx(C_W)
    assert (found.lengths, len(found.trials), found.quality) == (6, 6, "measured")


def test_repeats_and_other_seeds_and_runs_belong_to_the_sweep() -> None:
    again = [trial(*lengths, case={"seed": 7, "name": "again"}, run_id="run-2") for lengths in LENGTHS]
    found = sweep([trial(*lengths) for lengths in LENGTHS] + again)
    assert (found.lengths, len(found.trials)) == (6, 12)


OTHER: list[dict[str, Any]] = [
    {"case": {"load": LoadSpec(kind="closed", batch_size=64)}},
    {"case": {"model": "other"}},
    {"case": {"precision": "fp8"}},
    {"case": {"engine_args": {"slots": 4}}},
    {"devices": (make_device(uid="GPU-0002"),)},
    {"engine": make_engine(version="2.0")},
]


@pytest.mark.parametrize("other", OTHER)
def test_what_differs_in_more_than_lengths_is_another_sweep(other: dict[str, Any]) -> None:
    found = length_sweeps([trial(*lengths) for lengths in LENGTHS] + [trial(*lengths, **other) for lengths in LENGTHS])
    assert [len(one.trials) for one in found] == [6, 6]


@pytest.mark.parametrize(
    "useless",
    [
        {"status": Status.INVALID},
        {"energy": "energy_node_j"},
        {"window": None},
        {"energy_scope": None},
        {"metrics": make_metrics(energy_accelerator_j=100.0, input_tok_per_s=None, output_tok_per_s=5.0)},
    ],
)
def test_trials_without_a_valid_energy_or_counts_are_left_out(useless: dict[str, Any]) -> None:
    found = sweep([trial(*lengths) for lengths in LENGTHS] + [trial(9, 9, **useless)])
    assert (found.lengths, len(found.trials)) == (6, 6)


def test_simulated_joules_are_a_sweep_of_their_own() -> None:
    simulated = [trial(*lengths, energy="energy_accelerator_simulated_j") for lengths in LENGTHS]
    found = length_sweeps([*simulated, *(trial(*lengths) for lengths in LENGTHS)])
    assert sorted((one.quality, len(one.trials)) for one in found) == [("measured", 6), ("simulated", 6)]


def test_one_pair_of_lengths_is_no_sweep() -> None:
    assert length_sweeps([trial(64, 32, repeat=i) for i in range(9)]) == []


def test_two_pairs_can_not_be_split_however_often_they_are_repeated() -> None:
    found = sweep([trial(*lengths, repeat=i) for lengths in LENGTHS[:2] for i in range(6)])
    assert found.split == "2 pairs of lengths: at least 3 are needed"


def test_lengths_that_rise_together_say_so() -> None:
    records = [trial(length, length, repeat=i) for length in (4000, 8000, 16000, 32000) for i in range(2)]
    assert "rise together" in str(sweep(records).split)
