"""MFU, MBU and shares of the roofline: MLPerf's published rows by hand, what is not known, and what can't be."""

from __future__ import annotations

from typing import Any

import pytest

from bench.records import Case, DeviceInfo, LengthSpec, LocalModel, Metric, ModelShape, Parallelism, Reason
from bench.timing import measure
from bench.timing.normalise import normalised
from bench.timing.spec import NORMALISED, REQUIRED, undefined
from tests.factories import make_case, make_device, make_engine, make_metric
from tests.timing import builders

MIB = 1 << 20
BOARDS = {
    "B200": ("NVIDIA B200", 183359 * MIB, 1000.0),
    "H200": ("NVIDIA H200", 143771 * MIB, 700.0),
    "H100": ("NVIDIA H100 80GB HBM3", 81559 * MIB, 700.0),
    "MI300X": ("AMD Instinct MI300X", 196592 * MIB, 750.0),
    "910B2": ("Ascend 910B2", 65536 * MIB, None),
}
ANSWER = 294
"""Tokens of an answer of MLPerf's llama2-70b set, on average. Its prompts are left out: what follows is the least they did."""


def boards(kind: str, count: int = 1, **over: Any) -> tuple[DeviceInfo, ...]:
    name, memory_b, limit_w = BOARDS[kind]
    fixed = {"name": name, "memory_total_b": memory_b, "power_limit_w": limit_w} | over
    return tuple(make_device(uid=f"u{i}", index=i, **fixed) for i in range(count))


def measured(**values: float | Metric | None) -> dict[str, Metric]:
    made = {name: undefined(name, "not measured") for name in REQUIRED}
    return made | {name: v if isinstance(v, Metric) else make_metric(name, v) for name, v in values.items()}


def run(
    case: Case, metrics: dict[str, Metric], devices: tuple[DeviceInfo, ...], *, model: LocalModel | None = None, **engine: Any
) -> tuple[dict[str, Metric], tuple[Reason, ...]]:
    return normalised(case, metrics, devices, model=model, engine=make_engine(**engine), attached=False)


def mlperf(tok_per_s: float, sequences: float) -> dict[str, Metric]:
    """A row of eight GPUs, each with a model of its own and so many answers at once."""
    gap_ms = 1e3 * sequences / (tok_per_s / 8)
    return measured(
        output_tok_per_s=tok_per_s, input_tok_per_s=make_metric("input_tok_per_s", 0.0), icl_ms=gap_ms, input_tokens=None,
        output_tokens=float(ANSWER),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "precision", "tok_per_s", "peak_tflops", "bandwidth_tb_s", "weight_b", "mfu", "mbu"),
    [
        # Inference v5.1, llama2-70b offline
        ("B200", "fp4", 102_909.0, 9000.0, 8.0, 0.5, 0.19773, 0.13160),
        # v4.1, at 6,153 W
        ("H200", "fp8", 25_262.0, 1978.9, 4.8, 1.0, 0.22075, 0.07600),
        ("MI300X", "fp8", 27_804.0, 2614.9, 5.3, 1.0, 0.18387, 0.07575),
    ],
)
def test_three_rows_of_mlperf(
    kind: str,
    precision: str,
    tok_per_s: float,
    peak_tflops: float,
    bandwidth_tb_s: float,
    weight_b: float,
    mfu: float,
    mbu: float,
) -> None:
    """By hand, with 1024 answers at once on each GPU.

    A token: 2 * 68,976,648,192 = 137.953 GFLOP, and 4 * 80 * 64 * 128 = 2.621 MFLOP for each of 147 tokens before it: 138.339.
    B200: 102,909 * 138.339e9 = 14.236 PFLOP/s, of 8 * 9 = 72. Steps: 102,909 / 8 / 1024 = 12.562 a second. Each reads 34.488 GB
    of weights and 1024 * 147 tokens of 80 * 2 * 8 * 128 * 2 = 327,680 bytes, 49.325 GB: 1.0529 TB/s of 8.
    """
    flop = 2 * 68_976_648_192 + 4 * 80 * 64 * 128 * 147
    steps = tok_per_s / 8 / 1024
    read = 68_976_648_192 * weight_b + 1024 * 147 * 80 * 2 * 8 * 128 * 2
    assert tok_per_s * flop / (8 * peak_tflops * 1e12) == pytest.approx(mfu, rel=2e-4)
    assert steps * read / (bandwidth_tb_s * 1e12) == pytest.approx(mbu, rel=2e-4)

    case = make_case(model="llama2-70b", precision=precision, parallel=Parallelism(dp=8), input_tokens=LengthSpec(mean=0))
    metrics = mlperf(tok_per_s, 1024)
    found, reasons = run(case, metrics, boards(kind, 8))
    assert found["mfu"].value == pytest.approx(mfu, rel=2e-4)
    assert found["mbu"].value == pytest.approx(mbu, rel=2e-4)
    assert found["tok_per_s_per_tflops"].value == pytest.approx(tok_per_s / (8 * peak_tflops))
    assert found["tok_per_s_per_tbps"].value == pytest.approx(tok_per_s / (8 * bandwidth_tb_s))
    assert reasons == ()


