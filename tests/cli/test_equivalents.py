"""`bench equivalents` and `bench table --columns roofline`, on generated shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.records import DeviceInfo, LoadSpec, TrialRecord
from bench.timing.roofline import CACHED
from tests.factories import make_case, make_device, make_engine, make_metric, make_metrics, make_record, save_trial
from tests.in_process import Ran, run_here

MIB = 1 << 20
H100 = {"name": "NVIDIA H100 80GB HBM3", "memory_total_b": 81559 * MIB, "power_limit_w": 700.0}
MI300X = {"name": "AMD Instinct MI300X", "vendor": "amd", "memory_total_b": 196592 * MIB, "power_limit_w": 750.0}


def boards(kind: dict[str, Any], count: int) -> tuple[DeviceInfo, ...]:
    return tuple(make_device(uid=f"{kind['name']}-{i}", index=i, **kind) for i in range(count))


def trial(run_id: str, repeat: int, tok_per_s: float, devices: tuple[DeviceInfo, ...], **over: Any) -> TrialRecord:
    fixed = {"model": "llama2-13b", "precision": "fp16", "engine": "vllm"} | over
    metrics = make_metrics(
        output_tok_per_s=tok_per_s, icl_ms=20.0, tokens_per_chunk=1.0, input_tokens=64.0, output_tokens=32.0, mfu=0.25,
        tok_per_s_per_tflops=make_metric("tok_per_s_per_tflops", 1.5, source="2x MI300X: 2614.8 TFLOP/s dense fp16 (datasheet)"),
        mbu=None,
    )  # fmt: skip
    engine = make_engine(name=fixed["engine"], version="0.11")
    return make_record(
        case=make_case(**fixed), run_id=run_id, repeat=repeat, devices=devices, metrics=metrics, engine=engine,
        config_id=f"config-{run_id}", series_id=f"series-{run_id}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two MI300X at 900 tok/s; on the same workload an H100 at 400, two H100 at 600, and H100s that must not count."""
    folder = tmp_path_factory.mktemp("results")
    other_load = {"load": LoadSpec(kind="closed", batch_size=64)}
    for repeat in range(3):
        wobble = 1 + 0.01 * (repeat - 1)
        save_trial(folder, trial("run-own", repeat, 900.0 * wobble, boards(MI300X, 2)))
        save_trial(folder, trial("run-best", repeat, 400.0 * wobble, boards(H100, 1)))
        save_trial(folder, trial("run-two", repeat, 600.0 * wobble, boards(H100, 2)))
        save_trial(folder, trial("run-fp8", repeat, 4000.0 * wobble, boards(H100, 1), precision="fp8"))
        save_trial(folder, trial("run-load", repeat, 4000.0 * wobble, boards(H100, 1), **other_load))
        save_trial(folder, trial("run-model", repeat, 4000.0 * wobble, boards(H100, 1), model="llama2-7b"))
        save_trial(folder, trial("run-mig", repeat, 4000.0 * wobble, boards(H100 | {"shared": "MIG: 2 slices"}, 1)))
    return folder


def _own_id() -> str:
    return trial("run-own", 0, 1.0, boards(MI300X, 2)).key.trial_id


def worth(capsys: pytest.CaptureFixture[str], results: Path, *more: str) -> Ran:
    return run_here(capsys, "equivalents", _own_id(), "--results", str(results), *more)


