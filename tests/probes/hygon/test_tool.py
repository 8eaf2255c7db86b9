"""The last way: `hy-smi`, run for real as a program on the path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.hygon.probe import HygonProbe
from bench.probes.presence import Roots
from bench.records import Reading
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes import programs
from tests.probes.hygon.host import UIDS
from tests.probes.hygon.test_hy_smi import BW1000, MIB
from tests.probes.hygon.tool import FULL, JSON, KNOWN, TABLE, install
from tests.probes.trees import make_roots


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[HygonProbe]:
    """A probe with nothing but the tool."""
    probe = HygonProbe(roots, {"PATH": f"{tmp_path / 'bin'}:{os.defpath}"})
    yield probe
    probe.close()


def test_the_tool_and_the_library_tell_the_same(probe: HygonProbe, alone: HygonProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    ours, theirs = probe.discover().devices, alone.discover().devices
    for attribute in ("uid", "name", "index", "pci", "memory_total_b", "power_limit_w"):
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs]
    for uid in UIDS:
        assert _told(probe.sample(uid)) == _told(alone.sample(uid))


def _told(reading: Reading) -> tuple[float | None, ...]:
    return reading.power_w, reading.memory_used_b, reading.utilisation, reading.temperature_c


def test_the_tool_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    probe = HygonProbe(roots, {**fake.env(), "PATH": f"{tmp_path / 'bin'}:{os.defpath}"}, check_s=0.08)
    assert probe.discover().devices[0].power is not None
    assert not (tmp_path / "bin/hy-smi.calls").exists()
    probe.close()


@pytest.mark.parametrize(
    ("answers", "memory_total_b"), [({KNOWN: JSON}, 65520 * MIB), ({TABLE: BW1000}, None), ({FULL: "{", TABLE: BW1000}, None)]
)
def test_an_older_tool_is_asked_for_less(
    alone: HygonProbe, tmp_path: Path, answers: Mapping[str, str], memory_total_b: int | None
) -> None:
    install(tmp_path / "bin", answers)
    first, second = alone.discover().devices
    assert first.memory_total_b == memory_total_b
    assert (alone.sample(first.uid).power_w, alone.sample(second.uid).power_w) == (80.0, 512.0)


def test_rocm_smi_is_asked_only_in_a_dtk(roots: Roots, tmp_path: Path) -> None:
    for folder in ("rocm", "dtk-23.10"):
        programs.install(tmp_path / folder / "bin", "rocm-smi", {FULL: JSON})
    path = f"{tmp_path / 'rocm/bin'}:{os.defpath}"
    amd = HygonProbe(roots, {"PATH": path, "ROCM_PATH": str(tmp_path / "rocm")})
    assert amd.discover().devices == ()
    hygon = HygonProbe(roots, {"PATH": path, "ROCM_PATH": str(tmp_path / "dtk-23.10")})
    assert len(hygon.discover().devices) == 2
    hygon.close()


def test_a_tool_that_fails_is_a_problem_not_a_number(alone: HygonProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", {TABLE: "ERROR: driver not initialized\n"})
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "exit status 2" in problem.problem
    assert "can't be read: 'ERROR: driver not initialized'" in problem.problem


class TestHygonToolConformance(ProbeConformance):
    name = "hygon"

    @pytest.fixture
    def working(self, alone: HygonProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin")
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return HygonProbe(make_roots(tmp_path / "none"), {"PATH": ""})