# --- prompts, steps, replicas -------------------------------------------------------------------------------------------

EIGHT = {"parameters": 8_000_000_000, "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128}
"""Cache of a token: 32 * 2 * 8 * 128 * 2 = 131,072 bytes; attention: 524,288 FLOP a token before."""


def weights(**over: Any) -> LocalModel:
    shape = ModelShape(**(EIGHT | over.pop("shape", {})))
    fixed: dict[str, Any] = {"name": "m", "source": "s", "path": "/m", "format": "safetensors", "size_b": 1}
    return LocalModel(**(fixed | over), weights_sha256=None, shape=shape)


def serving(**over: float | Metric | None) -> dict[str, Metric]:
    """40 sequences at once, a token each every 25 ms; prompts of 1000, answers of 200."""
    values: dict[str, float | Metric | None] = {
        "output_tok_per_s": make_metric("output_tok_per_s", 1600.0, low=1520.0, high=1680.0),
        "input_tok_per_s": 8000.0,
        "icl_ms": 25.0,
        "ttft_ms": 100.0,
        "tokens_per_chunk": 1.0,
        "input_tokens": 1000.0,
        "output_tokens": 200.0,
    }
    return measured(**(values | over))


CASE = make_case(precision="bf16")


def test_one_h100_by_hand() -> None:
    found, reasons = run(CASE, serving(), boards("H100"), model=weights())
    token = 16e9 + 524_288 * 1100  # FLOP of an output token
    prompt = 16e9 + 524_288 * 500
    assert found["mfu"].value == pytest.approx((1600 * token + 8000 * prompt) / 989.4e12)
    step_b = 16e9 + 40 * 1100 * 131_072
    assert found["mbu"].value == pytest.approx(40 * step_b / 3.35e12)
    assert found["decode_roofline_share"].value == pytest.approx(step_b / 3.35e12 / 0.025)
    assert found["decode_roofline_share"].source == "bound by memory: 6.5 ms"
    assert found["prefill_roofline_share"].value == pytest.approx(1000 * prompt / 989.4e12 / 0.1)
    assert (found["prefill_roofline_share"].source or "").startswith("bound by compute")
    assert found["mfu"].source == "1x H100 SXM: 989.4 TFLOP/s dense bf16 (datasheet)"
    assert found["mbu"].source == "1x H100 SXM: 3.35 TB/s (datasheet)"
    per_w = found["tok_per_s_per_rated_w"]
    assert per_w.value == pytest.approx(1600 / 700)
    assert per_w.low == pytest.approx(1520 / 700)
    assert per_w.high == pytest.approx(1680 / 700)
    assert reasons == ()


def test_a_prefix_cache_s_tokens_were_not_computed() -> None:
    whole, _ = run(CASE, serving(), boards("H100"), model=weights())
    cached, _ = run(CASE, serving(prefix_cache_hit_share=0.75), boards("H100"), model=weights())
    token, prompt = 16e9 + 524_288 * 1100, 16e9 + 524_288 * 500
    assert cached["mfu"].value == pytest.approx((1600 * token + 2000 * prompt) / 989.4e12)
    assert (cached["prefill_roofline_share"].value or 0) < (whole["prefill_roofline_share"].value or 0) / 3


def test_tokens_that_come_several_a_step_are_fewer_steps() -> None:
    """Speculative decoding: two tokens a chunk halve the sequences in a step, not the steps."""
    found, _ = run(CASE, serving(tokens_per_chunk=2.0), boards("H100"), model=weights())
    assert found["mbu"].value == pytest.approx(40 * (16e9 + 20 * 1100 * 131_072) / 3.35e12)


def test_every_replica_reads_its_weights() -> None:
    two = make_case(precision="bf16", parallel=Parallelism(dp=2))
    found, _ = run(two, serving(), boards("H100", 2), model=weights())
    assert found["mbu"].value == pytest.approx(2 * 40 * (16e9 + 20 * 1100 * 131_072) / 6.7e12)
    one, _ = run(make_case(precision="bf16", parallel=Parallelism(tp=2)), serving(), boards("H100", 2), model=weights())
    assert one["mbu"].value == pytest.approx(40 * (16e9 + 40 * 1100 * 131_072) / 6.7e12)


def test_an_engine_that_idles_between_requests_takes_as_many_steps_as_chunks_come() -> None:
    found, _ = run(CASE, serving(output_tok_per_s=10.0), boards("H100"), model=weights())
    assert found["mbu"].value == pytest.approx(10 * (16e9 + 1100 * 131_072) / 3.35e12)


def test_an_8_bit_cache_is_read_in_half_the_bytes() -> None:
    found, _ = run(CASE, serving(), boards("H100"), model=weights(), settings={"kv_cache_dtype": "fp8_e4m3"})
    assert found["mbu"].value == pytest.approx(40 * (16e9 + 40 * 1100 * 65_536) / 3.35e12)


def test_gguf_weights_are_read_as_they_lie_in_the_file() -> None:
    model = weights(format="gguf", size_b=5_000_000_000)
    found, _ = run(make_case(precision="q4_k_m"), serving(), boards("H100"), model=model)
    assert found["mbu"].value == pytest.approx(40 * (5e9 + 40 * 1100 * 131_072) / 3.35e12)


def test_what_runs_counts_not_what_was_asked_for() -> None:
    found, _ = run(make_case(precision="fp8"), serving(), boards("H100"), model=weights(), precision="bf16")
    assert "dense bf16" in (found["mfu"].source or "")


@pytest.mark.parametrize(
    ("limit_w", "rated_w", "says"),
    [
        (500.0, 1000, "2x H20: 1000 W rated (the limits that the boards tell, above the rating)"),
        (400.0, 800, "2x H20: 800 W rated (press)"),
        (None, 800, "2x H20: 800 W rated (press)"),
    ],
)
def test_the_limit_that_a_board_tells_wins_over_a_lower_rating(limit_w: float | None, rated_w: float, says: str) -> None:
    devices = boards("H100", 2, name="NVIDIA H20", memory_total_b=97871 * MIB, power_limit_w=limit_w)
    found, _ = run(CASE, serving(), devices, model=weights())
    assert found["tok_per_s_per_rated_w"].value == pytest.approx(1600 / rated_w)
    assert found["tok_per_s_per_rated_w"].source == says


def test_what_may_come_out_of_a_cache_says_so_and_may_pass_its_bound() -> None:
    """270 MB every 60 us are 4.5 TB/s of 3.35: no reading of the memory, and no impossible trial."""
    small = weights(shape={"parameters": 135_000_000, "layers": 30, "heads": 9, "kv_heads": 3, "head_dim": 64})
    fast = serving(icl_ms=0.06, output_tok_per_s=16_000.0, input_tok_per_s=0.0, input_tokens=1.0, output_tokens=1.0)
    found, reasons = run(CASE, fast, boards("H100"), model=small)
    assert reasons == ()
    assert (found["mbu"].value or 0) > 1
    for name in ("mbu", "decode_roofline_share"):
        assert "may come out of a cache" in (found[name].source or ""), name
    large, _ = run(CASE, serving(), boards("H100"), model=weights())
    assert not any("cache" in (metric.source or "") for metric in large.values())


# --- what is not known --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "devices", "attached", "says"),
    [
        (CASE, (), False, "no accelerator"),
        (make_case(devices=("cpu",)), boards("H100"), False, "no accelerator"),
        (CASE, boards("H100"), True, "attached endpoint: name its boards with --devices"),
        (CASE, boards("H100", shared="MIG: 2 slices share the board's power"), False, "is not the whole chip: MIG"),
        (CASE, boards("H100", name="NVIDIA New"), False, "the catalogue has no such chip"),
        (CASE, boards("H100", 8, power_reason="which board it uses could not be told"), False, "which board it uses"),
    ],
)
def test_hardware_that_is_not_known(case: Case, devices: tuple[DeviceInfo, ...], attached: bool, says: str) -> None:
    found, reasons = normalised(case, serving(), devices, model=weights(), engine=make_engine(), attached=attached)
    assert set(found) == set(NORMALISED)
    assert reasons == ()
    for metric in found.values():
        assert metric.value is None
        assert says in (metric.reason or "")


