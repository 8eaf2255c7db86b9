"""`bench recommend` on generated shards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from bench.analysis.candidates import candidates
from bench.analysis.recommend import Wanted, recommend
from bench.imported import ImportedMetric, ImportedResult
from bench.records import DeviceInfo, LengthSpec, LoadSpec, Profile, Status, TrialRecord, Window
from bench.reports.recommend import deployment_yaml
from bench.store.imported import keep
from tests.factories import (
    NS,
    make_case,
    make_device,
    make_engine,
    make_metric,
    make_metrics,
    make_record,
    save_trial,
)
from tests.in_process import Ran, run_here

H100, MI300X = "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"
ASKED = ("--slo", "ttft:500,tpot:50", "--objective", "tok_per_j", "--min-top1", "0.99")


def boards(name: str, count: int) -> tuple[DeviceInfo, ...]:
    return tuple(make_device(uid=f"{name}-{i}", index=i, name=name) for i in range(count))


def trial(
    run_id: str, repeat: int = 0, *, case: dict[str, Any] | None = None, over: dict[str, Any] | None = None, **metrics: Any
) -> TrialRecord:
    fixed = {
        "model": "llama2-13b",
        "precision": "fp8",
        "engine": "vllm",
        "profile": Profile.OFFICIAL,
        "load": LoadSpec(kind="closed", batch_size=64),
    }
    numbers: dict[str, Any] = {
        "output_tok_per_s": 900.0, "tok_per_j": 2.0, "ttft_adjusted_ms": 200.0, "tpot_ms": 20.0, "ppl_delta": 0.002,
        "top1_agreement": make_metric("top1_agreement", 0.995, source="torch 2.13.0 in fp32"),
    }  # fmt: skip
    about = {"devices": boards(H100, 2), "config_id": f"config-{run_id}", "engine": make_engine(name="vllm", version="0.11")}
    return make_record(
        case=make_case(**(fixed | (case or {}))), run_id=run_id, repeat=repeat, metrics=make_metrics(**(numbers | metrics)),
        **(about | (over or {})),
    )  # fmt: skip


def save(folder: Path, run_id: str, *, output_tok_per_s: float = 900.0, tok_per_j: float = 2.0, **over: Any) -> list[str]:
    """Three repeats, 0.5% apart in throughput and in tokens a joule; their ids."""
    records = [
        trial(run_id, repeat, output_tok_per_s=output_tok_per_s * wobble, tok_per_j=tok_per_j * wobble, **over)
        for repeat, wobble in enumerate((0.995, 1.0, 1.005))
    ]
    for record in records:
        save_trial(folder, record)
    return [record.key.trial_id for record in records]


def ask(capsys: pytest.CaptureFixture[str], folder: Path, *more: str, model: str = "llama2-13b") -> Ran:
    return run_here(capsys, "recommend", "--model", model, "--results", str(folder), *more)


@pytest.fixture(scope="module")
def ids() -> list[str]:
    """Of the trials that are recommended, filled in by `results`."""
    return []


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> Path:
    """fp8 on two H100 is the best; fp16 is close behind it, awq is wrong, batch 256 is late, and one point was never checked."""
    folder = tmp_path_factory.mktemp("results")
    ids += save(folder, "run-fp8")
    save(folder, "run-fp16", output_tok_per_s=800.0, tok_per_j=1.99, case={"precision": "fp16"})
    save(
        folder, "run-amd", tok_per_j=1.1, output_tok_per_s=2000.0, case={"precision": "fp16"}, over={"devices": boards(MI300X, 1)}
    )
    save(folder, "run-awq", tok_per_j=9.0, case={"precision": "awq"}, top1_agreement=0.93)
    save(folder, "run-256", tok_per_j=8.0, case={"load": LoadSpec(kind="closed", batch_size=256)}, ttft_adjusted_ms=450.0)
    save(folder, "run-unknown", tok_per_j=7.0, case={"precision": "int8"}, top1_agreement=None)
    save(folder, "run-invalid", tok_per_j=99.0, case={"precision": "int4"}, over={"status": Status.INVALID})
    save_trial(folder, trial("run-other", tok_per_j=99.0, case={"model": "llama2-7b"}))
    return folder


def test_the_best_setting_with_its_evidence(capsys: pytest.CaptureFixture[str], results: Path, ids: list[str]) -> None:
    ran = ask(capsys, results, *ASKED)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == ("llama2-13b, by tok_per_j, tpot <= 50 ms at p99, ttft <= 500 ms at p99, top1_agreement >= 0.99:")
    assert lines[1] == f"  vllm 0.11, fp8, batch 64, 2x {H100}"
    assert "  tok_per_j: 2.000 [1.975, 2.025] tok/J, 3 trials" in lines
    assert "  ttft p99: 300.0 [300.0, 300.0] ms, limit 500" in lines
    assert "  top1_agreement: 0.995, beside torch 2.13.0 in fp32" in lines
    assert f"  run run-fp8, trials {', '.join(ids)}" in lines


def test_a_runner_up_that_may_be_as_good_is_said_to_be(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    lines = ask(capsys, results, *ASKED).out.splitlines()
    alike = f"vllm 0.11, fp16, batch 64, 2x {H100}"
    assert f"  note: no difference shown from: {alike}" in lines
    assert f"  note: the better mean, but not shown to differ from: vllm 0.11, fp16, batch 64, {MI300X}" in lines
    second = next(line for line in lines if line.startswith("2"))
    assert alike in second
    assert second.endswith("no difference shown")
    third = next(line for line in lines if line.startswith("3"))
    assert third.endswith("not comparable: different boards, and no source gives the gain error of their sensors")


@pytest.mark.parametrize("command", ["text", "file"])
def test_settings_that_would_read_the_same_are_told_apart(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    out = tmp_path / "deployment.yaml"
    save(tmp_path, "run-long", case={"duration_s": 60.0})
    save(tmp_path, "run-short", tok_per_j=1.99, case={"duration_s": 30.0})
    save(tmp_path, "run-fp16", tok_per_j=1.0, case={"precision": "fp16"})
    ran = ask(capsys, tmp_path, *ASKED, "--out", str(out))
    told = ran.out if command == "text" else out.read_text()
    assert f"vllm 0.11, fp8, batch 64, 2x {H100} (duration_s=60)" in told
    assert f"vllm 0.11, fp8, batch 64, 2x {H100} (duration_s=30)" in told
    assert f"fp16, batch 64, 2x {H100} (" not in told


@pytest.mark.parametrize(("lacking", "lower"), [(("p99",), "p90"), (("p99", "p90"), "p50"), (("p99", "p90", "p50"), None)])
def test_a_quantile_that_takes_fewer_requests_is_offered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, lacking: tuple[str, ...], lower: str | None
) -> None:
    few = replace(make_metric("ttft_adjusted_ms", 200.0), **dict.fromkeys(lacking))
    save(tmp_path, "run-few", ttft_adjusted_ms=few)
    ran = ask(capsys, tmp_path, *ASKED)
    assert ran.code == 1
    assert "left out, no latency figure: ttft_adjusted_ms p99" in ran.out
    assert (f"next: --at {lower}" in ran.out) if lower else ("next: --at" not in ran.out)
    if lower:
        assert ask(capsys, tmp_path, *ASKED, "--at", lower).code == 0


def test_what_was_left_out_is_counted_with_its_reason(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    lines = ask(capsys, results, *ASKED).out.splitlines()
    assert "1 point left out, no correctness figure: top1_agreement: not measured" in lines
    assert "1 point left out, not correct enough: top1_agreement 0.93, wanted 0.99" in lines
    assert "1 point missed a limit" in lines
    assert "3 trials left out, not valid: bench table --all says why" in lines


def test_the_same_as_data(capsys: pytest.CaptureFixture[str], results: Path, ids: list[str]) -> None:
    found = json.loads(ask(capsys, results, *ASKED, "--json").out)
    best = found["best"]
    assert (best["engine"], best["precision"], best["batch_size"], best["devices"]) == ("vllm", "fp8", 64, [H100, H100])
    assert best["trials"] == ids
    assert best["value"]["value"] == pytest.approx(2.0, rel=1e-3)
    assert best["value"]["low"] < 2.0 < best["value"]["high"]
    assert [one["beside_best"]["verdict"] for one in found["runners_up"]] == ["no difference shown", "not comparable"]
    assert [one["misses"] for one in found["near"]] == [[{"metric": "ttft", "worst_ms": 675.0, "limit_ms": 500.0}]]
    assert [one["lack"] for one in found["left_out"]] == ["not correct enough", "no correctness figure"]


@pytest.mark.parametrize(("objective", "device"), [("tok_per_s", MI300X), ("usd_per_mtok", MI300X), ("tok_per_j", H100)])
def test_objectives(capsys: pytest.CaptureFixture[str], results: Path, objective: str, device: str) -> None:
    ran = ask(
        capsys,
        results,
        *ASKED[:2],
        "--objective",
        objective,
        "--max-ppl-delta",
        "0.01",
        "--json",
        "--where",
        "top1_agreement > 0.99",
    )
    found = json.loads(ran.out)
    assert set(found["best"]["devices"]) == {device}


def test_dollars_are_those_of_the_price_list_and_it_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two boards at 1.80 USD/h are 0.001 USD/s; 1000 tok/s make a million in 1000 s."""
    save_trial(tmp_path, trial("run", output_tok_per_s=1000.0))
    price = "{device: 'NVIDIA H100.*', usd_per_device_hour: 1.8, since: 2026-01-01, source: an offer}"
    (tmp_path / "prices.yaml").write_text(f"devices: [{price}]\npower: []\n")
    ran = ask(capsys, tmp_path, "--objective", "usd_per_mtok", "--min-top1", "0.9")
    assert ran.code == 0, ran.err
    assert "  usd_per_mtok: 1.000 USD/Mtok, 1 trial" in ran.out
    assert "  price: 1.8 USD per device and hour, an offer (since 2026-01-01)" in ran.out


