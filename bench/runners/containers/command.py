"""An engine's own command line, wrapped: the exact `docker run` that starts it, and the container that comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import Case, Scalar
from bench.runners.containers.box import RunningContainer
from bench.runners.containers.devices import HostFiles, bind, device_flags, seen_inside, vendor_here, vendor_of
from bench.runners.containers.labels import label_flags, new_name
from bench.runners.containers.place import Container, container_of
from bench.runners.host_variables import without_secrets

_LOOPBACK, _ALL = "127.0.0.1", "0.0.0.0"  # noqa: S104 - all addresses of the container, of which one port is published on loopback
_SHIMS = Path(__file__).resolve().parents[1] / "shims"
_CACHE = "/tokjoule-cache"
FORWARDED = (
    *("VLLM_", "SGLANG_", "SGL_", "LMDEPLOY_", "TM_", "DLINFER_", "TRTLLM_", "TLLM_", "MLX_"),
    *("OPENVINO_", "TBB_", "ZE_", "TRITON_", "PYTORCH_", "TORCH_", "OMP_", "MKL_", "NCCL_", "HCCL_", "RCCL_", "HSA_"),
)
"""Beginnings of variables of ours that change how an engine runs: a process inherits them, a container is given them."""
_VISIBLE = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"),
    *("MLU_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES", "MACA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "TPU_VISIBLE_CHIPS"),
)
"""What a person's shell may say about boards, where the case names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxed:
    """What starts an engine in a container: the client's command line, the engine's own variables, and the container."""

    argv: tuple[str, ...]
    env: dict[str, str]
    box: RunningContainer


def boxed(request: StartRequest, argv: Sequence[str], env: Mapping[str, str], port: int | None) -> Boxed:
    """`argv` with `env` in a container of its own, `port` published where the network is not the host's.

    Raises: EngineMissing, UsageError.
    """
    container = container_of(request.case)
    host = HostFiles()
    wants_cpu = request.case.devices == ("cpu",)
    vendor = None if wants_cpu else vendor_of(request.placement.boards) or vendor_here(host)
    inside = seen_inside(env, vendor, request.placement.boards)
    ours = FORWARDED if request.placement.boards else (*FORWARDED, *_VISIBLE)
    given = {**without_secrets(ours), **inside}
    name = new_name(request.case.engine)
    line = [container.client.path, "run", "--name", name, *label_flags(request.run_id, request.work_dir.name)]
    line += [*_network(container, port), *container.base_flags()]
    line += device_flags(container.client.tool, vendor, request.placement.boards, host)
    line += [flag for path in mounted(request, argv, inside) for flag in ("--mount", bind(path))]
    line += _cache(container)
    line += [flag for variable, value in given.items() for flag in ("--env", f"{variable}={value}")]
    line += container.command(argv if container.spec.network == "host" else _on_all_addresses(request.case, argv))
    settings: dict[str, Scalar] = {
        "launch": container.client.tool,
        "image": container.spec.image,
        "image_id": container.image_id,
        "image_digest": container.digest,
        "container_network": container.spec.network,
        f"package.{container.client.tool}": container.client.version,
    }
    box = RunningContainer(container.client, name, settings, shares_network=container.spec.network == "host")
    return Boxed(argv=tuple(line), env=inside, box=box)


def _network(container: Container, port: int | None) -> list[str]:
    if container.spec.network == "host" or port is None:
        return ["--network", "host"]
    return ["--network", "bridge", "--publish", f"{_LOOPBACK}:{port}:{port}"]


def _on_all_addresses(case: Case, argv: Sequence[str]) -> list[str]:
    """A published port leads to the container's own address, on which the engine must then listen."""
    if _LOOPBACK not in argv:
        raise UsageError(
            f"container.network: bridge with engine: {case.engine}, whose command does not say where it listens",
            hint="write network: host",
        )
    return [_ALL if word == _LOOPBACK else word for word in argv]


def _cache(container: Container) -> list[str]:
    """A volume for what engines compile and download, kept for the next start of the same image. As another user than the image's
    nothing could be written there.
    """
    if container.spec.user is not None:
        return []
    volume = f"type=volume,source=tokjoule-cache-{container.image_id[:12]},target={_CACHE}"
    return ["--mount", volume, "--env", f"XDG_CACHE_HOME={_CACHE}"]


def mounted(request: StartRequest, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Paths of this host that the engine must see, all read-only and at the same place: the weights and what their links lead to,
    files that the case names, and those of ours that the command speaks of.
    """
    words = [*argv, *env.values()]
    paths = [] if request.model is None else _with_targets(Path(request.model.path).absolute())
    named = (value for value in request.case.engine_args.values() if isinstance(value, str) and value.startswith("/"))
    paths += [Path(value) for value in named if Path(value).exists()]
    paths += [path for path in (_SHIMS, request.work_dir.absolute()) if any(str(path) in word for word in words)]
    return _outermost(str(path) for path in paths)


def _with_targets(path: Path) -> list[Path]:
    """`path`, and the folders of files that are links to elsewhere, as in the cache of Hugging Face."""
    shards = re.sub(r"-\d{5}-of-(\d{5})\.gguf$", r"-*-of-\1.gguf", path.name)  # the first of them is named, all are read
    files = [path, *path.rglob("*")] if path.is_dir() else sorted({path, *path.parent.glob(shards)} if "*" in shards else {path})
    links = (file.resolve() for file in files if file.is_symlink())
    targets = [target.parent if path.is_dir() and target.is_file() else target for target in links]
    return [*([path] if path.is_dir() else files), *targets]


def _outermost(paths: Iterable[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(path == kept or path.startswith(kept.rstrip("/") + "/") for kept in found):
            found.append(path)
    return found
