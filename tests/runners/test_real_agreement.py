"""Real engines on this machine's CPU say what the shipped reference of their weights says, up to the first near tie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import plugins
from bench.lab.correctness import asking, references
from bench.lab.correctness.gate import ReferenceGate, make_reference
from bench.models import ModelStore
from bench.ports import Engine
from bench.records import Case, LocalModel, Profile
from bench.testing.cases import case, request
from bench.timing.output_check import output_metrics, wrong_output
from tests.runners import vllm_venv

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]
NAMED = os.environ.get("BENCH_VLLM_PYTHON")
MODEL = "smollm2-135m-instruct"
LEAST_STEPS = 16
"""Sure tokens that each must have in common with the reference: one that leaves it at early near ties shows nothing."""
ON_CPU = {"device": "cpu", "threads": 1}
"""Of torch: threads that wait for each other at every step crawl where anything else runs."""
no_vllm = pytest.mark.skipif(not NAMED and not vllm_venv.has_build(), reason="name a Python that has vLLM in BENCH_VLLM_PYTHON")
long = [pytest.mark.heavy, pytest.mark.proof, no_vllm]
"""In bf16, which many CPUs only emulate. Those in fp32 are in `test_real_engines.py`, for CI."""


@pytest.fixture(autouse=True)
def shipped_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own references stay out of it; its models do not. However busy it is, an engine may take its time."""
    monkeypatch.setattr(references, "folder", lambda: tmp_path / "references")
    monkeypatch.setattr(asking, "LIMIT_S", 1500.0)


@contextmanager
def started(folder: Path, engine: str, precision: str, **args: Any) -> Iterator[tuple[Engine, Case, LocalModel]]:
    """An engine with the catalogue's weights in the format that it reads."""
    python = None if precision == "q4_1" else NAMED or vllm_venv.ensure()  # which also converts weights
    runner = plugins.load("bench.runners", engine)()
    model = ModelStore().fetch(MODEL, None, lambda *_: None, precision=precision, formats=runner.reads, python=python)
    wanted = case(
        engine=engine,
        engine_python=None if engine == "llamacpp" else python,
        engine_args=args,
        model=MODEL,
        precision=precision,
        protocol="openai-completions",
    )
    with runner.start(request(folder / "work", wanted, model=model, timeout_s=900.0)) as running:
        yield running, wanted, model


@pytest.mark.parametrize(
    ("engine", "precision", "args"),
    [
        ("llamacpp", "q4_1", {}),
        pytest.param("torch", "bf16", ON_CPU, marks=long),
        pytest.param("vllm", "bf16", {"enforce_eager": True}, marks=long),
    ],
)
def test_it_agrees_with_the_reference(tmp_path: Path, engine: str, precision: str, args: dict[str, Any]) -> None:
    with started(tmp_path, engine, precision, **args) as (running, wanted, model):
        found = ReferenceGate().check(running, wanted, model)
    assert (found.reason, found.ppl_reason, found.partings) == (None, None, ())
    assert found.agreed == found.steps >= LEAST_STEPS
    agreement, delta = output_metrics(found)
    assert agreement.value == 1.0
    assert delta.value == pytest.approx(0.0, abs=0.05)
    assert wrong_output(found, Profile.OFFICIAL) == ()


@pytest.mark.heavy
@no_vllm
def test_the_shipped_reference_is_what_torch_says_in_fp32(tmp_path: Path) -> None:
    with started(tmp_path, "torch", "fp32", **ON_CPU) as (running, wanted, model):
        made = make_reference(running, wanted, model)
    shipped = references.find(made.weights)
    assert shipped is not None
    assert [one.text for one in made.continuations] == [one.text for one in shipped.continuations]
    for ours, theirs in zip(made.continuations, shipped.continuations, strict=True):
        assert ours.gaps_nats == pytest.approx(theirs.gaps_nats, abs=1e-2)
    assert made.scored is not None
    assert shipped.scored is not None
    assert made.scored.ppl == pytest.approx(shipped.scored.ppl, rel=1e-3)
