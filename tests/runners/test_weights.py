"""What engines make of weights, whatever their flags are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.records import LocalModel
from bench.runners.checkpoint import Checkpoint
from bench.runners.weights import Menu, safetensors_of
from bench.testing.cases import case, gguf, request, safetensors

MENU = Menu(
    engine="an engine", plain={"bf16": ("--dtype", "b")}, made={"fp8": ("-q", "fp8")}, stored=("fp8", "w4a16", "awq", "gptq")
)
PLAIN = Checkpoint(dtype="bf16")
AWQ = Checkpoint(dtype="fp16", quantisation="awq", method="awq_marlin")


@pytest.mark.parametrize(
    ("precision", "weights", "flags"),
    [
        (None, PLAIN, ()),
        (None, AWQ, ()),
        ("bfloat16", PLAIN, ("--dtype", "b")),
        ("fp8", PLAIN, ("-q", "fp8")),
        ("fp8", Checkpoint(quantisation="fp8", method="fp8"), ()),
        ("w4a16", AWQ, ()),
        ("awq", AWQ, ()),
        ("bf16", Checkpoint(), ("--dtype", "b")),
    ],
)
def test_a_precision_becomes_flags(precision: str | None, weights: Checkpoint, flags: tuple[str, ...]) -> None:
    MENU.check(precision)
    assert MENU.flags(precision, weights) == flags


@pytest.mark.parametrize(
    ("precision", "words"),
    [
        ("q4_k_m", "does not run GGUF's q4_k_m"),
        ("bf_16", "Did you mean 'bf16'"),
        ("fp32", "does not run 'fp32' here"),
        ("x", "does not run 'x' here"),
    ],
)
def test_a_word_that_it_does_not_run_is_refused(precision: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        MENU.check(precision)
    assert "bf16, fp8, w4a16, awq, gptq" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("precision", "weights", "words"),
    [
        ("awq", PLAIN, "an engine does not make awq of plain weights"),
        ("bf16", AWQ, r"the weights are awq \(awq_marlin\), and the case asks for bf16"),
        ("gptq", AWQ, "the weights are awq"),
    ],
)
def test_weights_that_do_not_fit_are_refused(precision: str, weights: Checkpoint, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        MENU.flags(precision, weights)
    assert caught.value.hint


@pytest.mark.parametrize(("model", "kind"), [(None, "no weights"), (gguf(), "gguf weights")])
def test_other_kinds_of_weights_are_refused(model: LocalModel | None, kind: str) -> None:
    with pytest.raises(UsageError, match=f"sglang reads safetensors, but 'tiny' has {kind}"):
        safetensors_of(request(Path("/w"), case(engine="sglang"), model=model))
    assert safetensors_of(request(Path("/w"), case(), model=safetensors())) == safetensors()
