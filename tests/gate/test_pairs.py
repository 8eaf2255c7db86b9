"""Pairs measured in turns: order, what is left of them, what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from scipy import stats as scipy_stats

from bench import codec, suite
from bench.analysis.ab import BASE_ROLE, CAND_ROLE, paired_cases
from bench.analysis.compare import paired_ratio
from bench.cli.ab import pairs_text
from bench.errors import UsageError
from bench.lab.ab import Pairs, in_turns, left_of, measure_pairs, new_pairs, settings_of
from bench.lab.plans import engine_starts, forecast, new_plan
from bench.records import LoadSpec, Status, TrialRecord
from bench.reports.differences import sides
from bench.session.loop import RunOutcome
from tests.factories import make_case, make_host, make_key, make_metrics, make_record
from tests.session.fakes import Rig, a_case

SUITE = suite.suite_from_options(
    {"engine": "mock", "model": "m", "batch_size": "4", "duration": "5s", "engine_args": ("gap_ms=10",)}
)


def test_a_side_is_settings_of_a_suite() -> None:
    assert settings_of("engine_args.a=1 engine_args.b='x y' image=i:1 precision=fp8") == {
        "engine_args": ("a=1", "b=x y"),
        "image": "i:1",
        "precision": "fp8",
    }
    assert settings_of("") == {}


@pytest.mark.parametrize("spec", ["gap", "=3", "a='"])
def test_what_is_no_setting_is_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="--ab"):
        settings_of(spec)


def test_each_side_has_its_own_settings_and_the_name_of_the_base() -> None:
    pairs = new_pairs(SUITE, "", "engine_args.gap_ms=20", 5)
    assert [case.engine_args["gap_ms"] for case in (*pairs.base, *pairs.cand)] == [10, 20]
    assert pairs.base[0].name == pairs.cand[0].name


@pytest.mark.parametrize(
    ("chosen", "cand", "count"),
    [(SUITE, "", 2), (SUITE, "batch_size=1,2", 5), (replace(SUITE, cases=()), "", 5), (SUITE, "nonsense=1", 5)],
)
def test_pairs_that_can_t_be_are_refused(chosen: suite.Suite, cand: str, count: int) -> None:
    with pytest.raises(UsageError):
        new_pairs(chosen, "", cand, count)


def some_pairs(count: int = 3) -> Pairs:
    base = a_case("point", repeats=count, engine_args={"v": 1})
    return Pairs(base=(base,), cand=(structs.replace(base, engine_args={"v": 2}),), count=count)


def test_the_side_that_goes_first_changes_from_pair_to_pair() -> None:
    turns = [(trial.role, trial.repeat) for trial in in_turns(some_pairs(4))]
    base, cand = BASE_ROLE, CAND_ROLE
    assert turns == [(base, 1), (cand, 1), (cand, 2), (base, 2), (base, 3), (cand, 3), (cand, 4), (base, 4)]


def test_a_plan_with_pairs_survives_the_disk_and_tells_what_is_left() -> None:
    plan = new_plan("r", (), (), 60.0, some_pairs())
    assert codec.decode(codec.encode(plan), type(plan)) == plan
    assert [(line.name, line.trials) for line in forecast(plan)] == [("point (ab_base)", 3), ("point (ab_cand)", 3)]
    assert engine_starts(plan) == 6


def measured(rig: Rig, pairs: Pairs, history: tuple[TrialRecord, ...] = ()) -> RunOutcome:
    with rig.session() as session:
        return measure_pairs(session, pairs, history)


def test_every_trial_has_its_own_engine_start_and_role(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    outcome = measured(rig, some_pairs())
    assert [(r.key.role, r.key.repeat) for r in outcome.records] == [(t.role, t.repeat) for t in in_turns(some_pairs())]
    assert len({r.key.trial_id for r in outcome.records}) == 6
    assert rig.events.count("start") == 6


def test_the_same_setting_on_both_sides_gives_trials_of_their_own(tmp_path: Path) -> None:
    pairs = some_pairs()
    outcome = measured(Rig(tmp_path), replace(pairs, cand=pairs.base))
    assert len({r.key.trial_id for r in outcome.records}) == 6


def test_pairs_that_were_cut_off_are_gone_on_with(tmp_path: Path) -> None:
    pairs = some_pairs()
    whole = measured(Rig(tmp_path / "one"), pairs)
    history = (*whole.records[:3], structs.replace(whole.records[3], status=Status.KILLED))
    assert [(t.role, t.repeat) for t in left_of(pairs, history)] == [(t.role, t.repeat) for t in in_turns(pairs)[3:]]
    again = measured(Rig(tmp_path / "two"), pairs, history)
    assert [r.key.attempt for r in again.records] == [1, 1, 1, 2, 1, 1]


def ab_record(role: str, repeat: int, tok_per_s: float, **over: object) -> TrialRecord:
    case = make_case(load=LoadSpec(kind="closed", batch_size=8))
    key = structs.replace(make_key(case, "r", repeat), role=role, trial_id=f"{role}{repeat}")
    metrics = make_metrics(output_tok_per_s=tok_per_s)
    return make_record(**({"case": case, "run_id": "r", "repeat": repeat, "key": key, "metrics": metrics} | over))  # type: ignore[arg-type]


def test_what_ails_both_of_a_pair_does_not_hide_a_difference() -> None:
    """Nights of 30% either way, a candidate that is 3% slower."""
    levels = (400.0, 300.0, 520.0, 360.0, 450.0)
    records = [ab_record(BASE_ROLE, n, level) for n, level in enumerate(levels)]
    records += [ab_record(CAND_ROLE, n, level * (0.97 + 0.002 * (n % 2))) for n, level in enumerate(levels)]
    (found,) = paired_cases(records)
    speed = next(one for one in found.metrics if one.metric == "output_tok_per_s")
    assert (found.pairs, speed.verdict, speed.is_worse) == (5, "differs", True)
    assert speed.ratio is not None
    assert speed.ratio.value == pytest.approx(0.9708, abs=1e-3)


@pytest.mark.parametrize(
    ("base", "cand", "told"),
    [
        ({"engine_args": {"threads": 1}}, {"engine_args": {"threads": 2}}, ("threads=1", "threads=2")),
        ({"engine": "vllm"}, {"engine": "sglang"}, ("engine=vllm", "engine=sglang")),
        ({}, {}, ("role=ab_base", "role=ab_cand")),
    ],
)
def test_what_the_sides_are_is_said(base: dict[str, object], cand: dict[str, object], told: tuple[str, str]) -> None:
    records = []
    for role, over in ((CAND_ROLE, cand), (BASE_ROLE, base)):
        case = make_case(name="point", **over)
        records += [ab_record(role, n, 400.0 + n, case=case) for n in range(3)]
    (found,) = paired_cases(records)
    assert sides(found) == told
    assert f"CAND ({told[1]}) against BASE ({told[0]})" in pairs_text([found])
    (alone,) = paired_cases(records[:3])
    assert sides(alone) == ("", "")
    assert "0 valid pairs, CAND against BASE\n" in pairs_text([alone])


@pytest.mark.parametrize("what", ["build of the base", "build of the candidate", "machine", "machine of one side"])
def test_pairs_of_another_build_or_machine_do_not_count(what: str) -> None:
    """Five pairs, of which the first two were measured before something changed; with them it would be 20% slower."""
    records = []
    for n in range(5):
        for role in (BASE_ROLE, CAND_ROLE):
            other = n < 2 and {
                "build of the base": role == BASE_ROLE,
                "build of the candidate": role == CAND_ROLE,
                "machine": True,
                "machine of one side": role == CAND_ROLE,
            }.get(what, False)
            over = (
                {"host": make_host(host_id="other")} if "machine" in what and other else {"config_id": "old" if other else role}
            )
            speed = 400.0 + n - (150.0 if n < 2 and role == CAND_ROLE else 0.0)
            records.append(ab_record(role, n, speed, **over))
    (found,) = paired_cases(records)
    assert (found.pairs, found.left_out) == (3, 2)
    assert next(one for one in found.metrics if one.metric == "output_tok_per_s").verdict == "no difference shown"
    assert "3 valid pairs (2 more left out: another build or machine), " in pairs_text([found])


def test_the_means_that_are_shown_have_the_ratio_that_is_shown() -> None:
    """Pairs that differ much, where means of another kind would be the other way round: (1 + 100) / 2 above (30 + 10) / 2."""
    records = [ab_record(BASE_ROLE, n, value) for n, value in enumerate((1.0, 100.0))]
    records += [ab_record(CAND_ROLE, n, value) for n, value in enumerate((30.0, 10.0))]
    (found,) = paired_cases(records)
    assert found.metrics
    for one in found.metrics:
        assert one.ratio is not None
        assert (one.cand or 0.0) / (one.base or 1.0) == pytest.approx(one.ratio.value)
    speed = next(one for one in found.metrics if one.metric == "output_tok_per_s")
    assert (speed.base, speed.cand) == pytest.approx((10.0, 300.0**0.5))


def test_half_a_pair_is_none_and_scopes_are_not_mixed() -> None:
    records = [ab_record(role, n, 400.0 + n) for n in range(4) for role in (BASE_ROLE, CAND_ROLE)]
    records[1] = structs.replace(records[1], status=Status.INVALID)
    records[3] = structs.replace(records[3], energy_scope="node")
    (found,) = paired_cases(records)
    assert found.pairs == 3
    joules = next(one for one in found.metrics if one.metric == "j_per_output_tok")
    assert joules.verdict == "not comparable"
    assert "accelerator and node" in (joules.reason or "")
    assert paired_cases([structs.replace(record, status=Status.FAILED) for record in records])[0].pairs == 0


def test_paired_ratio_is_students_on_log_differences() -> None:
    rng = np.random.default_rng(2)
    base, cand = np.exp(rng.normal(0, 0.1, 6)), np.exp(rng.normal(0.05, 0.1, 6))
    found, expected = paired_ratio(base.tolist(), cand.tolist()), scipy_stats.ttest_rel(np.log(cand), np.log(base))
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (np.log(found.low or 0), np.log(found.high or 0)) == pytest.approx((interval.low, interval.high))
    assert paired_ratio([1.0], [2.0]).p is None
    with pytest.raises(ValueError, match="one length"):
        paired_ratio([1.0], [1.0, 2.0])
