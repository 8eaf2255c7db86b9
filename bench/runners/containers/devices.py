"""How each vendor's boards get into a container: one table, and the flags that come of it.

Sources: NVIDIA Container Toolkit, ROCm, vLLM Ascend, Intel Gaudi and vendors' own images: the `docker run` lines of their guides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.records import PlacedBoard
from bench.runners.containers.client import Tool
from bench.runners.host_platform import host_platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a container needs to use boards of one vendor: `nodes` and `mounts` are paths, `*` for any number.

    `board_nodes` are nodes of one board each, `{}` its number: a container gets only those of its boards, and numbers them anew.
    Without them it sees all boards, and only the vendor's variable restricts the engine. `flags` are added as they are.
    """

    nodes: tuple[str, ...] = ()
    board_nodes: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


_NO_SECCOMP = ("--security-opt", "seccomp=unconfined")
_ACCESS = {
    "amd": Access(nodes=("/dev/kfd", "/dev/dri"), flags=_NO_SECCOMP),
    "ascend": Access(
        nodes=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
        board_nodes=("/dev/davinci{}",),
        mounts=(
            "/usr/local/dcmi",
            "/usr/local/bin/npu-smi",
            "/usr/local/Ascend/driver/lib64",
            "/usr/local/Ascend/driver/version.info",
            "/etc/ascend_install.info",
        ),
    ),
    "cambricon": Access(
        nodes=("/dev/cambricon_ctl",),
        board_nodes=("/dev/cambricon_dev{}", "/dev/cambricon_ipcm{}"),
        mounts=("/usr/bin/cnmon",),
    ),
    "gaudi": Access(
        flags=(
            *("--runtime", "habana", "--cap-add", "sys_nice", "--env", "HABANA_VISIBLE_DEVICES=all"),
            *("--env", "OMPI_MCA_btl_vader_single_copy_mechanism=none"),
        )
    ),
    "hygon": Access(nodes=("/dev/kfd", "/dev/mkfd", "/dev/dri"), mounts=("/opt/hyhal",), flags=_NO_SECCOMP),
    "iluvatar": Access(nodes=("/dev/iluvatar*",), mounts=("/usr/local/corex",)),
    "intel": Access(nodes=("/dev/dri",)),
    "metax": Access(nodes=("/dev/mxcd", "/dev/dri"), flags=(*_NO_SECCOMP, "--security-opt", "apparmor=unconfined")),
    "mthreads": Access(flags=("--runtime", "mthreads", "--env", "MTHREADS_VISIBLE_DEVICES=all")),
    "tpu": Access(flags=("--privileged",)),
}
"""NVIDIA's flags depend on the program: they are in `_nvidia`."""
_BY_NODE = (("hygon", "mkfd"), ("iluvatar", "iluvatar0"))
"""Vendors whose engines take another vendor's platform for theirs, by a node of their own."""
_BY_PLATFORM = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel"}
"""Platforms that are not called like their vendor."""
_NONE = ("cpu", "metal")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFiles:
    """The paths of this host; `root` stands for / in tests."""

    root: Path = Path("/")

    def has(self, path: str) -> bool:
        """Whether it is there."""
        return self._at(path).exists()

    def like(self, pattern: str) -> list[str]:
        """Paths that `pattern` means, `*` for a number, in the order of their numbers."""
        if "*" not in pattern:
            return [pattern] if self.has(pattern) else []
        before, after = (re.escape(part) for part in Path(pattern).name.split("*"))
        numbers = (re.fullmatch(rf"{before}(\d+){after}", path.name) for path in self._at(pattern).parent.glob("*"))
        return [pattern.replace("*", str(number)) for number in sorted(int(found[1]) for found in numbers if found)]

    def groups(self, paths: Sequence[str]) -> list[int]:
        """The groups but root's that own device nodes, for a user who is not root in the container."""
        files = [file for path in paths for file in (self._at(path), *self._at(path).glob("renderD*"))]
        return sorted({file.stat().st_gid for file in files if file.exists()} - {0})

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def vendor_here(host: HostFiles) -> str | None:
    """The vendor whose boards this host has a driver for; None where it has none."""
    by_node = next((vendor for vendor, node in _BY_NODE if host.has(f"/dev/{node}")), None)
    platform = host_platform()
    return by_node or (None if platform in _NONE else _BY_PLATFORM.get(platform, platform))


