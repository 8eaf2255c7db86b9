"""The command line of GPUStack's benchmark image: what its worker really sends, and what can't be measured as asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from bench.cli.gpustack_runner import benchmark as image
from bench.errors import UsageError
from bench.lab.gpustack.arguments import KEY_ENV, Task, task_of
from bench.lab.gpustack.limits import Limits
from bench.records import DataSpec, LengthSpec, LoadSpec

SAMPLES = json.loads((Path(__file__).parent / "samples" / "arguments-2.3.0.json").read_text(encoding="utf-8"))
"""As the worker of gpustack 2.3.0 builds them (`real_gpustack.py`)."""
BASE = (
    "--target",
    "http://127.0.0.1:8000",
    "--model",
    "m",
    "--outputs",
    "7.dual_json",
    "--data",
    "prompt_tokens=128,output_tokens=64",
)
ONE = ("--profile", "concurrent", "--rate", "4")
SHORT = "prompt_tokens=100,output_tokens=1"


def parsed(*words: str) -> dict[str, Any]:
    """What the command makes of its flags."""
    command = image.commands["run"]
    context = command.make_context("run", list(words))
    return context.params


def task(*words: str) -> Task:
    return task_of(parsed(*BASE, *words))


def real(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Task:
    """The task of a real command line, its authorities in a file that is here."""
    words: list[str] = SAMPLES[kind]
    assert words[:2] == ["benchmark", "run"]
    bundle = tmp_path / "bundle.crt"
    bundle.touch()
    return task_of(parsed(*(str(bundle) if word == "/etc/gpustack/progress-ca-bundle.crt" else word for word in words[2:])))


@pytest.fixture(params=sorted(SAMPLES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--stages", '[{"rate": NaN}]'), "--stages: NaN is no number"),
        (("--stages", '[{"rate": Infinity}]'), "--stages: Infinity is no number"),
        ((*ONE, "--max-seconds", "60", "--warmup", "NaN"), "--warmup: NaN is no number"),
        ((*ONE, "--max-seconds", "60", "--cooldown", '{"percent": -Infinity}'), "--cooldown: -Infinity is no number"),
    ],
)
def test_no_number_in_json_is_nan_or_without_end(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        task(*words)


def test_every_command_line_of_the_real_worker_is_taken(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = real(kind, monkeypatch, tmp_path)
    assert found.base == "7"
    cases = [job.case for job in found.jobs] or [found.ramp.sweep.case]  # type: ignore[union-attr]
    for case in cases:
        assert (case.engine, case.base_url, case.model, case.protocol) == ("openai", "http://127.0.0.1:8000", "m", "openai-chat")
        assert (case.request_timeout_s, case.idle_s, case.repeats) == (3600.0, 0.0, 1)


def test_one_load_in_flight_is_a_job_of_so_many_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [job] = real("concurrency", monkeypatch, tmp_path).jobs
    assert job.stem == "7"
    assert job.case.load == LoadSpec(kind="closed", batch_size=8, num_prompts=100)
    assert (job.case.input_tokens, job.case.output_tokens, job.case.seed) == (LengthSpec(mean=128), LengthSpec(mean=64), 7)
    assert job.limits == Limits()


def test_seconds_are_a_window_less_what_comes_before_and_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [job] = real("fixed_rate", monkeypatch, tmp_path).jobs
    assert job.case.load == LoadSpec(kind="open", request_rate=5.0, arrivals="constant")
    assert (job.case.warmup_s, job.case.duration_s) == pytest.approx((6.0, 51.0))


def test_both_make_a_job_that_time_cuts_off() -> None:
    [job] = task(*ONE, "--max-requests", "100", "--max-seconds", "30").jobs
    assert (job.case.load.num_prompts, job.limits.max_seconds) == (100, 30.0)
    unbound = task(*ONE)
    assert unbound.jobs[0].case.duration_s == 60.0
    assert any("neither" in note for note in unbound.notes)


def test_stages_have_reports_and_prompts_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = real("stages", monkeypatch, tmp_path)
    assert found.is_stages
    assert [job.stem for job in found.jobs] == ["7__stage0", "7__stage1"]
    assert [job.case.seed for job in found.jobs] == [7, 8]
    assert [job.case.load for job in found.jobs] == [
        LoadSpec(kind="closed", batch_size=2, num_prompts=50),
        LoadSpec(kind="closed", batch_size=4),
    ]
    rates = task("--stages", '[{"rate": 2, "max_seconds": 5}]', "--axis", "rate").jobs
    assert rates[0].case.load == LoadSpec(kind="open", request_rate=2.0, arrivals="constant")


def test_a_ramp_searches_what_its_limits_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free, bound = (real(kind, monkeypatch, tmp_path).ramp for kind in ("throughput", "slo"))
    assert free is not None
    assert bound is not None
    assert (free.sweep.search.find, free.sweep.search.over, free.sweep.search.high, free.sweep.search.points) == (
        "knee",
        "batch_size",
        256.0,
        6,
    )
    assert (bound.sweep.search.find, bound.sweep.search.over) == ("max-goodput", "request_rate")
    assert [(slo.name, slo.limit_ms) for slo in bound.slos] == [
        ("slo_avg_ttft_ms", 500.0),
        ("slo_p95_itl_ms", 50.0),
        ("slo_p99_latency_ms", 9000.0),
    ]
    point = bound.sweep.case
    assert bound.sweep.search.points * (point.warmup_s + point.duration_s) <= bound.max_total_s == 900.0
    assert task("--auto-tune", "--slo-p95-tpot-ms", "9").ramp.slos[0].name == "slo_p95_itl_ms"  # type: ignore[union-attr]


def test_limits_prefix_and_spread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = real("limits", monkeypatch, tmp_path)
    [job] = found.jobs
    assert job.limits == Limits(max_errors=3, max_error_rate=0.1)
    assert job.case.input_tokens == LengthSpec(dist="normal", mean=128, spread=0.125)
    assert (job.case.data.prefix_tokens, job.case.data.prefix_groups) == (32, 2)
    assert any("--detect-saturation" in note for note in found.notes)


def test_sharegpt_is_a_file_with_its_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [job] = real("sharegpt", monkeypatch, tmp_path).jobs
    assert job.case.dataset == "sharegpt"
    assert job.case.data == DataSpec(path=SAMPLES["sharegpt"][SAMPLES["sharegpt"].index("--data") + 1], max_input_tokens=900)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "prompt_tokens=100,output_tokens=1,prompt_tokens_min=50,prompt_tokens_max=150",
            LengthSpec(dist="uniform", mean=100, spread=0.5),
        ),
        (f"{SHORT},prompt_tokens_min=100,prompt_tokens_max=100", LengthSpec(mean=100)),
        (f"{SHORT},prompt_tokens_max=300", LengthSpec(dist="uniform", mean=200, spread=0.5)),
        ('{"prompt_tokens": 100, "output_tokens": 1}', LengthSpec(mean=100)),
    ],
)
def test_lengths(data: str, expected: LengthSpec) -> None:
    [job] = task_of(parsed(*BASE[:-1], data, *ONE)).jobs
    assert job.case.input_tokens == expected


def test_the_tokenizer_of_the_model_is_used_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    assert task(*ONE, "--processor", str(tmp_path)).jobs[0].case.tokenizer == str(tmp_path / "tokenizer.json")
    gguf = task(*ONE, "--processor", str(tmp_path / "m.gguf"))
    assert gguf.jobs[0].case.tokenizer is None
    assert any("no tokenizer.json" in note for note in gguf.notes)


def test_a_key_for_the_target_is_in_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, "sk-secret")
    found = task(*ONE, "--backend-kwargs", '{"api_key": "sk-secret", "request_handlers": {"/v1/completions": "x"}}')
    assert (found.key, found.jobs[0].case.api_key_env, found.jobs[0].case.protocol) == (
        "sk-secret",
        KEY_ENV,
        "openai-completions",
    )
    assert "sk-secret" not in repr(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "one of --auto-tune, --stages and --profile"),
        (("--profile", "concurrent"), "without --rate"),
        ((*ONE, "--auto-tune"), "--auto-tune and --profile"),
        (("--stages", "[]"), "--stages must be"),
        (("--stages", "[{}]"), "item 0 has no rate"),
        (("--stages", "[{"), "--stages is not JSON"),
        (("--stages", '[{"rate": true}]'), "rate is no number"),
        (("--stages", '[{"rate": 2, "max_requests": "many"}]'), "max_requests is no number"),
        (("--stages", '[{"rate": 2, "max_seconds": NaN}]'), "--stages: NaN is no number"),
        (("--stages", '[{"rate": 2, "max_requests": 9}, {"rate": 2, "max_requests": 9}]', "--no-seed-increment"), "are the same"),
        (("--profile", "concurrent", "--rate", "2.5", "--max-requests", "9"), "--batch-size"),
        ((*ONE, "--backend-kwargs", "[1]"), "--backend-kwargs must be"),
        *(((*ONE, "--backend-kwargs", f'{{"request_handlers": {bad}}}'), "must be an object") for bad in ("[1]", "7", '"x"')),
        *(((*ONE, "--backend-kwargs", f'{{"api_key": {bad}}}'), "api_key a text") for bad in ("5", '["x"]', "true")),
        ((*ONE, "--backend-kwargs", '{"api_key": "sk-secret"'), "--backend-kwargs is not JSON"),
        ((*ONE, "--backend-kwargs", '{"request_handlers": {"/v1/audio/transcriptions": "x"}}'), "can't be made"),
        ((*ONE, "--warmup", '{"percent": 0.6}', "--cooldown", '{"percent": 0.5}', "--max-seconds", "9"), "nothing to measure"),
        (("--auto-tune", "--lower-bound", "0"), "--lower-bound"),
        (("--auto-tune", "--lower-bound", "9", "--upper-bound", "9"), "--lower-bound"),
        (("--auto-tune", "--max-points", "0"), "--max-points"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name_and_no_key_is_repeated(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        task(*words)
    assert says in str(refused.value)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("wikitext", "neither"),
        ("prompt_tokens=1", "no output_tokens"),
        ("prompt_tokens=0,output_tokens=1", "no prompt_tokens"),
        ("prompt_tokens=1,output_tokens=1,turns=3", "several turns"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "prefix_buckets": [{}, {}]}', "several prefix_buckets"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "prefix_buckets": {"a": 1}}', "list of objects"),
        ('{"prompt_tokens": 9, "output_tokens": 1, "prompt_tokens_stdev": "wide"}', "prompt_tokens_stdev is no number"),
        ('{"prompt_tokens": 9, "output_tokens": 1, "prompt_tokens_min": 9, "prompt_tokens_max": 3}', "above"),
    ],
)
def test_data_that_cannot_be_sent_is_refused(data: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        task_of(parsed(*BASE[:-1], data, *ONE))


def test_an_https_target_is_always_verified() -> None:
    with pytest.raises(UsageError, match="verified"):
        task_of(parsed(*BASE, *ONE, "--target", "https://gateway", "--backend-kwargs", '{"verify": false}'))


@pytest.mark.parametrize("outputs", ["../7.dual_json", ".dual_json", "a/b.json"])
def test_reports_stay_in_their_folder(outputs: str) -> None:
    with pytest.raises(UsageError, match="--outputs"):
        task(*ONE, "--outputs", outputs)


def test_an_unknown_option_is_no_option() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed(*BASE, *ONE, "--replay")
