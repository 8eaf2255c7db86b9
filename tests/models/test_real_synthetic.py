"""Random weights in the real llama.cpp, on this machine's CPU."""

from __future__ import annotations

import json
import shutil
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from bench.models import ModelStore, llama_shapes, synthetic
from bench.models.cache import FILES, Cache
from bench.models.entry import file_sha256
from bench.models.source import parse
from bench.records import LocalModel
from bench.runners.llamacpp import LlamaCppRunner
from bench.testing.cases import case, gguf, request
from tests.conftest import BenchCommand
from tests.models.conftest import no_progress
from tests.models.test_processes import pulling, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

RUN = ("run", "--model", "synthetic:tiny", "--engine", "llamacpp", "--batch-size", "2", "--input-tokens", "16")
QUICK = ("--output-tokens", "8", "--duration", "1s", "--warmup", "0.2s", "--idle", "0s", "--json")


@pytest.fixture(scope="module")
def tokenizer() -> LocalModel:
    """The real model whose tokenizer random weights get."""
    return ModelStore().fetch("smollm2-135m-instruct", None, no_progress)


def test_a_run_says_what_its_weights_are(bench: BenchCommand) -> None:
    done = bench(*RUN, *QUICK)
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["metrics"]["output_tok_per_s"]["value"] > 0, done.stderr
    assert trial["metrics"]["top1_agreement"]["reason"] == "random weights have no right answer"
    assert bench("models", "pull", "synthetic:tiny").stdout.endswith("model.BF16.gguf\n")
    assert "synthetic:tiny" in bench("table").stdout


@pytest.mark.parametrize("vocab", [32000, 50000])
def test_llamacpp_takes_a_vocabulary_that_was_cut_or_filled_up(
    tmp_path: Path, tokenizer: LocalModel, monkeypatch: pytest.MonkeyPatch, vocab: int
) -> None:
    monkeypatch.setattr(llama_shapes, "TINY", replace(llama_shapes.TINY, vocab=vocab, tied=False))
    cache, source = Cache(tmp_path), parse("synthetic:gguf:tiny")
    entry = synthetic.fetch(source, Path(tokenizer.path), cache, no_progress)
    model = gguf(cache.staging(source.key) / FILES / entry.main)
    with LlamaCppRunner().start(request(tmp_path / "work", case(), model=model)) as engine:
        body = {"content": "Hello there, 12 <|im_end|>", "parse_special": True}
        base = engine.target.base_url.removesuffix("/v1")
        asked = urllib.request.Request(f"{base}/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            tokens = json.loads(answer.read())["tokens"]
    assert 2 in tokens, "the end of a turn is one token"
    assert max(tokens) < min(vocab, 49152)


def test_kill_minus_9_leaves_no_model_and_the_next_pull_makes_it(tmp_path: Path, tokenizer: LocalModel) -> None:
    kept = parse(tokenizer.source).key
    shutil.copytree(ModelStore().cache_dir / "models" / kept, tmp_path / "cache" / "models" / kept)
    source = "synthetic:safetensors:smollm2-135m-instruct"
    with pulling(tmp_path, source) as child:
        until(lambda: any((tmp_path / "cache" / "partial").rglob("model.safetensors")), "the weights are being written")
        child.kill()
        child.wait()
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [kept]
    with pulling(tmp_path, source) as child:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
    weights = Path(out.strip()) / "model.safetensors"
    told = json.loads((weights.parent.parent / "entry.json").read_text())
    assert {one["sha256"] for one in told["files"] if one["path"] == weights.name} == {file_sha256(weights)}
    assert told["shape"]["parameters"] == 134515008
