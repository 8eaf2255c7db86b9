"""What sampling costs: CPU of the probe child and of the harness, for 8 boards at 10 Hz through the compiled NVML fake.

    python -m benchmarks.probe_cost [--boards 8] [--hz 10] [--seconds 20]

The real driver's calls come on top (the fake answers from memory): what is measured is our own share.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from pathlib import Path

import psutil

from bench.clock import SYSTEM
from bench.probes.host import ChildProbeHost
from bench.probes.stream import ChildProbeStream
from tests.fakes.build import shared_library
from tests.probes.fake_nvml import H100, FakeNvml

GOAL_SHARE = 0.01
_AFTER_BURST_S = 2.0


def measure(boards: int, hz: float, seconds: float) -> dict[str, float]:
    """Shares of one core, readings a second, and bytes resident in the child."""
    with tempfile.TemporaryDirectory() as folder:
        fake = FakeNvml(library=shared_library("nvml.c", Path(folder) / "libnvidia-ml.so.1"), state=Path(folder) / "state")
        fake.show(boards, H100)
        stream = ChildProbeHost(fake.env()).open("nvidia", 1 / hz)
        assert isinstance(stream, ChildProbeStream)
        try:
            return _measure(stream, boards, seconds)
        finally:
            stream.close()


def _measure(stream: ChildProbeStream, boards: int, seconds: float) -> dict[str, float]:
    assert len(stream.discovery().devices) == boards
    child, harness, wait = psutil.Process(stream.pid), psutil.Process(), threading.Event()
    wait.wait(_AFTER_BURST_S)
    stream.drain()
    start_ns, child_s, harness_s = SYSTEM.monotonic_ns(), _cpu_s(child), _cpu_s(harness)
    wait.wait(seconds)
    wall_s = (SYSTEM.monotonic_ns() - start_ns) / 1e9
    child_s, harness_s = _cpu_s(child) - child_s, _cpu_s(harness) - harness_s
    readings = stream.drain()
    reason = stream.ended()
    if reason is not None:
        raise RuntimeError(reason)
    return {
        "boards": boards,
        "readings_per_s": len(readings) / wall_s,
        "child_core_share": child_s / wall_s,
        "harness_core_share": harness_s / wall_s,
        "child_resident_b": child.memory_info().rss,
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Print the shares as JSON; exit status 1 above the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boards", type=int, default=8)
    parser.add_argument("--hz", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    result = measure(args.boards, args.hz, args.seconds)
    share = result["child_core_share"] + result["harness_core_share"]
    print(json.dumps({**result, "total_core_share": share, "goal": GOAL_SHARE}, indent=2))  # noqa: T201 - its purpose
    raise SystemExit(0 if share < GOAL_SHARE else 1)


if __name__ == "__main__":
    main()