def test_measured_beside_the_best_of_the_same_workload(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = worth(capsys, results, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    measured = found["measured"]
    assert measured["value"] == pytest.approx(900 / 400)
    assert measured["low"] < 900 / 400 < measured["high"]
    assert (measured["run_id"], measured["reference_chips"], measured["candidates"]) == ("run-best", 1, 2)
    assert found["chips"] == "2x MI300X"


def test_the_roofline_is_marked_as_such(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    """900 tok/s at 20 ms are 18 at once: (26.03 GB / 18 + 80 * 819,200 B) / 3.35 TB/s a token; bandwidths are 10.6 to 3.35."""
    found = json.loads(worth(capsys, results, "--json").out)["roofline"]
    assert found["bound_by"] == "memory"
    sequences = 891 / 1e3 * 20  # of the trial that was named
    token_s = (13_015_864_320 * 2 / sequences + 80 * 40 * 2 * 40 * 128 * 2) / 3.35e12
    assert found["bound_tok_per_s"] == pytest.approx(1 / token_s)
    assert found["least"] == pytest.approx(900 * token_s)
    assert found["alike"] == pytest.approx(10.6 / 3.35)
    text = worth(capsys, results).out
    assert "measured: 2.250 [" in text
    assert "roofline, not measured: at least" in text
    assert "assumed: chips share the work without loss" in text


def test_without_a_measured_point_only_the_roofline_is_left(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = worth(capsys, results, "--chip", "B200")
    assert ran.code == 0
    assert "measured: - (no valid point of this workload and model in fp16 was measured on B200 here)" in ran.out
    assert "roofline, not measured: at least" in ran.out


def test_a_chip_without_peaks_has_neither(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    found = json.loads(worth(capsys, results, "--chip", "MTT S5000", "--json").out)
    assert (found["measured"], found["roofline"]) == (None, None)
    assert "no dense fp16 peak of MTT S5000" in found["roofline_reason"]


@pytest.mark.parametrize(("chip", "says"), [("H100", "may be H100 SXM or H100 PCIe or H100 NVL"), ("H900", "has no chip 'H900'")])
def test_a_chip_that_is_not_one(capsys: pytest.CaptureFixture[str], tmp_path: Path, chip: str, says: str) -> None:
    ran = run_here(capsys, "equivalents", "latest", "--chip", chip, "--results", str(tmp_path))
    assert ran.code == 2
    assert says in ran.err


def save_pair(folder: Path, base: float, cand: float) -> dict[str, str]:
    """Three A/B pairs of one case with itself: on MI300X, in one run. The trial of each role."""
    ids = {}
    for repeat in range(3):
        for role, tok_per_s in (("ab_base", base), ("ab_cand", cand)):
            made = trial("run-pair", repeat, tok_per_s, boards(MI300X, 2))
            ids[role] = f"{role}-{repeat}"
            save_trial(folder, replace(made, key=replace(made.key, trial_id=ids[role], role=role)))
    return ids


def test_the_two_sides_of_a_pair_are_not_pooled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An A/A pair has one case, configuration, host and run: only the role tells its sides apart."""
    ids = save_pair(tmp_path, 800.0, 1200.0)
    for role, tok_per_s in (("ab_base", 800.0), ("ab_cand", 1200.0)):
        ran = run_here(capsys, "equivalents", ids[role], "--results", str(tmp_path), "--json")
        assert ran.code == 0, ran.err
        found = json.loads(ran.out)
        assert (found["output_tok_per_s"], found["trials"]) == (pytest.approx(tok_per_s), 3)


def test_a_side_of_a_pair_is_no_reference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_pair(tmp_path, 8000.0, 8000.0)
    for repeat in range(3):
        save_trial(tmp_path, trial("run-own", repeat, 900.0, boards(MI300X, 2)))
    found = json.loads(worth(capsys, tmp_path, "--chip", "MI300X", "--json").out)
    assert found["measured"] is None


@pytest.mark.parametrize(
    ("engine_args", "half"),
    [
        ({"disaggregation_mode": "prefill"}, True),
        ({"disaggregation-mode": "decode"}, True),
        ({"disaggregation-mode": "null"}, False),
        ({"kv_transfer_config": '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'}, True),
        ({"kv-transfer-config": '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'}, True),
        ({"kv_transfer_config": '{"kv_connector": "LMCacheConnector", "kv_role": "kv_both"}'}, False),
        ({"max_num_seqs": 8}, False),
    ],
)
def test_one_half_of_prefill_and_decode_is_not_comparable(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, engine_args: dict[str, str], half: bool
) -> None:
    for repeat in range(3):
        save_trial(tmp_path, trial("run-half", repeat, 4000.0, boards(H100, 1), engine_args=engine_args))
        save_trial(tmp_path, trial("run-own", repeat, 900.0, boards(MI300X, 2)))
    own = json.loads(worth(capsys, tmp_path, "--json").out)
    assert (own["measured"] is None) is half, "half of a service is no reference either"
    its_own = trial("run-half", 0, 4000.0, boards(H100, 1), engine_args=engine_args)
    ran = run_here(capsys, "equivalents", its_own.key.trial_id, "--results", str(tmp_path))
    assert ran.code == (2 if half else 0)
    assert ("is not comparable: its engine does only" in ran.err) is half


def test_the_precision_is_the_one_that_ran(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = trial("run-own", 0, 900.0, boards(MI300X, 2), precision=None)
    save_trial(tmp_path, replace(made, engine=make_engine(name="vllm", version="0.11", precision="bf16")))
    for more, told in (((), "llama2-13b, bf16, vllm, batch"), (("--json",), '"precision": "bf16"')):
        assert told in run_here(capsys, "equivalents", "latest", "--results", str(tmp_path), *more).out


def test_a_bound_that_caches_may_pass_is_called_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_trial(tmp_path, trial("run-own", 0, 900.0, boards(H100, 1), model="smollm2-135m-instruct", precision="bf16"))
    text = run_here(capsys, "equivalents", "latest", "--results", str(tmp_path)).out
    assert "at least" not in text
    assert "which is no limit: so few weights may come out of a cache" in text
    found = json.loads(run_here(capsys, "equivalents", "latest", "--results", str(tmp_path), "--json").out)
    assert (found["roofline"]["bound_by"], found["roofline"]["may_be_cached"]) == ("memory", True)


# --- the table ----------------------------------------------------------------------------------------------------------


def test_table_of_the_roofline(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = run_here(capsys, "table", "--run", "run-own", "--columns", "roofline", "--results", str(results))
    assert ran.code == 0, ran.err
    header, row, *notes = ran.out.splitlines()
    assert header.split()[-9:] == [
        "output_tok/s", "mfu", "mbu", "prefill_share", "decode_share", "tok/s/TFLOP/s", "tok/s/TB/s", "tok/s/rated_W", "status",
    ]  # fmt: skip
    assert row.split()[-11:-2] == ["64/32", "900.0", "0.2500", "-", "-", "-", "1.500", "-", "-"]
    assert "against 2x MI300X: 2614.8 TFLOP/s dense fp16 (datasheet)" in notes
    assert "-: not measured" in notes


def test_table_of_the_roofline_as_data(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = run_here(capsys, "table", "--run", "run-own", "--columns", "roofline", "--json", "--results", str(results))
    (row,) = json.loads(ran.out)["rows"]
    assert row["numbers"]["mfu"]["value"] == pytest.approx(0.25)
    assert row["numbers"]["mbu"] | {"metric": "mbu", "value": None, "reason": "not measured"} == row["numbers"]["mbu"]


def test_tokens_beside_their_price(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    """Two H100s at 600 tok/s, of 2.99 USD an hour each."""
    query = "SELECT tok_per_s_per_usd_hour AS n FROM costs WHERE run_id = 'run-two' AND region = 'WORLD'"
    (row,) = json.loads(run_here(capsys, "sql", query, "--json", "--results", str(results)).out)
    assert row["n"] == pytest.approx(600 / (2 * 2.99), rel=1e-3)


def test_the_table_says_where_a_cache_may_pass_the_bound(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = trial("run-own", 0, 900.0, boards(H100, 1))
    mbu = make_metric("mbu", 1.3, source=f"1x H100 SXM: 3.35 TB/s (datasheet); {CACHED}")
    save_trial(tmp_path, replace(made, metrics=made.metrics | {"mbu": mbu}))
    out = run_here(capsys, "table", "--columns", "roofline", "--results", str(tmp_path)).out
    assert f"against 1x H100 SXM: 3.35 TB/s (datasheet); {CACHED}" in out.splitlines()
