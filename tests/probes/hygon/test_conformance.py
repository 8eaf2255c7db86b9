"""Where the probe is opened, what it leaves to AMD's, what every probe keeps to, and every fault of the library."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from bench.errors import ProbeError
from bench.ports import Probe
from bench.probes.amd.probe import AmdProbe
from bench.probes.hygon import rsmi
from bench.probes.hygon.probe import HygonProbe
from bench.probes.presence import Roots, opened_by_signs
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary, Value
from tests.probes.faults import LibraryFaults
from tests.probes.hygon import host
from tests.probes.hygon.conftest import Bound, Opened
from tests.probes.hygon.host import BUSY, IDLE
from tests.probes.trees import make_roots, replace_text, roots_env


class TestBesideAmd:
    """The same name of the library, and the same device node."""

    def test_a_host_without_a_hygon_card_is_left_alone(self, fake: FakeLibrary, tmp_path: Path) -> None:
        roots = make_roots(tmp_path / "amd")
        replace_text(roots.dev / "kfd", "")
        found = HygonProbe(roots, fake.env()).discover()
        assert (found.devices, found.problems) == ((), ())

    def test_the_cards_of_rocms_library_are_not_ours(self, fake: FakeLibrary, probe: HygonProbe) -> None:
        fake.set("0.vendor", 0x1002)
        assert [device.uid for device in probe.discover().devices] == [BUSY]
        fake.set("1.vendor", 0x1002)
        found = probe.discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "lists no Hygon card" in problem.problem

    def test_amds_probe_does_not_ask_for_its_library_here(self, roots: Roots) -> None:
        replace_text(roots.dev / "kfd", "")
        assert AmdProbe(roots, {"PATH": "", "ROCM_PATH": "/nowhere"}).sign() is None

    def test_only_a_dtk_is_searched(self, rocmsmi: Path, tmp_path: Path) -> None:
        """Its variables are also those of AMD's ROCm."""
        rocm, dtk = tmp_path / "rocm-6.4", tmp_path / "dtk-24.04"
        (dtk / "rocm_smi").mkdir(parents=True)
        (dtk / "rocm_smi/lib").symlink_to(rocmsmi.parent)
        env = {"ROCM_HOME": str(rocm), "ROCM_PATH": str(dtk)}
        assert rsmi.dtk_folders(env)[0] == dtk
        assert rsmi.load(env).path == str(dtk / "rocm_smi/lib/librocm_smi64.so")


class TestSigns:
    @pytest.mark.parametrize("sign", ["card", "node"])
    def test_a_card_opens_the_probe(self, tmp_path: Path, sign: str) -> None:
        roots = make_roots(tmp_path / "other")
        env = {**roots_env(roots), "LD_LIBRARY_PATH": ""}
        replace_text(roots.dev / "kfd", "")
        assert "hygon" not in opened_by_signs(env)
        if sign == "card":
            host.add_cards(roots)
        else:
            replace_text(roots.dev / "mkfd", "")
        assert "hygon" in opened_by_signs(env)

    def test_a_card_without_its_library_is_told_with_the_fix(self, roots: Roots) -> None:
        found = HygonProbe(roots, {"PATH": ""}).discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "librocm_smi64.so" in problem.problem
        assert "--device=/dev/mkfd" in problem.fix


class TestHygonLibraryConformance(ProbeConformance):
    name = "hygon"
    vendor_modules = ("rsmiBindings", "amdsmi", "pyrsmi")

    @pytest.fixture
    def working(self, probe: HygonProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return HygonProbe(make_roots(tmp_path / "none"), {"PATH": ""})


class TestHygonFaults(LibraryFaults):
    name = "hygon"
    codes: ClassVar = {"not_supported": 2, "no_permission": 4, "lost": 8, "timeout": 16}
    no_readings: ClassVar[tuple[Value, ...]] = (0, 0xFFFFFFFF, (1 << 64) - 1, 400_000, 2_100_000_000, 9_000_000_000)

    @pytest.fixture
    def fake(self, rocmsmi: Path, bind: Bound) -> FakeLibrary:
        return bind(rocmsmi)

    @pytest.fixture
    def probe(self, fake: FakeLibrary, opened: Opened) -> Probe:
        return opened(fake)

    @pytest.fixture
    def without(self, powerless_rocmsmi: Path, bind: Bound, opened: Opened) -> Probe:
        return opened(bind(powerless_rocmsmi))

    def test_what_means_that_the_card_is_gone(self, fake: FakeLibrary, probe: Probe) -> None:
        probe.discover()
        fake.set("0.used.ret", 8)
        with pytest.raises(ProbeError, match=r"\(8\)"):
            probe.sample(IDLE)
