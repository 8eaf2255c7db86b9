"""Where the probe is opened, what every probe keeps to, and every fault of the library."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from bench.errors import ProbeError
from bench.ports import Probe
from bench.probes.iluvatar.probe import IluvatarProbe
from bench.probes.presence import Roots, opened_by_signs
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary, Value
from tests.probes.faults import LibraryFaults
from tests.probes.iluvatar.conftest import Bound, Opened
from tests.probes.iluvatar.host import BI_V150, IDLE, ON_BOARDS
from tests.probes.trees import make_roots, replace_text, roots_env


class TestSigns:
    @pytest.mark.parametrize("sign", ["card", "node"])
    def test_a_card_opens_the_probe(self, roots: Roots, sign: str) -> None:
        env = {**roots_env(roots), "LD_LIBRARY_PATH": ""}
        assert "iluvatar" not in opened_by_signs(env)
        if sign == "card":
            _add_card(roots)
        else:
            replace_text(roots.dev / "iluvatar3", "")
        assert "iluvatar" in opened_by_signs(env)

    def test_a_card_without_its_library_is_told_with_the_fix(self, roots: Roots) -> None:
        _add_card(roots)
        found = IluvatarProbe(roots, {"PATH": ""}).discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "libixml.so" in problem.problem
        assert "--device=/dev/iluvatar0" in problem.fix


def _add_card(roots: Roots) -> None:
    folder = roots.sysfs / "bus/pci/devices/0000:15:00.0"
    replace_text(folder / "vendor", "0x1e3e\n")
    replace_text(folder / "class", "0x120000\n")


class _Conformance(ProbeConformance):
    name = "iluvatar"
    vendor_modules = ("pynvml",)

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return IluvatarProbe(make_roots(tmp_path / "none"), {"PATH": ""})


class TestIluvatarLibraryConformance(_Conformance):
    @pytest.fixture
    def working(self, probe: IluvatarProbe) -> Probe:
        return probe


class TestIluvatarTwoChipsConformance(_Conformance):
    @pytest.fixture
    def working(self, fake: FakeLibrary, probe: IluvatarProbe) -> Probe:
        fake.show(4, {**BI_V150, **ON_BOARDS})
        return probe


class TestIluvatarFaults(LibraryFaults):
    name = "iluvatar"
    codes: ClassVar = {"not_supported": 3, "no_permission": 4, "lost": 15, "timeout": 10}
    no_readings: ClassVar[tuple[Value, ...]] = (0, 0xFFFFFFFF, 301, 57_000, 6_000_000)

    @pytest.fixture
    def fake(self, ixml: Path, bind: Bound) -> FakeLibrary:
        return bind(ixml)

    @pytest.fixture
    def probe(self, fake: FakeLibrary, opened: Opened) -> Probe:
        return opened(fake)

    @pytest.fixture
    def without(self, powerless_ixml: Path, bind: Bound, opened: Opened) -> Probe:
        return opened(bind(powerless_ixml))

    @pytest.mark.parametrize("code", [1, 9, 15, 16])
    def test_what_means_that_the_card_is_gone(self, fake: FakeLibrary, probe: Probe, code: int) -> None:
        probe.discover()
        fake.set("0.memory.ret", code)
        with pytest.raises(ProbeError, match=rf"\({code}\)"):
            probe.sample(IDLE)