def test_boards_that_were_named_are_taken_at_their_word() -> None:
    devices = boards("H100", 2, power_reason="no sensor")
    found, _ = run(make_case(precision="bf16", devices=("0", "1")), serving(), devices, model=weights())
    assert found["mfu"].value


def test_a_module_around_an_accelerator_is_not_a_second_chip() -> None:
    (board,) = boards("H100")
    module = make_device(uid="m", scope="module", name="NVIDIA Module")
    found, _ = run(CASE, serving(), (board, module), model=weights())
    assert (found["mfu"].source or "").startswith("1x H100 SXM")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (weights(shape={"parameters": None}), "shape is not known (parameters)"),
        (weights(shape={"experts": 8, "experts_used": 2}), "a mixture of 8 experts"),
        (None, "shape is not known"),
    ],
)
def test_a_model_that_is_not_known_leaves_what_needs_none(model: LocalModel | None, says: str) -> None:
    found, _ = run(CASE, serving(), boards("H100"), model=model)
    for name in ("mfu", "mbu", "prefill_roofline_share", "decode_roofline_share"):
        assert says in (found[name].reason or ""), name
    assert found["tok_per_s_per_tflops"].value == pytest.approx(1600 / 989.4)


@pytest.mark.parametrize(
    ("missing", "without"),
    [
        ("output_tok_per_s", set(NORMALISED)),
        ("input_tok_per_s", {"mfu"}),
        ("icl_ms", {"mbu", "decode_roofline_share"}),
        ("ttft_ms", {"prefill_roofline_share"}),
    ],
)
def test_a_measurement_that_is_missing_takes_only_its_own_with_it(missing: str, without: set[str]) -> None:
    found, _ = run(CASE, serving(**{missing: None}), boards("H100"), model=weights())
    assert {name for name, metric in found.items() if metric.value is None} == without
    assert all(found[name].reason for name in without)


