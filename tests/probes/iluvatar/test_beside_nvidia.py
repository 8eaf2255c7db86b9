"""NVIDIA's and Iluvatar's cards in one host: two libraries that export the same names."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench.ports import ProbeStream
from bench.probes.host import ChildProbeHost
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.fake_nvml import GPU_0, GPU_1, FakeNvml
from tests.probes.iluvatar.host import BUSY, IDLE
from tests.probes.polling import until
from tests.probes.trees import roots_env

_BOTH = """
import ctypes, json, sys
from bench import plugins
probes = {name: plugins.load("bench.probes", name)() for name in sys.argv[1:]}
found = {name: probe.discover() for name, probe in probes.items()}
assert all(discovery.problems == () for discovery in found.values()), found
assert not hasattr(ctypes.CDLL(None), "nvmlInit_v2"), "a vendor's names are in the open"
print(json.dumps({name: {d.uid: probes[name].sample(d.uid).power_w for d in f.devices} for name, f in found.items()}))
"""
NVIDIA_W = {GPU_0: 655.84, GPU_1: 70.12}
ILUVATAR_W = {IDLE: 57.0, BUSY: 131.0}


def test_each_in_its_own_child(fake: FakeLibrary, fake_nvml: FakeNvml, roots: Roots) -> None:
    host = ChildProbeHost({**roots_env(roots), **fake.env(), **fake_nvml.env()}, deadline_s=30.0)
    nvidia, iluvatar = (host.open(name, 0.05) for name in ("nvidia", "iluvatar"))
    assert _watts(nvidia) == pytest.approx(NVIDIA_W)
    assert _watts(iluvatar) == ILUVATAR_W
    fake.set("0.power.crash", 1)
    assert "SIGSEGV" in (until(iluvatar.ended) or "")
    nvidia.drain()
    assert _watts(nvidia) == pytest.approx(NVIDIA_W)
    nvidia.close()
    iluvatar.close()


def _watts(stream: ProbeStream) -> dict[str, float | None]:
    """The next reading of each device."""
    assert stream.discovery().problems == ()
    found: dict[str, float | None] = {}

    def all_have_one() -> bool:
        assert stream.ended() is None
        found.update({reading.uid: reading.power_w for reading in stream.drain()})
        return len(found) == len(stream.discovery().devices)

    until(all_have_one)
    return found


@pytest.mark.parametrize("order", [("iluvatar", "nvidia"), ("nvidia", "iluvatar")])
def test_both_in_one_process(fake: FakeLibrary, fake_nvml: FakeNvml, roots: Roots, order: tuple[str, str]) -> None:
    """Were the first library's names in the open, calls inside the second would end up in it."""
    env = {**os.environ, **roots_env(roots), **fake.env(), **fake_nvml.env()}
    done = subprocess.run([sys.executable, "-c", _BOTH, *order], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    watts = json.loads(done.stdout)
    assert watts["nvidia"] == pytest.approx(NVIDIA_W)
    assert watts["iluvatar"] == ILUVATAR_W
