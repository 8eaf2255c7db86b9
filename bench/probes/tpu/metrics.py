"""What the TPU runtime of a running workload serves: memory by core, and how busy each chip is.

Source: `tpu_metric_service.proto` and `metrics.py` of the package `tpu-info` 0.14. The service is gRPC without encryption on this
host, on a port of each process of the workload; while nothing runs, nobody serves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.probes.tpu import protobuf
from bench.probes.values import Unavailable, above_0, number, share

TOTAL = "tpu.runtime.hbm.memory.total.bytes"
USED = "tpu.runtime.hbm.memory.usage.bytes"
BUSY = "tpu.runtime.tensorcore.dutycycle.percent"
PORTS = "TPU_RUNTIME_METRICS_PORTS"
"""Environment of the workload: a comma list, one for each of its processes."""
_DEFAULT_PORT = "8431"
_METHOD = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
_DEADLINE_S = 2.0
_CHANNEL = (
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
"""The workload starts after us: by default a channel would wait for up to two minutes until it tries again."""
_METRIC, _SERIES, _ATTRIBUTE, _ATTRIBUTE_VALUE, _INT_ATTRIBUTE, _GAUGE = 1, 3, 1, 2, 3, 3
_AS_DOUBLE, _AS_INT = 1, 2
"""Numbers of the fields on the way from a response to its values."""

Told = Mapping[str, Sequence[float]]
"""Values by metric, in the order of the devices' numbers."""


class Runtime:
    """The services of a workload. Needs `grpcio`, which is imported here."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Raises: Unavailable without `grpcio`."""
        try:
            import grpc
        except ImportError as error:
            raise Unavailable("grpcio is not installed: memory and use of a TPU can't be asked for", lasting=True) from error
        self._error = grpc.RpcError
        self._ports = [port.strip() for port in (env.get(PORTS) or _DEFAULT_PORT).split(",") if port.strip()]
        self._calls = [grpc.insecure_channel(f"localhost:{port}", _CHANNEL).unary_unary(_METHOD) for port in self._ports]

    def read(self) -> Told:
        """Raises: Unavailable where nobody answers."""
        answers = [self._ask(call) for call in self._calls]
        told = {name: [value for answer in answers for value in answer.get(name, ())] for name in (TOTAL, USED, BUSY)}
        if not any(told.values()):
            ports = ", ".join(self._ports)
            raise Unavailable(f"no workload serves its metrics on port {ports}: a TPU tells only while one runs", lasting=False)
        return told

    def _ask(self, call: Any) -> Told:
        """A metric that one process does not know is missing of it; where it does not answer at all, all are."""
        found = {}
        for name in (TOTAL, USED, BUSY):
            try:
                found[name] = series(call(protobuf.text_field(1, name), timeout=_DEADLINE_S))
            except self._error:
                continue
        return found


def series(response: bytes) -> list[float]:
    """Values of a `MetricResponse`, in the order of their devices' numbers. Raises: Unavailable where it can't be read."""
    found: list[tuple[int, float]] = []
    try:
        for metric in protobuf.inside(response, _METRIC):
            found += [_point(one) for one in protobuf.inside(metric, _SERIES)]
    except ValueError as error:
        raise Unavailable(f"the runtime's answer can't be read: {error}", lasting=False) from error
    return [value for _, value in sorted(found)]


def _point(metric: bytes) -> tuple[int, float]:
    device = 0
    for attribute in protobuf.inside(metric, _ATTRIBUTE):
        for value in protobuf.inside(attribute, _ATTRIBUTE_VALUE):
            device = next(
                (found for field, found in protobuf.fields(value) if field == _INT_ATTRIBUTE and isinstance(found, int)), 0
            )
    for gauge in protobuf.inside(metric, _GAUGE):
        for field, told in protobuf.fields(gauge):
            if field in (_AS_DOUBLE, _AS_INT):
                return device, number(told, marks=())
    raise Unavailable("the runtime's answer holds no number", lasting=False)


def memory_b(told: Told, name: str, cores: Sequence[int], chip: int) -> int:
    """Bytes of a chip: of its cores together. `cores`: how many each chip has. Raises: Unavailable."""
    mine = _of_chip(told[name], cores, chip)
    total = above_0(sum(_of_chip(told[TOTAL], cores, chip)), "memory size")
    if sum(mine) > total:
        raise Unavailable(f"{sum(mine):.0f} B in use of {total:.0f} B is no reading", lasting=False)
    return int(sum(mine))


def busy(told: Told, cores: Sequence[int], chip: int) -> float:
    """Busy share of a chip, told for each chip or for each core. Raises: Unavailable."""
    found = told[BUSY]
    mine = [found[chip]] if len(found) == len(cores) else _of_chip(found, cores, chip)
    return share(sum(mine) / len(mine))


def _of_chip(found: Sequence[float], cores: Sequence[int], chip: int) -> Sequence[float]:
    if len(found) != sum(cores):
        raise Unavailable(f"the workload tells of {len(found)} of {sum(cores)} cores, and not of which ones", lasting=False)
    start = sum(cores[:chip])
    return found[start : start + cores[chip]]