# --- what can't be ------------------------------------------------------------------------------------------------------


def test_more_arithmetic_than_the_fastest_format_has_is_impossible() -> None:
    """H100: 1979 TFLOP/s; 140,000 tokens of 16.6 GFLOP a second are 2.3e15."""
    _, reasons = run(CASE, serving(output_tok_per_s=140_000.0), boards("H100"), model=weights())
    assert [(r.code, r.group, r.severity) for r in reasons] == [("impossible", "throughput", "invalid")]
    assert "times the arithmetic that 1x H100 SXM can do" in reasons[0].message


def test_prompts_count_only_where_the_cache_is_told() -> None:
    much = {"input_tok_per_s": 200_000.0}
    assert run(CASE, serving(**much), boards("H100"), model=weights())[1] == ()
    assert run(CASE, serving(**much, prefix_cache_hit_share=0.99), boards("H100"), model=weights())[1] == ()
    (reason,) = run(CASE, serving(**much, prefix_cache_hit_share=0.0), boards("H100"), model=weights())[1]
    assert reason.code == "impossible"


def test_more_reading_than_the_memory_gives_is_impossible() -> None:
    """16 GB of weights every 4 ms are 4 TB/s of 3.35."""
    (reason,) = run(CASE, serving(icl_ms=4.0), boards("H100"), model=weights())[1]
    assert (reason.code, reason.severity) == ("impossible", "invalid")
    assert "times what the memory of 1x H100 SXM can give" in reason.message