def test_what_has_no_price_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_trial(tmp_path, trial("run", over={"devices": boards("Abacus", 1)}))
    ran = ask(capsys, tmp_path, "--objective", "usd_per_mtok", "--min-top1", "0.9")
    assert ran.code == 1
    assert "1 point left out, nothing to rank it by: no price of Abacus on that night" in ran.out


# --- files and tables ---------------------------------------------------------------------------------------------------


def test_a_deployment_file_with_its_evidence(
    capsys: pytest.CaptureFixture[str], results: Path, tmp_path: Path, ids: list[str]
) -> None:
    out = tmp_path / "deployment.yaml"
    out.write_text("old")
    assert ask(capsys, results, *ASKED, "--out", str(out)).code == 0
    text = out.read_text()
    assert yaml.safe_load(text) == {"models": {"llama2-13b": {"engine": "vllm", "devices": [H100, H100], "quantization": "fp8"}}}
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert any(all(one in line for one in ids) for line in comments)
    assert any("no difference shown" in line for line in comments)


@pytest.mark.parametrize("model", ["a: b", "org/model #1", "yes", "line\nmodels: {}", "1.0", "模型"])
def test_a_deployment_file_of_any_model_name_is_yaml(model: str) -> None:
    found = recommend(candidates([trial("run", case={"model": model})]), Wanted(objective="tok_per_j", min_top1=0.9))
    text = deployment_yaml(found, model)
    assert list(yaml.safe_load(text)["models"]) == [model]


