"""Trials worked out again from their shards: the same to the last bit, and every change found."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench import codec
from bench.clock import FakeClock
from bench.errors import StoreError
from bench.lab.rederive import Rederived, recompute, rederive
from bench.ports import LoadPlan
from bench.records import LoadResult, LocalModel, ModelShape, Outcome, Status, StreamEnd, Telemetry, TrialRecord, Window
from bench.session.interrupts import Interrupts
from bench.session.loop import Session
from bench.store import ShardStore
from bench.timing import measure
from bench.timing.spec import REQUIRED
from tests.conftest import BenchCommand
from tests.factories import make_engine, make_record, save_trial
from tests.session.fakes import FakeChecker, FakeLoad, FakeModels, FakeObserver, FakeProbes, FakeRunner, a_board, a_case, place
from tests.timing.builders import (
    ENERGY,
    HEALTHY,
    Request,
    S,
    closed_loop,
    make_case,
    make_device,
    make_log,
    poll,
    steady,
    window_ms,
)


def read(folder: Path) -> TrialRecord:
    return codec.decode((folder / "trial.json").read_bytes(), TrialRecord)


def exact(one: Rederived) -> bool:
    """Agreement to the last bit, not only within the tolerance."""
    return one.agrees and one.metrics > 0


# --- what a session stores -------------------------------------------------------------------------------------------


class RecyclingLoad(FakeLoad):
    """A load that ran out of prompts."""

    def run(self, plan: LoadPlan, *told: Any) -> LoadResult:
        return structs.replace(super().run(plan, *told), prompts_recycled=True)


def session_shards(root: Path, load: FakeLoad, clock: FakeClock, boards: int) -> list[Path]:
    events: list[str] = []
    probes = FakeProbes(clock, events, devices=tuple(a_board(i) for i in range(boards)))
    outcome = Session(
        run_id="r",
        runners=lambda name: FakeRunner(events),
        models=FakeModels(events),
        load=load,
        outputs=FakeChecker(events),
        probes=probes,
        store=ShardStore(root),
        observer=FakeObserver(),
        interrupts=Interrupts(),
        place=place,
        work_root=root / "work",
        clock=clock,
    ).run([a_case(repeats=2, duration_s=6.0)])
    assert [record.status for record in outcome.records] == [Status.VALID] * 2
    return sorted(path.parent for path in root.rglob("trial.json"))


@pytest.mark.parametrize(("load_kind", "boards"), [(FakeLoad, 2), (RecyclingLoad, 0)])
def test_what_a_session_stores_gives_its_numbers_again(tmp_path: Path, load_kind: type[FakeLoad], boards: int) -> None:
    clock = FakeClock()
    for folder in session_shards(tmp_path, load_kind(clock, []), clock, boards):
        record = read(folder)
        assert exact(rederive(record, folder))
        found = recompute(record, folder)
        assert found.metrics == record.metrics
        assert found.reasons == record.reasons
        assert (record.metrics["energy_j"].value is not None) == (boards > 0)
        assert (record.metrics["resident_power_w"].value is not None) == (boards > 0)
        assert ("prompts_recycled" in {reason.code for reason in record.reasons}) == (load_kind is RecyclingLoad)


# --- any log, any readings -------------------------------------------------------------------------------------------

WINDOW = window_ms(0, 10_000)
NAN_GAUGES = {"mock_lag_p99_ms": math.nan, "kv_cache_util_mean": math.inf, "prompt_tokens_total": 70.0}


def board_telemetry(**changes: Any) -> Telemetry:
    device = make_device(energy=ENERGY, power_limit_w=700.0)
    fixed: dict[str, Any] = {
        "devices": (device,),
        "readings": poll(-2, 12, 0.1, power_w=lambda t: 300.1 + t, energy_j=lambda t: 1e4 + 300.1 * t + t * t / 2),
        "idle_readings": poll(-62, -48, 0.1, power_w=lambda _: 119.7),
        "idle": Window(t0_ns=-60 * S, t1_ns=-50 * S),
        "period_s": 0.1,
    }
    return Telemetry(**(fixed | changes))


def store(root: Path, requests: list[Request], telemetry: Telemetry, *, window: Window | None = WINDOW, **over: Any) -> Path:
    """A trial measured as the session does, and its shard."""
    case, engine = over.pop("case", make_case(exact_lengths=True)), make_engine(precision="bf16")
    load = LoadResult(
        log=make_log(requests), window=window, health=HEALTHY, dataset_hash="d", prompts_recycled=over.pop("recycled", False)
    )
    before, after = {"prompt_tokens_total": 10.0}, NAN_GAUGES
    found = measure(case, load, telemetry, before, after, engine=engine, attached=False)
    record = make_record(
        case=case,
        engine=engine,
        status=found.status,
        reasons=found.reasons,
        metrics=found.metrics,
        energy_scope=found.energy_scope,
        devices=telemetry.devices,
        stream_ends=telemetry.ends,
        idle=telemetry.idle,
        resident=telemetry.resident,
        telemetry_period_s=telemetry.period_s,
        window=window,
        health=load.health,
        dataset_hash=load.dataset_hash,
        prompts_recycled=load.prompts_recycled,
        engine_metrics_before=before,
        engine_metrics_after=after,
        **over,
    )
    return save_trial(root, record, load.log, telemetry)


ODD = [
    Request(sent_ms=3000, outcome=Outcome.CONNECT, finish=None, error="can't decode \udc80 'quoted'", closed_ms=3001),
    Request(sent_ms=4000, chunks=[(4050, 40), (4060, 3)], usage=7, prompt=9, cached=3, finish="stop", closed_ms=4070),
    Request(sent_ms=5000, outcome=Outcome.OK, usage=12, prompt=9, closed_ms=5100),
    Request(sent_ms=9990, chunks=[(9995, 4)], outcome=Outcome.CANCELLED, finish=None),
]
TELEMETRIES = {
    "board": board_telemetry(),
    "lost stream": board_telemetry(ends=(StreamEnd(probe="fake", at_ns=5 * S, reason="hung"),)),
    "gaps": board_telemetry(readings=(*poll(-1, 4, 0.1, power_w=lambda _: 250.0), *poll(6, 11, 0.1, power_w=lambda _: None))),
    "nothing": Telemetry(),
}


@pytest.mark.parametrize("seen", TELEMETRIES.values(), ids=TELEMETRIES)
def test_odd_requests_and_readings_survive_the_disk(tmp_path: Path, seen: Telemetry) -> None:
    folder = store(tmp_path, [*closed_loop(), *ODD], seen, recycled=True)
    record = read(folder)
    assert exact(rederive(record, folder))
    assert recompute(record, folder).metrics == record.metrics


def test_a_load_that_ended_before_its_window_agrees_too(tmp_path: Path) -> None:
    folder = store(tmp_path, closed_loop(), Telemetry(), window=None)
    assert rederive(read(folder), folder).agrees


some_requests = st.lists(
    st.builds(
        steady,
        st.floats(-500, 11_000),
        ttft_ms=st.floats(0.5, 900),
        gap_ms=st.floats(0.01, 300),
        n=st.integers(0, 9),
        usage=st.sampled_from([None, 1, 4, 9, 10]),
        finish=st.sampled_from(["stop", "length", None]),
        outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.TIMEOUT, Outcome.TRUNCATED]),
    ),
    max_size=12,
)


@settings(max_examples=15)
@given(some_requests)
def test_any_requests_give_the_same_numbers_again(tmp_path_factory: pytest.TempPathFactory, requests: list[Request]) -> None:
    ordered = sorted(requests, key=lambda request: request.sent_ms or 0.0)
    folder = store(tmp_path_factory.mktemp("shard"), ordered, TELEMETRIES["board"])
    record = read(folder)
    assert recompute(record, folder).metrics == record.metrics


# --- what is found ----------------------------------------------------------------------------------------------------


def changed(folder: Path, **over: Any) -> Rederived:
    return rederive(structs.replace(read(folder), **over), folder)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return store(tmp_path, closed_loop(), TELEMETRIES["board"])


def test_a_changed_number_is_found_and_named(shard: Path) -> None:
    record = read(shard)
    value = record.metrics["output_tok_per_s"].value
    assert value is not None
    faster = structs.replace(record.metrics["output_tok_per_s"], value=value * (1 + 1e-9))
    found = changed(shard, metrics={**record.metrics, "output_tok_per_s": faster})
    assert [(d.what, d.stored, d.recomputed) for d in found.differences] == [("output_tok_per_s.value", faster.value, value)]
    rounded = structs.replace(faster, value=math.nextafter(value, math.inf))
    assert changed(shard, metrics={**record.metrics, "output_tok_per_s": rounded}).agrees


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("prompts_recycled", True, "reasons.prompts_recycled.latency"),
        ("energy_scope", "cpu_package", "energy_scope"),
        ("status", Status.INVALID, "status"),
        ("window", window_ms(0, 9_000), "ttft_ms.n"),
        ("devices", (make_device(uid="other"),), "energy_j.reason"),
        ("reasons", (), "reasons.not_steady.energy"),
    ],
)
def test_each_input_of_the_numbers_is_taken_from_the_shard(tmp_path: Path, field: str, value: Any, what: str) -> None:
    """A trial whose power climbs, so that it has a reason; one thing in its record says otherwise."""
    climbing = board_telemetry(readings=poll(-2, 12, 0.1, power_w=lambda t: 200.0 + 20.0 * t), devices=(make_device(),))
    folder = store(tmp_path, closed_loop(), climbing)
    assert rederive(read(folder), folder).agrees
    assert what in {d.what for d in changed(folder, **{field: value}).differences}


def test_the_polling_period_is_taken_from_the_shard(tmp_path: Path) -> None:
    """Two seconds without a reading are a gap at ten readings a second, and none at one reading a second."""
    watts = lambda _: 250.0  # noqa: E731
    gap = board_telemetry(readings=(*poll(-2, 4, 0.1, power_w=watts), *poll(6, 12, 0.1, power_w=watts)), devices=(make_device(),))
    folder = store(tmp_path, closed_loop(), gap)
    assert any(reason.code == "power_coverage" for reason in read(folder).reasons)
    found = {d.what: d.recomputed for d in changed(folder, telemetry_period_s=1.0).differences}
    assert found["reasons.power_coverage.energy"] is None


@pytest.mark.parametrize("unknown", [("error_share",), ("mfu", "mbu", "ttft_ms")])
def test_what_an_older_bench_did_not_know_is_new_and_no_difference(shard: Path, unknown: tuple[str, ...]) -> None:
    record = read(shard)
    older = {name: metric for name, metric in record.metrics.items() if name not in unknown}
    found = changed(shard, metrics=older)
    assert (set(found.new), found.agrees, found.metrics) == (set(unknown), True, len(record.metrics) - len(unknown))
    wrong = structs.replace(older["output_tok_per_s"], value=1.0)
    other = changed(shard, metrics=older | {"output_tok_per_s": wrong})
    assert ([d.what for d in other.differences], set(other.new)) == (["output_tok_per_s.value"], set(unknown))


def test_a_metric_that_is_gone_or_of_devices_that_were_not_there_is_a_difference(tmp_path: Path) -> None:
    simulated = make_device(uid="sim", energy=ENERGY, quality="simulated")
    folder = store(
        tmp_path,
        closed_loop(),
        board_telemetry(devices=(simulated,), readings=poll(-2, 12, 0.1, power_w=lambda _: 250.0, uid="sim")),
    )
    record = read(folder)
    extra = {**record.metrics, "old_ms": structs.replace(record.metrics["ttft_ms"], name="old_ms")}
    assert [(d.what, d.recomputed) for d in changed(folder, metrics=extra).differences] == [("old_ms", None)]
    (of_sim,) = [name for name in record.metrics if name not in REQUIRED][:1]
    found = changed(folder, metrics={name: metric for name, metric in record.metrics.items() if name != of_sim})
    assert ([d.what for d in found.differences], found.new) == ([of_sim], ())


def test_a_status_that_came_from_outside_is_not_judged(shard: Path) -> None:
    assert changed(shard, status=Status.INTERRUPTED).agrees


@pytest.mark.parametrize("name", ["requests.parquet", "chunks.parquet", "telemetry.parquet"])
def test_a_file_that_can_not_be_read_is_a_problem_not_an_agreement(shard: Path, name: str) -> None:
    (shard / name).write_bytes(b"PAR1 no more")
    found = rederive(read(shard), shard)
    assert not found.agrees
    assert name in (found.problem or "")
    (shard / name).unlink()
    with pytest.raises(StoreError, match=Path(name).stem):
        recompute(read(shard), shard)


def test_a_trial_without_numbers_has_nothing_to_compare(tmp_path: Path) -> None:
    folder = save_trial(tmp_path, make_record(status=Status.FAILED, error="engine died", metrics={}, window=None))
    found = rederive(read(folder), folder)
    assert (found.agrees, found.metrics) == (True, 0)


def test_the_model_is_taken_from_the_shard_too(tmp_path: Path) -> None:
    h100 = make_device(energy=ENERGY, power_limit_w=700.0, name="NVIDIA H100 80GB HBM3")
    folder = store(tmp_path, closed_loop(), board_telemetry(devices=(h100,)))
    shape = ModelShape(parameters=8_000_000_000, layers=32, heads=32, kv_heads=8, head_dim=128)
    model = LocalModel(name="m", source="s", path="/m", format="safetensors", size_b=1, weights_sha256=None, shape=shape)
    assert "mbu.value" in [difference.what for difference in changed(folder, model=model).differences]


def test_nothing_that_the_numbers_depend_on_is_left_out_of_the_shard() -> None:
    """Whoever adds an input of the timing core must store it, and hand it over in `recompute`: then add it here."""
    assert [f.name for f in structs.fields(LoadResult)] == [
        "log", "window", "health", "dataset_hash", "interrupted", "prompts_recycled",
    ]  # fmt: skip
    assert [f.name for f in structs.fields(Telemetry)] == [
        "devices", "readings", "ends", "problems", "period_s", "idle", "resident", "idle_readings",
    ]  # fmt: skip
    assert list(inspect.signature(measure).parameters) == [
        "case", "load", "telemetry", "before", "after", "engine", "model", "samples", "attached", "output_check",
    ]  # fmt: skip


# --- the command ------------------------------------------------------------------------------------------------------

QUICK = ("--batch-size", "4", "--output-tokens", "16", "--duration", "1s", "--warmup", "0.3s", "--grace", "2s", "--idle", "0.5s")


def test_a_run_on_the_mock_engine_agrees_and_a_changed_number_fails_the_check(bench_here: BenchCommand, tmp_path: Path) -> None:
    assert bench_here("run", "--engine", "mock", "--model", "mock", *QUICK, "--repeats", "2").returncode in (0, 1)
    done = bench_here("rederive", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 trials: 2 agree"

    path = min((tmp_path / "results").rglob("trial.json"))
    plain = json.loads(path.read_text())
    plain["metrics"]["ttft_ms"]["p50"] *= 0.9
    path.write_text(json.dumps(plain))
    checked = bench_here("rederive", "--run", "latest", "--check")
    assert checked.returncode == 1
    assert "ttft_ms.p50: stored" in checked.stdout
    assert "2 trials: 1 agree, 1 differ" in checked.stdout
    assert bench_here("rederive").returncode == 0

    told = json.loads(bench_here("rederive", "--trial", plain["key"]["trial_id"][:12], "--json").stdout)
    assert [one["verdict"] for one in told["trials"]] == ["differs"]
    assert told["trials"][0]["differences"][0]["what"] == "ttft_ms.p50"


def test_what_can_not_be_found_is_one_message(bench_here: BenchCommand, tmp_path: Path) -> None:
    nowhere = bench_here("rederive")
    assert nowhere.returncode == 2
    assert "no folder" in nowhere.stderr
    save_trial(tmp_path / "results", make_record(status=Status.FAILED, error="engine died", metrics={}, window=None))
    assert "failed, nothing was measured" in bench_here("rederive").stdout
    for args in (("--trial", "zz"), ("--run", "nope")):
        done = bench_here("rederive", *args)
        assert done.returncode == 2
        assert args[1] in done.stderr
