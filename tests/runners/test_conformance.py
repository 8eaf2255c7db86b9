"""Each launching runner, with an engine that misbehaves in every way of the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.ports import Runner
from bench.records import Case, LocalModel
from bench.runners.llamacpp import LlamaCppRunner
from bench.runners.mock import MockRunner
from tests.runners.cases import case, gguf
from tests.runners.conformance import LaunchingRunnerConformance
from tests.runners.orphans import program, script


def behaviours(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The suite's words as scripts."""
    return {
        "good": {},
        "dies_at_start": {"say": "std::bad_alloc: no memory", "exit": 1},
        "never_ready": {"never_ready": True},
        "leaves_daemon": {"daemon": str(tmp_path / "daemon"), "daemon_ignores_sigterm": True},
        "ignores_sigterm": {"ignore_sigterm": True},
        "floods": {"flood_mb": 20},
    }


class TestLlamaServer(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return LlamaCppRunner()

    def model(self) -> LocalModel:
        return gguf()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine_args={"binary": program(tmp_path)})


class TestXllamacpp(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return LlamaCppRunner()

    def model(self) -> LocalModel:
        return gguf()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine_args={"engine_python": program(tmp_path)})


class TestMock(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return MockRunner()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        del tmp_path, patch
        quirks = {
            "good": None,
            "dies_at_start": "fail-start",
            "never_ready": "slow-start=600",
            "leaves_daemon": "fork-child",
            "ignores_sigterm": "ignore-sigterm",
        }
        if behaviour not in quirks:
            pytest.skip("the mock engine writes next to no log")
        return case(engine="mock", engine_args={"quirk": quirks[behaviour], "ttft_ms": 1})
