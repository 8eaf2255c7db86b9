"""The vocabulary of number formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.precision import FLOATS, GGUF, NAMES, QUANTISED, nearest, normal_precision, read_back, same_precision, spelled


@pytest.mark.parametrize(("asked", "have", "same"), [
    ("fp16", "torch.float16", True), ("fp16", "half", True), ("bf16", "bfloat16", True), ("fp16", "bf16", False),
    ("fp8", "FP8_E4M3", True), ("fp8", "bf16", False), (None, "bf16", True), ("auto", "bf16", True), ("fp16", None, True),
    ("q4_1", "Q4_1", True), ("q4_k_m", "Q4_K - Medium", True), ("q4_k_m", "Q4_K - Small", False), ("int4", "Q4_1", True),
    ("int8", "q4_0", False), ("int8", "q8_0", True), ("int4", "awq", True), ("fp16", "F16", True), ("int4", "int8", False),
    ("w4a16", "gptq", True), ("awq", "w4a16", True), ("awq", "gptq", False), ("fp4", "nvfp4", True), ("nvfp4", "mxfp4", False),
    ("tf32", "fp32", False), ("fp6", "fp8", False), ("w8a8", "int8", True),
])  # fmt: skip
def test_same_precision(asked: str | None, have: str | None, same: bool) -> None:
    assert same_precision(asked, have) is same
    assert same_precision(have, asked) is same


def test_unsaid_precision_is_none() -> None:
    assert [normal_precision(name) for name in (None, "", "Auto", "torch.bfloat16")] == [None, None, None, "bf16"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Q4_1", "q4_1"),
        ("Q4_K - Medium", "q4_k_m"),
        ("Q4_K_M", "q4_k_m"),
        ("Q3_K - Small", "q3_k_s"),
        ("all F32", "fp32"),
        ("F16", "fp16"),
        ("torch.float32", "fp32"),
        ("bfloat16", "bf16"),
        ("MXFP4 MoE", "mxfp4"),
        ("IQ2_XXS - 2.0625 bpw", "iq2_xxs"),
        ("Q8_0 (guessed)", "q8_0"),
        ("(guessed) Q8_0", "q8_0"),
        ("TQ1_0 - 1.69 bpw ternary", "tq1_0"),
        ("float8_e4m3fn", "fp8"),
        ("w8a8", "int8"),
    ],
)
def test_names_have_one_spelling(name: str, found: str) -> None:
    assert spelled(name) == found
    assert found in NAMES


@given(st.text())
def test_any_name_is_survived_and_stable(name: str) -> None:
    assert spelled(spelled(name)) == spelled(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_word_of_the_vocabulary_stays(name: str) -> None:
    assert spelled(name) == spelled(name.upper()) == name
    assert same_precision(name, name)


def test_every_word_has_one_kind() -> None:
    assert sorted(NAMES) == sorted({*FLOATS, *QUANTISED, *GGUF})


@pytest.mark.parametrize(
    ("asked", "told", "read"),
    [
        (None, None, None),
        ("q4_1", None, None),
        (None, "Q4_1", "q4_1"),
        ("half", "F16", "half"),
        ("fp16", "BF16", "bf16"),
        ("Q4_K_M", "Q4_K - Medium", "Q4_K_M"),
    ],
)
def test_what_runs_is_told_in_the_words_of_the_case(asked: str | None, told: str | None, read: str | None) -> None:
    assert read_back(asked, told) == read


def test_the_nearest_word_is_found() -> None:
    assert nearest("bf_16") == "bf16"
    assert nearest("Q4_K_N", GGUF) in ("q4_k_s", "q4_k_m", "q4_k_l", "q4_k")
    assert nearest("nothing like it") is None
