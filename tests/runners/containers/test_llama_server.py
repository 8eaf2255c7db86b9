"""llama.cpp's own images: a `llama-server` without any Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.records import Case, ContainerSpec
from bench.runners.llamacpp import LlamaCppRunner
from bench.testing.cases import case, gguf, request
from bench.testing.processes import tree
from bench.testing.scripted_engine import script
from tests.runners.containers.site import FakeDocker
from tests.runners.scripted import program

IMAGE = "ghcr.io/ggml-org/llama.cpp:server-b6729"


def in_image(docker: FakeDocker, tmp_path: Path) -> Case:
    """A case in an image whose entrypoint is the server, which is on no PATH."""
    folder = tmp_path / "app"
    folder.mkdir()
    docker.image(IMAGE, entrypoint=[program(folder)])
    return case(engine="llamacpp", container=ContainerSpec(tool="docker", image=IMAGE))


def test_the_images_own_server_is_started(
    docker: FakeDocker, tmp_path: Path, tree_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch)
    wanted = in_image(docker, tmp_path)
    weights = tmp_path / "tiny.gguf"
    weights.touch()
    runner = LlamaCppRunner()
    assert f"llama-server b6729-3b3a9481, {tmp_path}/app/scripted in image {IMAGE} (docker, " in runner.about(wanted)
    with runner.start(request(tmp_path / "work", wanted, model=gguf(weights))) as engine:
        [container] = docker.containers()
        assert engine.handle.settings["through"] == "llama-server"
        assert engine.handle.version == "b6729-3b3a9481"
        assert engine.handle.settings["image"] == IMAGE
        mounts = container["HostConfig"]["mounts"]
        assert [mount["source"] for mount in mounts if mount["type"] == "bind"] == [str(weights)]
    assert not tree(tree_name)


def test_a_python_means_nothing_there(docker: FakeDocker, tmp_path: Path) -> None:
    wanted = in_image(docker, tmp_path)
    with pytest.raises(UsageError, match="no engine_python"):
        LlamaCppRunner().check(case(engine="llamacpp", container=wanted.container, engine_python="python3"))
