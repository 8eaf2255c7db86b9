"""Boards in containers: every vendor's flags, only those boards, and what the engine's variables must then be."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import UsageError
from bench.records import PlacedBoard
from bench.runners.containers.client import Tool
from bench.runners.containers.devices import HostFiles, bind, device_flags, seen_inside, vendor_here, vendor_of

NODES = {
    "amd": ("dev/kfd", "dev/dri/renderD128"),
    "ascend": ("dev/davinci_manager", "dev/devmm_svm", "dev/hisi_hdc", *(f"dev/davinci{n}" for n in (0, 1, 2, 10))),
    "cambricon": ("dev/cambricon_ctl", "dev/cambricon_dev0", "dev/cambricon_dev1", "dev/cambricon_ipcm0"),
    "hygon": ("dev/kfd", "dev/mkfd", "dev/dri/renderD128", "opt/hyhal/lib"),
    "iluvatar": ("dev/iluvatar0", "dev/iluvatar1", "usr/local/corex/lib64"),
    "intel": ("dev/dri/renderD128",),
    "metax": ("dev/mxcd", "dev/dri/renderD128"),
    "gaudi": (),
    "mthreads": (),
    "nvidia": (),
    "tpu": (),
}
FLAGS = {
    "amd": "--device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined",
    "ascend": "--device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc --device /dev/davinci0 "
    "--device /dev/davinci1 --device /dev/davinci2 --device /dev/davinci10",
    "cambricon": "--device /dev/cambricon_ctl --device /dev/cambricon_dev0 --device /dev/cambricon_dev1 "
    "--device /dev/cambricon_ipcm0",
    "hygon": "--device /dev/kfd --device /dev/mkfd --device /dev/dri "
    "--mount type=bind,source=/opt/hyhal,target=/opt/hyhal,readonly --security-opt seccomp=unconfined",
    "iluvatar": "--device /dev/iluvatar0 --device /dev/iluvatar1 "
    "--mount type=bind,source=/usr/local/corex,target=/usr/local/corex,readonly",
    "intel": "--device /dev/dri",
    "metax": "--device /dev/mxcd --device /dev/dri --security-opt seccomp=unconfined --security-opt apparmor=unconfined",
    "gaudi": "--runtime habana --cap-add sys_nice --env HABANA_VISIBLE_DEVICES=all "
    "--env OMPI_MCA_btl_vader_single_copy_mechanism=none",
    "mthreads": "--runtime mthreads --env MTHREADS_VISIBLE_DEVICES=all",
    "nvidia": "--gpus all",
    "tpu": "--privileged",
}


def host(root: Path, vendor: str) -> HostFiles:
    for path in NODES[vendor]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return HostFiles(root=root)


def board(probe: str, number: int, uid: str = "") -> PlacedBoard:
    return PlacedBoard(probe=probe, uid=uid or f"{probe}-{number}", number=str(number))


def plain(flags: tuple[str, ...]) -> str:
    """Without the groups of device nodes, which are this machine's."""
    words = list(flags)
    while "--group-add" in words:
        at = words.index("--group-add")
        del words[at : at + 2]
    return " ".join(words)


@pytest.mark.parametrize("vendor", sorted(FLAGS))
def test_all_boards_of_a_vendor(tmp_path: Path, vendor: str) -> None:
    assert plain(device_flags("docker", vendor, (), host(tmp_path, vendor))) == FLAGS[vendor]


def test_what_the_host_does_not_have_is_not_handed_on(tmp_path: Path) -> None:
    for vendor in ("amd", "ascend", "cambricon", "hygon", "iluvatar", "intel", "metax"):
        assert "/dev/" not in plain(device_flags("docker", vendor, (), HostFiles(root=tmp_path)))
    assert device_flags("docker", None, (), HostFiles(root=tmp_path)) == ()


@pytest.mark.parametrize(
    ("vendor", "numbers", "nodes"),
    [("ascend", (2, 10), ["/dev/davinci2", "/dev/davinci10"]), ("cambricon", (1,), ["/dev/cambricon_dev1"])],
)
def test_only_the_boards_of_the_case(tmp_path: Path, vendor: str, numbers: tuple[int, ...], nodes: list[str]) -> None:
    flags = device_flags("docker", vendor, [board(vendor, n) for n in numbers], host(tmp_path, vendor))
    given = [word for word in flags if word.startswith(("/dev/davinci", "/dev/cambricon_dev")) and word[-1].isdigit()]
    assert given == nodes


