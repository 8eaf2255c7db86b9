"""The exact command that starts an engine in a container, read as Docker reads it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import ContainerSpec, LocalModel, PlacedBoard, Placement
from bench.runners import serving
from bench.runners.containers.command import FORWARDED, boxed
from bench.testing.cases import case, gguf, request, safetensors
from tests.runners.containers.fake_docker import order_of
from tests.runners.containers.site import IMAGE, FakeDocker

ARGV = ("/opt/venv/bin/vllm", "serve", "/w", "--host", "127.0.0.1", "--port", "8123")
RUNNERS = Path(serving.__file__).parent


def asked(tmp_path: Path, model: LocalModel | None = None, **changes: Any) -> StartRequest:
    """A start of vLLM in a container of its image."""
    fields = {"engine": "vllm", "container": ContainerSpec(tool="docker", image=IMAGE)} | changes
    weights = tmp_path / "weights"
    weights.mkdir(exist_ok=True)
    found = request(tmp_path / "work" / "engine-0-0", case(**fields), model=model or safetensors(weights))
    return replace(found, run_id="20261130T170102Z-3fa9c1")


def order(found: StartRequest, argv: tuple[str, ...] = ARGV, **env: str) -> dict[str, Any]:
    """What Docker makes of the line."""
    line = boxed(found, argv, env, 8123).argv
    assert line[1] == "run"
    return order_of(list(line[2:]))


def test_the_whole_line(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    made = boxed(asked(tmp_path), ARGV, {"A": "1 2", "B": ""}, 8123)
    got = order_of(list(made.argv[2:]))
    assert made.argv[0] == docker.program
    assert got["name"] == made.box.name
    assert (got["image"], got["entrypoint"], got["command"]) == (IMAGE, ARGV[0], list(ARGV[1:]))
    assert (got["init"], got["rm"], got["detach"], got["pull"], got["log_driver"]) == (True, False, False, "never", "none")
    assert (got["network"], got["publish"], got["shm_size"], got["user"]) == ("host", [], "32g", None)
    assert got["ulimits"] == ["memlock=-1", "stack=67108864"]
    assert {"A=1 2", "B=", "XDG_CACHE_HOME=/tokjoule-cache"} <= set(got["env"])
    weights = str(tmp_path / "weights")
    assert {"type": "bind", "source": weights, "target": weights, "readonly": ""} in got["mounts"]
    assert [mount["source"][:15] for mount in got["mounts"] if mount["type"] == "volume"] == ["tokjoule-cache-"]
    pid, _, started = got["labels"]["tokjoule.owner"].partition(":")
    assert int(pid) == os.getpid()
    assert float(started) > 0
    assert got["labels"]["tokjoule.run"] == "20261130T170102Z-3fa9c1"
    assert got["labels"]["tokjoule.engine"] == "engine-0-0"
    assert made.box.settings["image"] == IMAGE
    assert str(made.box.settings["image_digest"]).startswith("vllm/vllm-openai@sha256:")


def test_no_two_containers_share_a_name(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    assert len({boxed(asked(tmp_path), ARGV, {}, 8123).box.name for _ in range(20)}) == 20


def test_a_bridge_publishes_the_port_on_loopback_only(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    container = ContainerSpec(tool="docker", image=IMAGE, network="bridge")
    got = order(asked(tmp_path, container=container))
    assert (got["network"], got["publish"]) == ("bridge", ["127.0.0.1:8123:8123"])
    assert got["command"][got["command"].index("--host") + 1] == "0.0.0.0"
    with pytest.raises(UsageError, match="does not say where it listens") as caught:
        boxed(asked(tmp_path, container=container), ("daemon",), {}, 8123)
    assert "network: host" in str(caught.value.hint)


def test_another_user_has_a_home_and_no_cache(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    got = order(asked(tmp_path, container=ContainerSpec(tool="docker", image=IMAGE, user="1000:1000", shm_size="1g")))
    assert (got["user"], got["shm_size"]) == ("1000:1000", "1g")
    assert "HOME=/tmp" in got["env"]
    assert all(mount["type"] == "bind" for mount in got["mounts"])


def test_podman_reads_mounts_of_hosts_with_selinux(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    line = boxed(asked(tmp_path, container=ContainerSpec(tool="podman", image=IMAGE)), ARGV, {}, 8123).argv
    assert line[0].endswith("/podman")
    assert "label=disable" in line


@pytest.mark.parametrize(
    ("entrypoint", "keeps"),
    [
        (None, False),
        (["vllm", "serve"], False),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], False),
        (["/opt/nvidia/nvidia_entrypoint.sh"], True),
        (["tini", "--"], True),
        (["/bin/bash", "-c", 'source /usr/local/Ascend/ascend-toolkit/set_env.sh && exec "$@"', "--"], True),
    ],
)
def test_an_entrypoint_that_prepares_is_kept(
    docker: FakeDocker, tmp_path: Path, entrypoint: list[str] | None, keeps: bool
) -> None:
    image = f"engine:v{len(str(entrypoint))}"  # another for each: what is known of an image is kept
    docker.image(image, entrypoint=entrypoint)
    got = order(asked(tmp_path, container=ContainerSpec(tool="docker", image=image)))
    assert [got["entrypoint"], *got["command"]] == ([None, *ARGV] if keeps else list(ARGV))


def test_links_of_the_weights_lead_somewhere(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "0123").write_text("weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0123")
    got = order(asked(tmp_path, model=safetensors(snapshot)))
    assert {mount["source"] for mount in got["mounts"] if mount["type"] == "bind"} == {str(blobs), str(snapshot)}


def test_all_parts_of_a_gguf_file_are_there_and_its_neighbours_not(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    folder = tmp_path / "models"
    folder.mkdir()
    parts = [folder / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    for path in (*parts, folder / "other.gguf"):
        path.touch()
    got = order(asked(tmp_path, model=gguf(parts[0])))
    assert {mount["source"] for mount in got["mounts"] if mount["type"] == "bind"} == {str(path) for path in parts}


def test_files_that_the_command_speaks_of_are_there(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    template = tmp_path / "chat.jinja"
    template.touch()
    found = asked(tmp_path, engine_args={"chat_template": str(template), "x": "/not/there", "max_num_seqs": 4})
    found.work_dir.mkdir(parents=True)
    shim = str(RUNNERS / "shims" / "torch_server.py")
    got = order(found, ("python3", shim, "--config", str(found.work_dir / "options.yaml")))
    binds = {mount["source"]: mount for mount in got["mounts"] if mount["type"] == "bind"}
    weights = str(tmp_path / "weights")
    assert set(binds) == {weights, str(template), str(RUNNERS / "shims"), str(found.work_dir)}
    assert all("readonly" in mount for mount in binds.values())


def test_variables_of_the_shell_come_along_but_no_secrets(
    docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.image(IMAGE)
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "FLASHINFER")
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    got = order(asked(tmp_path))
    assert {"VLLM_ATTENTION_BACKEND=FLASHINFER", "CUDA_VISIBLE_DEVICES=3"} <= set(got["env"])
    assert "secret" not in " ".join(got["env"])
    named = replace(asked(tmp_path), placement=Placement(boards=(PlacedBoard(probe="amd", uid="a", number="0"),)))
    assert "CUDA_VISIBLE_DEVICES=3" not in order(named)["env"]
    assert "VLLM_ATTENTION_BACKEND=OURS" in order(asked(tmp_path), VLLM_ATTENTION_BACKEND="OURS")["env"]


def test_what_a_runner_records_of_the_shell_is_what_a_container_gets() -> None:
    """A variable in a trial's settings that the engine never saw would be a lie."""
    recorded = {
        prefix
        for path in RUNNERS.rglob("*.py")
        if path.parts[-2] != "mindie"
        for call in re.findall(r"inherited\(\(([^)]*)\)\)", path.read_text(encoding="utf-8"))
        for prefix in re.findall(r'"(\w+)"', call)
    }
    assert "VLLM_" in recorded
    assert recorded <= set(FORWARDED)


def test_boards_of_the_case_are_those_of_the_container(docker: FakeDocker, tmp_path: Path) -> None:
    docker.image(IMAGE)
    boards = tuple(PlacedBoard(probe="nvidia", uid=f"GPU-{n}", number=str(n)) for n in (6, 3))
    made = boxed(replace(asked(tmp_path), placement=Placement(boards=boards)), ARGV, {"CUDA_VISIBLE_DEVICES": "6,3"}, 8123)
    got = order_of(list(made.argv[2:]))
    assert got["gpus"] == ["GPU-6", "GPU-3"]
    assert made.env == {"CUDA_VISIBLE_DEVICES": "1,0"}
    assert "CUDA_VISIBLE_DEVICES=1,0" in got["env"]


def test_a_case_on_the_cpu_gets_no_board(docker: FakeDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.image(IMAGE)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    monkeypatch.setenv("BENCH_DEV_ROOT", str(tmp_path / "dev"))
    assert order(asked(tmp_path))["gpus"] == ["all"]
    got = order(asked(tmp_path, devices=("cpu",)), CUDA_VISIBLE_DEVICES="")
    assert got["gpus"] == []
    assert "CUDA_VISIBLE_DEVICES=" in got["env"]