def vendor_of(boards: Sequence[PlacedBoard]) -> str | None:
    """The vendor of chosen boards. Raises: UsageError where they are of several."""
    vendors = sorted({board.probe for board in boards})
    if len(vendors) > 1:
        raise UsageError(f"one container with boards of {' and '.join(vendors)}", hint="name boards of one vendor")
    return vendors[0] if vendors else None


def device_flags(tool: Tool, vendor: str | None, boards: Sequence[PlacedBoard], host: HostFiles) -> tuple[str, ...]:
    """The flags that hand boards to a container: `boards`, or all of the vendor's where none are named.

    Raises: UsageError for a vendor whose way into a container is not known.
    """
    if vendor is None:
        return ()
    if vendor == "nvidia":
        return _nvidia(tool, boards)
    access = _ACCESS.get(vendor)
    if access is None:
        raise UsageError(
            f"how boards of {vendor} get into a container is not known here",
            hint="start the container yourself and measure it with engine: openai, or write launch: process",
        )
    nodes = [path for pattern in access.nodes for path in host.like(pattern)]
    numbers = [board.number for board in boards] or ["*"]
    nodes += [path for pattern in access.board_nodes for number in numbers for path in host.like(pattern.format(number))]
    line = [flag for path in nodes for flag in ("--device", path)]
    line += _groups(tool, host.groups(nodes))
    line += [flag for path in access.mounts if host.has(path) for flag in ("--mount", bind(path))]
    return (*line, *access.flags)


def _groups(tool: Tool, groups: Sequence[int]) -> list[str]:
    if tool == "podman":  # without root, groups of the host exist in no container but as those that the caller has
        return ["--group-add", "keep-groups"] if groups else []
    return [flag for group in groups for flag in ("--group-add", str(group))]


def _nvidia(tool: Tool, boards: Sequence[PlacedBoard]) -> tuple[str, ...]:
    names = [board.uid if board.uid.startswith(("GPU-", "MIG-")) else board.number for board in boards]
    if tool == "podman":
        return tuple(flag for name in names or ["all"] for flag in ("--device", f"nvidia.com/gpu={name}"))
    # the value is a line of CSV: without the quotes a comma would begin another field
    return ("--gpus", f'"device={",".join(names)}"' if names else "all")


def bind(path: str, *, read_only: bool = True) -> str:
    """The value of `--mount` that shows a path of the host at the same place in the container: a line of CSV."""
    fields = ["type=bind", f"source={path}", f"target={path}", *(["readonly"] if read_only else [])]
    return ",".join(f'"{field.replace(chr(34), chr(34) * 2)}"' if "," in field or '"' in field else field for field in fields)


def seen_inside(env: Mapping[str, str], vendor: str | None, boards: Sequence[PlacedBoard]) -> dict[str, str]:
    """Variables of an engine as they must be in its container: where that has only some boards, they are numbered anew there."""
    access = _ACCESS.get(vendor or "")
    if not boards or not (vendor == "nvidia" or (access and access.board_nodes)):
        return dict(env)
    ranks = {number: str(rank) for rank, number in enumerate(sorted((board.number for board in boards), key=_as_number))}
    return {name: _renumbered(value, ranks) if name.endswith("_VISIBLE_DEVICES") else value for name, value in env.items()}


def _renumbered(value: str, ranks: Mapping[str, str]) -> str:
    words = value.split(",")
    return ",".join(ranks[word] for word in words) if all(word in ranks for word in words) else value


def _as_number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (1 << 30, text)
