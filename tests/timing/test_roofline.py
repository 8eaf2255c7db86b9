"""What tokens cost, and how fast chips could be: against arithmetic done by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.catalog import models
from bench.catalog.chips import Chip, all_chips
from bench.records import ModelShape
from bench.timing.roofline import (
    Costs,
    costs,
    decode_bound,
    highest_peak,
    least_sure,
    may_be_cached,
    output_bound,
    peak_format,
    peaks,
    prefill_bound,
)

LLAMA = ModelShape(parameters=1_000_000, layers=10, heads=8, kv_heads=2, head_dim=16, hidden=128, vocab=100)
CHIPS = {chip.name: chip for chip in all_chips()}


def known(shape: ModelShape, precision: str = "fp16", **over: float) -> Costs:
    found = costs(shape, precision, **over)  # type: ignore[arg-type]
    assert isinstance(found, Costs), found
    return found


def shape_of(name: str) -> ModelShape:
    model = models.lookup(name)
    assert model is not None
    return model.shape


def test_a_dense_model_by_hand() -> None:
    """2 * 1e6 FLOP; attention 4 * 10 * 8 * 16 = 5120 FLOP a token before; cache 10 * 2 * 2 * 16 numbers of 2 bytes."""
    cost = known(LLAMA)
    assert cost.flop(0) == 2_000_000
    assert cost.flop(100) == 2_512_000
    assert cost.kv_b == 10 * 64 * 2
    assert cost.weights_read_b(1) == cost.weights_read_b(64) == 2_000_000
    assert cost.step_b(4, 100) == 2_000_000 + 4 * 100 * 1280
    assert cost.request_flop(10, 2) == 10 * (2_000_000 + 5120 * 5) + 2 * (2_000_000 + 5120 * 11)


def test_grouped_queries_shrink_the_cache_not_the_arithmetic() -> None:
    full = known(ModelShape(parameters=1_000_000, layers=10, heads=8, kv_heads=8, head_dim=16))
    assert full.kv_b == 4 * known(LLAMA).kv_b
    assert full.flop(100) == known(LLAMA).flop(100)


def test_latent_attention_keeps_its_own_width() -> None:
    """DeepSeek: 512 + 64 numbers a layer, not 2 * 128 * 128."""
    assert known(shape_of("deepseek-r1"), "fp8").kv_b == 61 * 576 * 2


def test_a_mixture_of_experts_computes_what_is_active_and_reads_what_is_met() -> None:
    """Mixtral: 8 experts, 2 a token. One token reads its 12.88e9 weights; two read 7/16 of the experts' rest; many read all."""
    shape = shape_of("mixtral-8x7b-instruct")
    cost = known(shape, "bf16")
    assert cost.flop(0) == 2 * 12_879_925_248
    routed = (46_702_792_704 - 12_879_925_248) / 0.75
    assert cost.weights_read_b(1) == pytest.approx(2 * 12_879_925_248)
    assert cost.weights_read_b(2) == pytest.approx(2 * (46_702_792_704 - routed * 0.75**2))
    assert cost.weights_read_b(1000) == pytest.approx(2 * 46_702_792_704)


@pytest.mark.parametrize(
    ("precision", "bytes_a_weight"),
    [("fp32", 4), ("bf16", 2), ("half", 2), ("fp8", 1), ("int8", 1), ("nvfp4", 0.5), ("awq", 0.5), ("w4a16", 0.5)],
)
def test_bytes_of_a_weight(precision: str, bytes_a_weight: float) -> None:
    assert known(LLAMA, precision).weight_b == bytes_a_weight


def test_gguf_blocks_take_what_the_file_takes() -> None:
    assert known(LLAMA, "q4_1", size_b=625_000).weight_b == 0.625
    assert costs(LLAMA, "q4_1") == "the weights are in q4_1, whose bytes are not known"


def test_a_mixture_that_contradicts_itself_is_not_known() -> None:
    for wrong in ({"experts_used": 9}, {"active_parameters": 2_000_000}):
        fields = {"parameters": 1_000_000, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 1, "experts": 8}
        found = costs(ModelShape(**({"experts_used": 2, "active_parameters": 500_000} | fields | wrong)), "fp16")
        assert "it is not known how many weights" in str(found)


@pytest.mark.parametrize(
    ("shape", "precision", "says"),
    [
        (ModelShape(), "fp16", "parameters, layers, heads, head_dim, kv_heads"),
        (ModelShape(parameters=5, layers=1, heads=1, head_dim=1), "fp16", "(kv_heads)"),
        (LLAMA, None, "unknown precision"),
        (LLAMA, "auto", "auto, whose bytes are not known"),
        (
            ModelShape(parameters=5, layers=1, heads=1, kv_heads=1, head_dim=1, experts=8),
            "fp16",
            "a mixture of 8 experts of which it is not known",
        ),
    ],
)
def test_what_is_not_known_has_a_reason(shape: ModelShape, precision: str | None, says: str) -> None:
    found = costs(shape, precision)
    assert isinstance(found, str)
    assert says in found


