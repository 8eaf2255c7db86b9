"""A made-up host with TPU chips, and the metrics service of a workload on them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from bench.probes.presence import Roots
from bench.probes.tpu.metrics import BUSY, TOTAL, USED
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text, roots_env

SAMPLE = Path(__file__).parent / "samples/grpc_metrics.textproto"
V6E = "0x006f"
Series = Sequence[tuple[int, float | int]]
"""Numbers of devices, and their values."""


def add_chip(roots: Roots, address: str, device: str = V6E, *, group: int | None = None, subsystem: str = "0x0000") -> None:
    """A chip on the PCI bus; `group` is the number of its node under /dev/vfio."""
    folder = roots.sysfs / "bus/pci/devices" / address
    for name, text in {"vendor": "0x1ae0", "class": "0xff0000", "device": device, "subsystem_device": subsystem}.items():
        replace_text(folder / name, text + "\n")
    if group is not None:
        (roots.sysfs / f"kernel/iommu_groups/{group}").mkdir(parents=True)
        (folder / "iommu_group").symlink_to(roots.sysfs / f"kernel/iommu_groups/{group}")


def two_chips(roots: Roots) -> None:
    """`tpu:0` and `tpu:1`, TPU v6e."""
    for index, address in enumerate(("0000:00:04.0", "0000:00:05.0")):
        add_chip(roots, address, group=index)


def recorded_metrics() -> dict[str, Series]:
    """The recorded replies."""
    found: dict[str, Series] = {}
    for line in recorded(SAMPLE).splitlines():
        if name := re.match(r'metric \{ name: "([^"]+)"', line):
            points = re.findall(r"int_attr: (\d+) .*?as_(int|double): ([\d.]+)", line)
            found[name[1]] = [(int(device), int(value) if kind == "int" else float(value)) for device, kind, value in points]
    return found


def encoded(name: str, points: Series) -> bytes:
    """A `MetricResponse`."""
    told = _message(1, name.encode())
    for device, value in points:
        attribute = _message(1, b"device-id") + _message(2, _number(3, device))
        gauge = _number(2, value) if isinstance(value, int) else b"\x09" + struct.pack("<d", value)
        told += _message(3, _message(1, attribute) + _message(2, _number(1, 1_790_000_000)) + _message(3, gauge))
    return _message(1, told)


def _message(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & (1 << 64) - 1)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


@dataclass(slots=True)
class Workload:
    """What a process that holds the chips serves. `raw` replaces a reply, whatever it is."""

    port: int
    metrics: dict[str, Series]
    raw: dict[str, bytes] = field(default_factory=dict)

    def env(self) -> dict[str, str]:
        """For a probe."""
        return {"TPU_RUNTIME_METRICS_PORTS": str(self.port), "PATH": ""}

    def answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        name = request[2:].decode()
        if name in self.raw:
            return self.raw[name]
        if name not in self.metrics:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no metric {name}")
        return encoded(name, self.metrics[name])


@contextmanager
def serving(metrics: Mapping[str, Series], port: int = 0) -> Iterator[Workload]:
    """A real gRPC server with these metrics, on a free port or that one."""
    server = grpc.server(ThreadPoolExecutor(2))
    workload = Workload(port=server.add_insecure_port(f"localhost:{port}"), metrics=dict(metrics))
    handlers = {"GetRuntimeMetric": grpc.unary_unary_rpc_method_handler(workload.answer)}
    service = grpc.method_handlers_generic_handler("tpu.monitoring.runtime.RuntimeMetricService", handlers)
    server.add_generic_rpc_handlers((service,))
    server.start()
    try:
        yield workload
    finally:
        server.stop(None).wait()


def of_two(
    used: tuple[int, int] = (19_810_541_568, 11_166_914_560), busy: tuple[float, float] = (100.0, 12.5)
) -> dict[str, Series]:
    """Metrics of two chips with one core each, numbered as in a larger slice."""
    return {
        TOTAL: [(8, 33_550_237_696), (9, 33_550_237_696)],
        USED: [(9, used[1]), (8, used[0])],
        BUSY: [(8, busy[0]), (9, busy[1])],
    }


def host(folder: Path) -> dict[str, str]:
    """The environment that shows two chips to a process: `tpu:0` and `tpu:1`. Nobody serves their metrics."""
    roots = make_roots(folder)
    two_chips(roots)
    return {**roots_env(roots), "BENCH_PROBES": "tpu", "TPU_RUNTIME_METRICS_PORTS": "1"}
