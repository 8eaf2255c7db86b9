from __future__ import annotations

from pathlib import Path

import pytest
from bench_acme_lm.runner import AcmeRunner

from bench import plugins
from bench.errors import EngineMissing, EngineStartError, UsageError
from bench.ports import Runner
from bench.records import Case, LoadSpec, LocalModel
from bench.testing.cases import case, gguf, request
from bench.testing.engine_site import engine_python
from bench.testing.runners import LaunchingRunnerConformance
from bench.testing.scripted_engine import behaviours, script

ENGINE = Path(__file__).with_name("acme_serve.py").read_text(encoding="utf-8")


def python(folder: Path) -> str:
    """A Python that has acme-lm."""
    programs = {"acme-serve": "acme_lm.serve"}
    return engine_python(folder / "acme", "acme-lm", "7.1", {"acme_lm.serve": ENGINE}, programs=programs)


class TestAcmeConformance(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        runner: Runner = plugins.load("bench.runners", "acme-lm")()
        return runner

    def model(self) -> LocalModel:
        return gguf()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine="acme-lm", engine_python=python(tmp_path))


def test_what_it_runs_is_asked_for_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = case(engine="acme-lm", engine_python=python(tmp_path), precision="fp32", load=LoadSpec(kind="closed", batch_size=3))
    with AcmeRunner().start(request(tmp_path / "work", wanted, model=gguf())) as engine:
        assert (engine.handle.precision, engine.handle.version, engine.handle.settings["lanes"]) == ("fp32", "7.1", 3)
        assert engine.server_metrics()["generation_tokens_total"] == 1.0, "the first token"
    script(monkeypatch, format="half")
    with AcmeRunner().start(request(tmp_path / "again", wanted, model=gguf())) as engine:
        assert engine.handle.precision == "fp16", "it fell back"


def test_its_own_words_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, say="acme: unknown board generation 9", exit=1)
    wanted = case(engine="acme-lm", engine_python=python(tmp_path))
    with pytest.raises(EngineStartError, match="a generation that this engine does not know"):
        AcmeRunner().start(request(tmp_path / "work", wanted, model=gguf()))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'lanes'"):
        AcmeRunner().check(case(engine="acme-lm", engine_args={"lane": 1}))
    with pytest.raises(UsageError, match="does not run 'int8'"):
        AcmeRunner().check(case(engine="acme-lm", precision="int8"))
    with pytest.raises(EngineMissing, match="was not found") as caught:
        AcmeRunner().check(case(engine="acme-lm"))
    assert "pip install /path/to/acme-lm" in str(caught.value.hint)
