"""The trial loop against hand-written ports: order, failures, interruptions, and what is kept."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_MISSING,
    EXIT_OK,
    EngineMissing,
    EngineStartError,
    LoadError,
    ModelError,
    StoreError,
    UsageError,
)
from bench.ports import LoadPlan
from bench.records import LoadSpec, OutputCheck, Status
from bench.session.loop import new_run_id
from tests.session.fakes import (
    Rig,
    a_board,
    a_case,
)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_one_start_serves_all_points_with_repeats_outermost(rig: Rig) -> None:
    outcome = rig.run(a_case("a", repeats=2), a_case("b", repeats=2, seed=1))
    loads = [event for event in rig.events if event.startswith("load")]
    assert loads == ["load a", "load b", "load a", "load b"]
    assert rig.events.count("start") == 1
    assert rig.events.index("engine down") > rig.events.index("load b")
    assert rig.events[-1] == "probe closed"
    assert outcome.exit_code == EXIT_OK
    assert [record.status for record in outcome.records] == [Status.VALID] * 4
    assert len({record.key.trial_id for record in outcome.records}) == 4


def test_other_engine_arguments_are_another_start(rig: Rig) -> None:
    rig.run(a_case("a"), a_case("b", engine_args={"threads": 1}))
    assert rig.events.count("start") == 2


@pytest.mark.parametrize(("batching", "starts"), [("continuous", 1), ("static", 2)])
def test_each_size_of_whole_batches_is_a_start(rig: Rig, batching: str, starts: int) -> None:
    rig.run(*(a_case(str(size), batching=batching, load=LoadSpec(kind="closed", batch_size=size)) for size in (1, 2)))
    assert rig.events.count("start") == starts


def test_answers_are_compared_once_in_each_start_before_any_load(rig: Rig) -> None:
    rig.outputs.found = OutputCheck(reference="torch, fp32", steps=10, agreed=1)
    outcome = rig.run(a_case(repeats=2))
    order = [event for event in rig.events if event in ("engine up", "check answers", "load c")]
    assert order == ["engine up", "check answers", "load c", "load c"]
    for record in outcome.records:
        assert record.output_check == rig.outputs.found
        assert record.metrics["top1_agreement"].value == 0.1
        assert (record.status, "wrong_output" in {reason.code for reason in record.reasons}) == (Status.INVALID, True)


@pytest.mark.parametrize(("idle_s", "seconds"), [(0.0, None), (0.5, 0.5), (10.0, 1.0)])
def test_processes_that_tell_memory_and_no_power_are_looked_at_for_a_second(
    rig: Rig, idle_s: float, seconds: float | None
) -> None:
    rig.probes.devices = (replace(a_board(0), scope="process", power=None),)
    (record,) = rig.run(a_case(idle_s=idle_s)).records
    taken = None if record.resident is None else round(record.resident.seconds, 1)
    assert taken == seconds
    assert (record.metrics["memory_loaded_b"].value is None) is (seconds is None)


def test_phases_are_told_in_order(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)
    rig.run(a_case())
    assert rig.observer.phases == ["pull", "idle", "start", "idle", "check", "trial", "warmup", "measure", "drain", "save"]


@pytest.mark.parametrize(
    ("num_prompts", "expected"), [(None, [0.5, 0.0, 0.0, 5.0, 2.0, None]), (50, [None, None, None, None, None, None])]
)
def test_the_time_left_counts_from_where_the_window_began(
    rig: Rig, num_prompts: int | None, expected: list[float | None]
) -> None:
    """A second of warm-up, five of window; the slots took four seconds to fill."""
    rig.load.glances = (("warmup", 0.5), ("warmup", 2.0), ("warmup", 4.0), ("measure", 4.25), ("measure", 7.25), ("drain", 9.25))
    rig.run(a_case(load=LoadSpec(kind="closed", batch_size=2, num_prompts=num_prompts)))
    assert rig.observer.left_s == expected


def test_without_a_power_sensor_no_time_is_spent_idle(rig: Rig) -> None:
    rig.run(a_case())
    assert "idle" not in rig.observer.phases


def test_numbers_come_from_the_events_and_readings(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)
    record = rig.run(a_case()).records[0]
    assert record.metrics["output_tok_per_s"].value == pytest.approx(16.0)
    assert record.metrics["j_per_output_tok"].value == pytest.approx(100.0 / 16.0, rel=1e-3)
    assert record.energy_scope == "accelerator"
    assert record.window is not None
    assert record.window.seconds == pytest.approx(5.0)


def test_boards_that_the_engine_did_not_fill_are_left_out(rig: Rig) -> None:
    rig.probes.devices = (a_board(0), a_board(1))
    record = rig.run(a_case()).records[0]
    assert [device.uid for device in record.devices] == ["GPU-0"]


def test_named_boards_are_taken_at_their_word(rig: Rig) -> None:
    rig.probes.devices = (a_board(0), a_board(1))
    record = rig.run(a_case(devices=("GPU-1",))).records[0]
    assert [device.uid for device in record.devices] == ["GPU-1"]


def test_the_next_engine_waits_until_memory_is_free_again(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)
    rig.probes.frees_memory_at_s = 40.0
    rig.run(a_case(), a_case(precision="q4_1"))
    assert rig.runner.started_s[1] >= 40.0
    assert rig.observer.notes == []


def test_memory_that_stays_in_use_is_told_and_holds_nothing_up_for_ever(rig: Rig) -> None:
    rig.probes.devices = (a_board(0), a_board(1))
    rig.probes.frees_memory_at_s = 1e6
    assert len(rig.run(a_case(), a_case(precision="q4_1")).records) == 2
    assert "Fake 1000 (GPU-0) holds 1023.0 MiB more than before the engine was started" in rig.observer.notes[0]
    assert not any("GPU-1" in note for note in rig.observer.notes)


def test_a_person_who_interrupts_does_not_wait_for_memory(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)
    rig.probes.frees_memory_at_s = 1e6
    rig.load.hook = lambda _: signal.raise_signal(signal.SIGINT)
    outcome = rig.run(a_case())
    assert outcome.interrupted
    assert rig.observer.notes == []


def test_boards_whose_use_cannot_be_told_give_no_joules_and_lend_none(rig: Rig) -> None:
    """No memory reading: neither the board's energy nor the packages' may become the headline."""
    package = replace(a_board(7), uid="cpu-0", scope="cpu_package")
    rig.probes.devices = (a_board(0), package)
    rig.probes.tells_memory = False
    record = rig.run(a_case()).records[0]
    metric = record.metrics["j_per_output_tok"]
    assert metric.value is None
    assert "--devices" in (metric.reason or "")
    assert record.energy_scope != "cpu_package"


def test_boards_are_told_apart_even_where_no_idle_is_asked_for(rig: Rig) -> None:
    rig.probes.devices = (a_board(0), a_board(1))
    record = rig.run(a_case(idle_s=0.0)).records[0]
    assert [device.uid for device in record.devices] == ["GPU-0"]
    assert record.metrics["j_per_output_tok"].value is not None


def test_a_failed_trial_belongs_to_the_same_host_as_the_others(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)
    good = rig.run(a_case("a"))
    rig.runner.start_error = EngineStartError("died")
    rig.root /= "again"
    bad = rig.run(a_case("b", seed=5))
    assert [record.status for record in bad.records] == [Status.FAILED]
    assert {record.host.host_id for record in good.records} == {record.host.host_id for record in bad.records}


def test_a_signal_between_the_steps_of_a_trial_loses_no_numbers(rig: Rig) -> None:
    begin = rig.store.begin

    def interrupted_begin(*args: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return begin(*args)  # type: ignore[arg-type]

    rig.store.begin = interrupted_begin  # type: ignore[method-assign,assignment]
    outcome = rig.run(a_case("a", repeats=2))
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert [saved.record.status for saved in rig.store.saved] == [Status.INTERRUPTED]


def test_an_attached_endpoint_never_gets_this_hosts_boards(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)
    rig.runner.pids = ()
    record = rig.run(a_case(base_url="http://elsewhere:8000")).records[0]
    assert record.devices == ()
    assert record.metrics["j_per_output_tok"].value is None
    assert record.metrics["j_per_output_tok"].reason


def test_a_trial_is_described_before_it_runs_for_whoever_finds_it_killed(rig: Rig) -> None:
    record = rig.run(a_case()).records[0]
    (draft,) = rig.store.drafts
    assert (draft.host, draft.engine, draft.key, draft.config_id) == (record.host, record.engine, record.key, record.config_id)
    assert draft.metrics == {}


def test_the_engines_log_is_kept_with_the_trial(rig: Rig) -> None:
    rig.run(a_case())
    assert (rig.store.saved[0].folder / "engine.log").read_text(encoding="utf-8") == "hello from the engine\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [(EngineMissing("no engine", hint="pip install it"), EXIT_MISSING), (EngineStartError("died", log_tail="why"), EXIT_FAILED)],
)
def test_an_engine_that_cannot_start_leaves_a_failed_shard_a_trial(rig: Rig, error: EngineStartError, code: int) -> None:
    rig.runner.start_error = error
    outcome = rig.run(a_case("a", repeats=2))
    assert outcome.exit_code == code
    assert [saved.record.status for saved in rig.store.saved] == [Status.FAILED] * 2
    assert str(error) in (rig.store.saved[0].record.error or "")
    assert "probe closed" in rig.events
    assert (len(rig.observer.notes), rig.observer.done) == (1, [])  # said once, however many trials it costs
    assert "2 trials" in rig.observer.notes[0]


def test_an_engine_refused_beforehand_downloads_nothing_and_the_others_run(rig: Rig) -> None:
    rig.runner.refuse = EngineMissing("no engine")
    outcome = rig.run(a_case())
    assert outcome.exit_code == EXIT_MISSING
    assert not [event for event in rig.events if event.startswith(("fetch", "start"))]
    assert outcome.records[0].status is Status.FAILED


def test_a_usage_error_starts_nothing_at_all(rig: Rig) -> None:
    rig.runner.refuse = UsageError("wrong")
    with pytest.raises(UsageError):
        rig.run(a_case())
    assert rig.store.saved == []


def test_a_model_unknown_to_any_group_stops_the_run_before_the_first_trial(rig: Rig) -> None:
    rig.models.unknown = "n"
    with pytest.raises(UsageError):
        rig.run(a_case("a"), a_case("b", model="n"))
    assert rig.store.saved == []


@pytest.mark.parametrize("several", [True, False])
def test_of_several_cases_the_wrong_one_is_named(rig: Rig, several: bool) -> None:
    rig.models.unknown = "n"
    cases = [a_case("a"), a_case("b", model="n")][0 if several else 1 :]
    with pytest.raises(UsageError) as caught:
        rig.run(*cases)
    assert str(caught.value).startswith(f"b of {cases[-1].suite}: ") is several


def test_weights_that_cannot_be_had_fail_the_trials(rig: Rig) -> None:
    rig.models.error = ModelError("no network")
    outcome = rig.run(a_case())
    assert outcome.exit_code == EXIT_FAILED
    assert outcome.records[0].error == "no network"
    assert "start" not in rig.events


def test_an_engine_that_dies_is_started_again_for_the_rest(rig: Rig) -> None:
    deaths = iter([True, False, False])

    def die(plan: LoadPlan) -> None:
        if next(deaths):
            rig.runner.engines[-1].dead = "killed by SIGSEGV"

    rig.load.hook = die
    outcome = rig.run(a_case("a", repeats=3))
    assert [record.status for record in outcome.records] == [Status.FAILED, Status.VALID, Status.VALID]
    assert "killed by SIGSEGV" in (outcome.records[0].error or "")
    assert "last words" in (outcome.records[0].error or "")
    assert rig.events.count("start") == 2
    assert outcome.exit_code == EXIT_FAILED


def test_an_engine_that_keeps_dying_is_given_up(rig: Rig) -> None:
    def die(plan: LoadPlan) -> None:
        rig.runner.engines[-1].dead = "out of memory"

    rig.load.hook = die
    outcome = rig.run(a_case("a", repeats=5))
    assert rig.events.count("start") == 2
    assert len(outcome.records) == 5
    assert all(record.status is Status.FAILED for record in outcome.records)
    assert "not tried" in (outcome.records[-1].error or "")


def test_a_failing_client_fails_the_trial_and_not_the_run(rig: Rig) -> None:
    first = iter([True, False])

    def fail(plan: LoadPlan) -> None:
        if next(first):
            raise LoadError("worker 0 died")

    rig.load.hook = fail
    outcome = rig.run(a_case("a", repeats=2))
    assert [record.status for record in outcome.records] == [Status.FAILED, Status.VALID]
    assert rig.events.count("start") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_load_saves_that_trial_and_stops(rig: Rig, number: signal.Signals) -> None:
    second = iter([False, True, True])

    def interrupt(plan: LoadPlan) -> None:
        if next(second):
            os.kill(os.getpid(), number)

    rig.load.hook = interrupt
    outcome = rig.run(a_case("a", repeats=3))
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert [saved.record.status for saved in rig.store.saved] == [Status.VALID, Status.INTERRUPTED]
    assert number.name in (outcome.interrupted or "")
    assert rig.events[-2:] == ["engine down", "probe closed"]


def test_a_signal_at_start_stops_at_once(rig: Rig) -> None:
    real_start = rig.runner.start

    def start(request: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return real_start(request)  # type: ignore[arg-type]

    rig.runner.start = start  # type: ignore[method-assign,assignment]
    outcome = rig.run(a_case())
    assert outcome.exit_code == EXIT_INTERRUPTED
    assert rig.store.saved == []
    assert rig.events[-1] == "probe closed"


def test_a_store_that_fails_ends_the_run_and_keeps_what_was_saved(rig: Rig) -> None:
    seen = iter([False, True])

    def full(plan: LoadPlan) -> None:
        if next(seen):
            rig.store.error = StoreError("disk full")

    rig.load.hook = full
    outcome = rig.run(a_case("a", repeats=3))
    assert len(outcome.records) == 1
    assert [str(error) for error in outcome.errors] == ["disk full"]
    assert outcome.exit_code == EXIT_FAILED
    assert rig.events[-1] == "probe closed"


def test_a_probe_that_ends_is_noted_and_harms_nothing(rig: Rig) -> None:
    rig.probes.devices = (a_board(0),)

    def end(plan: LoadPlan) -> None:
        rig.probes.streams[-1].end = "killed by SIGSEGV"

    rig.load.hook = end
    record = rig.run(a_case()).records[0]
    assert [stream.reason for stream in record.stream_ends] == ["killed by SIGSEGV"]
    assert record.metrics["output_tok_per_s"].value is not None


def test_trial_ids_are_known_beforehand_and_differ_by_run() -> None:
    assert new_run_id() != new_run_id()
    assert replace(a_case(), name="other", labels={"a": "b"}) != a_case()
