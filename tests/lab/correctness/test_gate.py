"""The gate: references are made, kept and found, and engines compared with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.catalog.models import all_models
from bench.errors import StoreError, TargetError, UsageError
from bench.lab.correctness import references
from bench.lab.correctness.gate import ReferenceGate, make_reference
from bench.lab.correctness.prompts import PROMPTS, TOKENS
from bench.records import LocalModel
from bench.timing.validity import LEAST_SURE_STEPS
from tests.lab.correctness.engines import ServedEngine, completion, serving
from tests.mock.wire import LocalMock
from tests.session.fakes import a_case

MODEL = LocalModel(name="m", source="path:m", path="m", format="safetensors", size_b=1, weights_sha256="ab" * 32)
CASE = a_case(model="m")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def right() -> Iterator[ServedEngine]:
    with LocalMock(ttft_ms=0.0, gap_ms=0.0) as server:
        yield ServedEngine(f"http://127.0.0.1:{server.port}")


@pytest.fixture(scope="module")
def wrong() -> Iterator[ServedEngine]:
    with LocalMock(ttft_ms=0.0, gap_ms=0.0, quirks=("wrong-output",)) as server:
        yield ServedEngine(f"http://127.0.0.1:{server.port}")


def test_an_engine_is_compared_with_the_reference_of_its_weights(right: ServedEngine, wrong: ServedEngine) -> None:
    references.keep(make_reference(right, CASE, MODEL))
    same, other = (ReferenceGate().check(engine, CASE, MODEL) for engine in (right, wrong))
    assert (same.agreed, same.steps) == (len(PROMPTS) * TOKENS,) * 2
    assert same.ppl == same.reference_ppl
    assert (same.reference, same.reason, same.ppl_reason) == ("vllm 1", None, None)
    assert (other.agreed, other.steps) == (0, len(PROMPTS))
    assert {(parting.expected, parting.found.split()[0]) for parting in other.partings} == {("tok0", "joule1")}
    assert other.ppl == pytest.approx((same.ppl or 0.0) ** 3)


def test_converted_weights_are_those_that_they_were_made_of(right: ServedEngine) -> None:
    references.keep(make_reference(right, CASE, MODEL))
    made = replace(MODEL, format="gguf", weights_sha256="cd" * 32, made_of=MODEL.weights_sha256)
    assert ReferenceGate().check(right, CASE, made).steps > 0
    assert ReferenceGate().check(right, CASE, replace(made, made_of=None)).steps == 0


def test_without_a_reference_an_engine_is_asked_nothing() -> None:
    found = ReferenceGate().check(ServedEngine("http://127.0.0.1:1"), CASE, MODEL)
    assert found.reason == "no reference of these weights: bench reference m"
    for model in (None, replace(MODEL, weights_sha256=None)):
        assert ReferenceGate().check(ServedEngine("http://127.0.0.1:1"), CASE, model).reason == "its weights are not known"


def test_random_weights_are_asked_nothing_even_where_there_is_a_reference(right: ServedEngine) -> None:
    references.keep(make_reference(right, CASE, MODEL))
    found = ReferenceGate().check(right, CASE, replace(MODEL, source="synthetic:gguf:tiny"))
    assert (found.steps, found.reason) == (0, "random weights have no right answer")


def test_an_engine_that_refuses_or_has_gone_is_told_and_not_judged(right: ServedEngine) -> None:
    references.keep(make_reference(right, CASE, MODEL))
    with serving({"/v1/completions": lambda _: b"not here"}) as url:
        found = ReferenceGate().check(ServedEngine(url), CASE, MODEL)
    assert (found.steps, found.ppl) == (0, None)
    assert "HTTP 400 not here" in str(found.reason)
    assert "gives no answer" in str(ReferenceGate().check(ServedEngine(url), CASE, MODEL).reason)


def test_an_engine_without_logprobs_of_a_text_is_still_compared_by_its_tokens(right: ServedEngine) -> None:
    reference = make_reference(right, CASE, MODEL)
    references.keep(reference)
    texts = {one.prompt: one.text for one in reference.continuations}
    with serving({"/v1/completions": lambda body: completion(texts.get(body["prompt"], ""))}) as url:
        found = ReferenceGate().check(ServedEngine(url), CASE, MODEL)
    assert found.agreed == found.steps == reference.sure_steps
    assert (found.ppl, found.ppl_reason) == (None, "it tells no logprobs of a given text")


def test_a_damaged_reference_is_named(right: ServedEngine, cache: Path) -> None:
    path = references.keep(make_reference(right, CASE, MODEL))
    assert path.parent == cache / "references"
    path.write_text('{"weights": 3}')
    with pytest.raises(StoreError, match="can't be read"):
        references.find("ab" * 32)
    assert str(path) in str(ReferenceGate().check(right, CASE, MODEL).reason)


def test_a_reference_of_other_weights_is_not_taken(right: ServedEngine) -> None:
    path = references.keep(make_reference(right, CASE, MODEL))
    alike = "ab" * 8 + "cd" * 24
    assert path.name == f"{alike[:16]}.json"
    assert references.find(alike) is None


def test_weights_that_nobody_knows_make_no_reference(right: ServedEngine) -> None:
    with pytest.raises(UsageError, match="too many"):
        make_reference(right, CASE, replace(MODEL, weights_sha256=None, weights_reason="too many"))


def test_a_model_that_is_never_sure_makes_no_reference() -> None:
    said = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0, "b": -1.1}]}
    with serving({"/v1/completions": lambda _: completion("a", said)}) as url, pytest.raises(TargetError, match="sure of 0"):
        make_reference(ServedEngine(url), CASE, MODEL)


@pytest.mark.parametrize("path", sorted(references._SHIPPED.glob("*.json")), ids=lambda path: str(path.stem))
def test_a_shipped_reference_is_that_of_a_model_of_the_catalogue(path: Path) -> None:
    weights = json.loads(path.read_text())["weights"]
    assert weights in {source.sha256 for model in all_models() for source in model.sources.values()}
    found = references.find(weights)
    assert found is not None
    assert (found.precision, found.sure_steps >= LEAST_SURE_STEPS) == ("fp32", True)
    assert found.scored is not None