# --- peaks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chip", "precision", "form"),
    [
        ("H100 SXM", "fp8", "fp8"),
        ("H100 SXM", "fp4", "fp16"),  # it has no fp4: unpacked to 16 bits
        ("H100 SXM", "awq", "fp16"),
        ("H100 SXM", "q4_k_m", "fp16"),
        ("H100 SXM", "bf16", "bf16"),
        ("A100 SXM 80GB", "fp8", "fp16"),
        ("A100 SXM 80GB", "int8", "int8"),
        ("B200", "nvfp4", "fp4"),
        ("TPU v5e", "fp16", "bf16"),
        ("V100 SXM2", "fp32", "fp32"),
        ("TPU v5e", "fp32", None),  # no peak is told, and 16 bits would be another arithmetic
        ("MTT S5000", "fp16", None),
        ("H100 SXM", None, None),
    ],
)
def test_which_dense_peak_counts(chip: str, precision: str | None, form: str | None) -> None:
    assert peak_format(CHIPS[chip], precision) == form


def test_peaks_add_up_over_unlike_chips() -> None:
    able = peaks([CHIPS["H100 SXM"], CHIPS["H100 SXM"], CHIPS["MI300X"]], "fp16")
    assert able.flop_per_s == pytest.approx((2 * 989.4 + 1307.4) * 1e12)
    assert able.bytes_per_s == pytest.approx((2 * 3.35 + 5.3) * 1e12)


def test_one_chip_without_a_figure_leaves_none_of_the_sum() -> None:
    able = peaks([CHIPS["H100 SXM"], CHIPS["MTT S5000"]], "fp16")
    assert (able.flop_per_s, able.bytes_per_s) == (None, None)
    assert able.flop_reason == "the catalogue has no dense fp16 peak of MTT S5000"
    assert able.bytes_reason == "the catalogue has no memory bandwidth of MTT S5000"


def test_the_highest_peak_is_of_any_format() -> None:
    assert highest_peak([CHIPS["B200"], CHIPS["H100 SXM"]]) == pytest.approx((9000 + 1978.9) * 1e12)
    assert highest_peak([CHIPS["MTT S5000"]]) == float("inf"), "nothing is impossible on a chip of which nothing is known"


def test_several_chips_are_as_sure_as_the_worst() -> None:
    assert least_sure([CHIPS["H100 SXM"], CHIPS["Ascend 910B2"], CHIPS["H20"]], "tflops") == "estimate"


def test_weights_that_caches_may_hold() -> None:
    """1.024 GB a chip: of fp16 weights 512 million."""
    cost = known(ModelShape(parameters=600_000_000, layers=10, heads=8, kv_heads=2, head_dim=16))
    assert not may_be_cached(cost, 1)
    assert may_be_cached(cost, 2), "each holds half of them"
    assert not may_be_cached(cost, 2, replicas=2), "each holds all of them"


# --- bounds -------------------------------------------------------------------------------------------------------------


def test_bounds_by_hand() -> None:
    """A chip of 1e9 FLOP/s and 1e8 B/s: 2e6 bytes of weights take 20 ms, a token's arithmetic 2 ms."""
    cost = known(LLAMA)
    one = decode_bound(cost, 1e9, 1e8, sequences=1, context=0)
    assert one.seconds == pytest.approx(0.020)
    assert one.by == "memory"
    many = decode_bound(cost, 1e9, 1e8, sequences=100, context=0)
    assert many.seconds == pytest.approx(0.200)
    assert many.by == "compute"
    prompt = prefill_bound(cost, 1e9, 1e8, 100)
    assert prompt.seconds == pytest.approx(100 * (2e6 + 5120 * 50) / 1e9)
    assert prompt.by == "compute"
    token = output_bound(cost, 1e9, 1e8, sequences=4, input_tokens=0, output_tokens=10)
    assert token.seconds == pytest.approx((2e6 + 4 * 5 * 1280) / 4 / 1e8)
    assert token.by == "memory"


CHIP = st.sampled_from([chip for chip in all_chips() if chip.bandwidth_tb_s and "fp16" in chip.tflops])
MODEL = st.sampled_from([model.shape for model in models.all_models()])


@given(CHIP, MODEL, st.integers(1, 512), st.floats(1, 8192))
def test_a_step_never_gets_faster_with_more_to_do(chip: Chip, shape: ModelShape, sequences: int, context: float) -> None:
    cost, able = known(shape), peaks([chip], "fp16")
    assert able.flop_per_s is not None
    assert able.bytes_per_s is not None

    def step_s(sequences: float, context: float, chips: int = 1) -> float:
        assert able.flop_per_s is not None
        assert able.bytes_per_s is not None
        return decode_bound(cost, chips * able.flop_per_s, chips * able.bytes_per_s, sequences=sequences, context=context).seconds

    base = step_s(sequences, context)
    assert step_s(sequences + 1, context) >= base
    assert step_s(sequences, context + 1) >= base
    assert step_s(sequences + 1, context) / (sequences + 1) <= base / sequences * (1 + 1e-9), (
        "a token never gets dearer by company"
    )
    assert step_s(sequences, context, chips=2) == pytest.approx(base / 2)