def test_nothing_is_written_where_nothing_is_recommended(
    capsys: pytest.CaptureFixture[str], results: Path, tmp_path: Path
) -> None:
    out = tmp_path / "deployment.yaml"
    ran = ask(capsys, results, *ASKED[2:], "--slo", "ttft:1", "--out", str(out))
    assert (ran.code, out.exists()) == (1, False)
    assert "is not written" in ran.err


def test_a_routing_table(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    lines = ask(capsys, results, *ASKED, "--routing").out.splitlines()
    header = next(place for place, line in enumerate(lines) if line.startswith("devices "))
    cells = [re.split("  +", line) for line in lines[header + 1 : header + 3]]
    alike = "fp8 (no difference shown from fp16)"
    assert cells == [
        [MI300X, "fp16", "2000", "fp16", "1.100", "fp16", "-", "fp8, int8"],
        [f"2x {H100}", "fp8", "900.0", alike, "2.000", "fp16, fp8", "awq, int8", "-"],
    ]


# --- when nothing fits --------------------------------------------------------------------------------------------------


def test_the_nearest_point_and_what_it_misses(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = ask(capsys, results, "--slo", "ttft:250,tpot:15", "--objective", "tok_per_s", "--min-top1", "0.99")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith("nothing measured of llama2-13b meets the limits, by tok_per_s")
    assert lines[1].startswith("nearest: vllm 0.11")
    assert "  ttft p99 is 300.0 ms in its worst trial, 1.20 times the limit of 250" in lines
    assert "  tpot p99 is 30.00 ms in its worst trial, 2.00 times the limit of 15" in lines


def test_without_a_valid_trial_there_is_nothing(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = ask(capsys, results, *ASKED, "--where", "precision = 'int4'")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith("nothing measured of llama2-13b can be recommended, by tok_per_j")
    assert lines[-1] == "3 trials left out, not valid: bench table --all says why"


def test_only_the_last_run_of_a_configuration_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save(tmp_path, "run-1", over={"config_id": "one"}, tok_per_j=9.0)
    new = trial("run-2", over={"config_id": "one"})
    save_trial(tmp_path, replace(new, started=replace(new.started, wall_ns=new.started.wall_ns + 86_400 * NS)))
    found = json.loads(ask(capsys, tmp_path, *ASKED, "--json").out)
    assert (found["best"]["run_id"], found["runners_up"]) == ("run-2", [])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--objective", "tok_per_j"), "the lowest precision always wins"),
        ((*ASKED[:4], "--min-top1", "none"), "the lowest precision always wins"),
        ((*ASKED[:4], "--min-top1", "0"), "lets everything through"),
        ((*ASKED[:4], "--max-ppl-delta", "inf"), "lets everything through"),
        ((*ASKED[:4], "--min-top1", "99"), "is a share"),
        ((*ASKED[:4], "--min-top1", "nan"), "is a share"),
        ((*ASKED[:4], "--max-ppl-delta", "-0.1"), "is a share"),
        ((*ASKED[:4], "--min-top1", "high"), "is no number"),
        ((*ASKED[2:], "--slo", "latency:5"), "is not a limit"),
        ((*ASKED[2:], "--slo", "ttft:5,ttft:6"), "limits ttft twice"),
        ((*ASKED[2:], "--slo", ""), "--slo ''"),
        ((*ASKED, "--where", "colour = 'red'"), "colour"),
        ((*ASKED[:2], "--objective", "beauty", "--min-top1", "0.9"), "beauty"),
    ],
)
def test_bad_input_says_why(capsys: pytest.CaptureFixture[str], results: Path, given: tuple[str, ...], says: str) -> None:
    ran = ask(capsys, results, *given)
    assert ran.code == 2
    assert says in ran.err
    assert "next: " in ran.err


def test_an_unknown_model_names_the_nearest(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    ran = ask(capsys, results, *ASKED, model="llama2-13")
    assert ran.code == 2
    assert "did you mean 'llama2-13b'?" in ran.err


@pytest.mark.parametrize(
    ("case", "over"),
    [
        ({"input_tokens": LengthSpec(mean=4096)}, {}),
        ({"output_tokens": LengthSpec(mean=32, dist="uniform", spread=0.5)}, {}),
        ({"dataset": "sharegpt"}, {}),
        ({}, {"window": Window(t0_ns=0, t1_ns=NS, kind="whole_job")}),
    ],
)
def test_other_requests_are_not_ranked_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, case: dict[str, Any], over: dict[str, Any]
) -> None:
    save_trial(tmp_path, trial("run-1"))
    save_trial(tmp_path, trial("run-2", case=case, over=over))
    ran = ask(capsys, tmp_path, *ASKED)
    assert ran.code == 2
    assert "2 kinds of requests, which can't be ranked together" in ran.err
    [offered] = re.findall(r'next: --where "([^"]+)"', ran.err)
    mended = ask(capsys, tmp_path, *ASKED, "--where", offered, "--json")
    assert mended.code == 0, mended.err
    assert json.loads(mended.out)["best"]["run_id"] == "run-2"  # the one measured last


def test_joules_of_other_scopes_are_not_ranked_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_trial(tmp_path, trial("run-1"))
    save_trial(tmp_path, trial("run-2", over={"energy_scope": "node"}))
    ran = ask(capsys, tmp_path, *ASKED)
    assert ran.code == 2
    assert "accelerator and node" in ran.err
    assert ask(capsys, tmp_path, *ASKED, "--where", "energy_scope = 'node'").code == 0
    assert ask(capsys, tmp_path, "--objective", "tok_per_s", "--min-top1", "0.9").code == 0


def test_what_other_tools_measured_is_never_recommended(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_trial(tmp_path, trial("run-1"))
    keep(
        tmp_path,
        [
            ImportedResult(
                import_id="0123", tool="vllm-bench", file="theirs.json", file_sha256="0" * 64, place=0, model="llama2-13b",
                imported_at="2026-11-30T15:00:00Z", bench_version="0",
                metrics=(ImportedMetric(name="output_tok_per_s", unit="tok/s", value=9e9),),
            )
        ],
    )  # fmt: skip
    ran = ask(capsys, tmp_path, "--objective", "tok_per_s", "--min-top1", "0.9")
    assert ran.code == 0
    assert "output" not in ran.out
    assert "tok_per_s: 900.0 tok/s" in ran.out
    assert "note: what other tools measured (1) is not looked at" in ran.err