@pytest.mark.parametrize(
    ("tool", "uids", "flags"),
    [
        ("docker", ("GPU-aa", "GPU-bb"), ("--gpus", '"device=GPU-aa,GPU-bb"')),
        ("docker", ("MIG-aa",), ("--gpus", '"device=MIG-aa"')),
        ("docker", ("0000:18:00.0", "0000:19:00.0"), ("--gpus", '"device=0,1"')),
        ("podman", ("GPU-aa", "MIG-bb"), ("--device", "nvidia.com/gpu=GPU-aa", "--device", "nvidia.com/gpu=MIG-bb")),
        ("podman", (), ("--device", "nvidia.com/gpu=all")),
    ],
)
def test_nvidia_boards_go_by_their_names(tmp_path: Path, tool: Tool, uids: tuple[str, ...], flags: tuple[str, ...]) -> None:
    boards = [board("nvidia", number, uid) for number, uid in enumerate(uids)]
    assert device_flags(tool, "nvidia", boards, HostFiles(root=tmp_path)) == flags


def test_groups_of_the_nodes_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = host(tmp_path, "amd")
    monkeypatch.setattr(HostFiles, "groups", lambda *_: [44, 992])
    assert " ".join(device_flags("docker", "amd", (), here)).count("--group-add") == 2
    assert "--group-add keep-groups" in " ".join(device_flags("podman", "amd", (), here))


def test_an_unknown_way_and_two_vendors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="how boards of biren get into a container is not known") as caught:
        device_flags("docker", "biren", (), HostFiles(root=tmp_path))
    assert "engine: openai" in str(caught.value.hint)
    with pytest.raises(UsageError, match="boards of amd and nvidia"):
        vendor_of([board("nvidia", 0), board("amd", 0)])
    assert vendor_of([board("amd", 0), board("amd", 1)]) == "amd"
    assert vendor_of([]) is None


@pytest.mark.parametrize(
    ("nodes", "vendor"),
    [
        (("nvidiactl",), "nvidia"),
        (("kfd",), "amd"),
        (("kfd", "mkfd"), "hygon"),
        (("davinci_manager",), "ascend"),
        (("iluvatar0",), "iluvatar"),
        ((), None),
    ],
)
def test_the_vendor_of_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: tuple[str, ...], vendor: str | None
) -> None:
    (tmp_path / "dev").mkdir()
    for node in nodes:
        (tmp_path / "dev" / node).touch()
    monkeypatch.setenv("BENCH_DEV_ROOT", str(tmp_path / "dev"))
    monkeypatch.setenv("BENCH_SYSFS_ROOT", str(tmp_path / "sys"))
    assert vendor_here(HostFiles(root=tmp_path)) == vendor


@pytest.mark.parametrize(
    ("vendor", "numbers", "env", "inside"),
    [
        # numbers of the host mean nothing where only some boards are: they begin at 0 there, in the order of the driver
        ("nvidia", (6, 3), {"CUDA_VISIBLE_DEVICES": "6,3"}, {"CUDA_VISIBLE_DEVICES": "1,0"}),
        ("nvidia", (10, 9), {"CUDA_VISIBLE_DEVICES": "10,9"}, {"CUDA_VISIBLE_DEVICES": "1,0"}),
        ("nvidia", (6,), {"CUDA_VISIBLE_DEVICES": "GPU-aa"}, {"CUDA_VISIBLE_DEVICES": "GPU-aa"}),
        ("ascend", (5, 7), {"ASCEND_RT_VISIBLE_DEVICES": "5,7"}, {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}),
        # all boards are there: the numbers stay what they are
        ("amd", (3,), {"ROCR_VISIBLE_DEVICES": "3"}, {"ROCR_VISIBLE_DEVICES": "3"}),
        ("metax", (3,), {"MACA_VISIBLE_DEVICES": "3"}, {"MACA_VISIBLE_DEVICES": "3"}),
        ("nvidia", (6,), {"VLLM_PORT": "6"}, {"VLLM_PORT": "6"}),
        ("nvidia", (), {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": ""}),
    ],
)  # fmt: skip
def test_variables_fit_what_is_in_the_container(
    vendor: str, numbers: tuple[int, ...], env: dict[str, str], inside: dict[str, str]
) -> None:
    assert seen_inside(env, vendor, [board(vendor, number) for number in numbers]) == inside


def test_a_path_with_a_comma_or_a_quote_stays_one_field() -> None:
    assert bind("/a") == "type=bind,source=/a,target=/a,readonly"
    assert bind('/a,b/"c"') == 'type=bind,"source=/a,b/""c""","target=/a,b/""c""",readonly'