def test_what_hangs_on_full_attention_is_a_warning() -> None:
    """Gemma 3 27B on an H100, 8 requests of 32,768 tokens, a step every 28 ms: 54 GB of weights and, as five of six layers look
    back 1,024 tokens only, some 22 GB of cache are 80% of what the memory gives; with full attention it would be 160 GB.
    """
    gemma = weights(shape={"parameters": 27_000_000_000, "layers": 62, "heads": 32, "kv_heads": 16, "head_dim": 128})
    seen = serving(output_tok_per_s=8 / 0.028, icl_ms=28.0, input_tokens=32_768.0)
    (reason,) = run(CASE, seen, boards("H100"), model=gemma)[1]
    assert (reason.code, reason.severity) == ("impossible", "warning")


def test_weights_that_a_cache_can_hold_prove_nothing() -> None:
    small = weights(shape={"parameters": 400_000_000})
    assert run(CASE, serving(icl_ms=0.2, output_tok_per_s=5000.0), boards("H100"), model=small)[1] == ()


@pytest.mark.parametrize(
    ("case", "kind", "engine"),
    [
        (CASE, "910B2", {}),  # its bandwidth is an estimate
        (make_case(precision="bf16", engine_args={"speculative_config": "{}"}), "H100", {}),
        (CASE, "H100", {"settings": {"num_draft_tokens": 4}}),
    ],
)
def test_where_it_is_not_sure_it_is_a_warning(case: Case, kind: str, engine: dict[str, Any]) -> None:
    (reason,) = run(case, serving(icl_ms=4.0), boards(kind), model=weights(), **engine)[1]
    assert (reason.code, reason.severity) == ("impossible", "warning")


def test_a_measured_trial_has_them() -> None:
    requests = builders.closed_loop(slots=4, gap_ms=20.0, n=8)
    case = builders.make_case(precision="bf16")
    load = builders.make_load(builders.make_log(requests), builders.window_ms(0, 10_000))
    seen = builders.telemetry(boards("H100"), ())
    found = measure(case, load, seen, {}, {}, engine=make_engine(), model=weights()).metrics
    output, gap = found["output_tok_per_s"].value, found["icl_ms"].mean
    assert output is not None
    assert gap is not None
    assert gap == pytest.approx(20.0)
    sequences = output * gap / 1e3
    assert found["mbu"].value == pytest.approx((16e9 + sequences * 12 * 131_072) / 0.020 / 3.35e12, rel=0.01)
    assert measure(case, load, seen, {}, {}, engine=make_engine()).metrics["mbu"].reason
