"""Everything that a vendor's library may do wrong, held against its probe: in this process, and in the real child.

A vendor's test module subclasses `LibraryFaults`. Its compiled fake includes `tests/fakes/state.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import pytest

from bench.errors import ProbeError
from bench.ports import Probe, ProbeStream
from bench.probes.host import ChildProbeHost
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from tests.fakes.library import FakeLibrary, Value
from tests.probes.polling import until
from tests.probes.trees import roots_env


class LibraryFaults:
    """Subclass as `TestXFaults`; give the attributes, and here or in a conftest the fixtures `fake` (at least two devices, each
    with its own power), `probe` (on the fake, closed afterwards), and `without` (a probe on a build of the fake that lacks the
    symbol of power).

    `power`: the fake's key and call of power, `init`: of the call that starts the library. `codes`: the library's codes for
    `not_supported`, `no_permission`, `lost` and `timeout`, where it has them. `no_readings`: raw values of power that are none.
    """

    name: ClassVar[str]
    power: ClassVar[str] = "power"
    init: ClassVar[str] = "init"
    codes: ClassVar[Mapping[str, int]]
    no_readings: ClassVar[tuple[Value, ...]]

    @pytest.fixture
    def child(self, fake: FakeLibrary, roots: Roots) -> Iterator[Callable[[], ProbeStream]]:
        opened: list[ProbeStream] = []

        def open_child() -> ProbeStream:
            host = ChildProbeHost({**roots_env(roots), **fake.env()}, deadline_s=30.0)
            opened.append(host.open(self.name, 0.05))
            assert len(opened[-1].discovery().devices) >= 2
            return opened[-1]

        yield open_child
        for stream in opened:
            stream.close()

    # --- in this process ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", ["not_supported", "no_permission"])
    def test_power_that_is_refused_is_missing_with_the_reason(self, fake: FakeLibrary, probe: Probe, kind: str) -> None:
        if kind not in self.codes:
            return
        fake.set(f"0.{self.power}.ret", self.codes[kind])
        first, second = _first_two(probe)
        assert first.power is None
        assert str(self.codes[kind]) in (first.power_reason or "")
        assert second.power is not None
        assert probe.sample(first.uid).power_w is None
        assert probe.sample(second.uid).power_w is not None

    def test_a_passing_failure_heals(self, fake: FakeLibrary, probe: Probe) -> None:
        first, _ = _first_two(probe)
        healthy_w = probe.sample(first.uid).power_w
        fake.set(f"0.{self.power}.ret", self.codes["timeout"])
        assert probe.sample(first.uid).power_w is None
        fake.set(f"0.{self.power}.ret", None)
        assert probe.sample(first.uid).power_w == healthy_w

    def test_a_lost_device_costs_its_own_readings(self, fake: FakeLibrary, probe: Probe) -> None:
        first, second = _first_two(probe)
        fake.set(f"0.{self.power}.ret", self.codes["lost"])
        with pytest.raises(ProbeError):
            probe.sample(first.uid)
        assert probe.sample(second.uid).power_w is not None

    def test_a_device_lost_before_the_start_costs_itself(self, fake: FakeLibrary, probe: Probe) -> None:
        fake.set(f"0.{self.power}.ret", self.codes["lost"])
        found = probe.discover()
        assert found.devices
        assert any(str(self.codes["lost"]) in problem.problem for problem in found.problems)
        assert all(probe.sample(device.uid).uid == device.uid for device in found.devices)

    def test_what_is_no_reading_is_missing_never_0(self, fake: FakeLibrary, probe: Probe) -> None:
        first, second = _first_two(probe)
        for raw in self.no_readings:
            fake.set(f"0.{self.power}", raw)
            assert probe.sample(first.uid).power_w is None, raw
        assert probe.sample(second.uid).power_w is not None

    def test_a_list_that_shrinks_and_grows(self, fake: FakeLibrary, probe: Probe) -> None:
        whole = probe.discover().devices
        fake.set("devices", 1)
        assert probe.discover().devices[0].uid == whole[0].uid
        fake.set("devices", 2)
        assert [d.uid for d in probe.discover().devices[:2]] == [d.uid for d in whole[:2]]

    def test_a_library_that_will_not_start_is_a_problem_not_a_crash(self, fake: FakeLibrary, probe: Probe) -> None:
        fake.set(f"*.{self.init}.ret", self.codes["lost"])
        assert probe.discover().devices == ()

    def test_a_symbol_that_is_missing_costs_its_own_quantity(self, without: Probe) -> None:
        found = without.discover()
        assert found.devices
        assert all(device.power is None and device.power_reason for device in found.devices)
        assert any(device.memory_total_b for device in found.devices)

    # --- in the child ------------------------------------------------------------------------------------------------

    def test_prints_and_noise_are_no_harm(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        fake.set(f"0.{self.power}.print", '{"readings": []}')
        fake.set(f"1.{self.power}.flood", 100_000)
        stream = child()
        assert until(lambda: [r for r in stream.drain() if r.power_w is not None])
        assert stream.ended() is None

    def test_a_crash_ends_the_stream_with_the_signal(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        stream = child()
        fake.set(f"0.{self.power}.crash", 1)
        assert "SIGSEGV" in (until(stream.ended) or "")

    def test_a_hang_ends_the_stream_with_the_reason(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        stream = child()
        fake.set(f"0.{self.power}.hang_s", 60)
        assert "a vendor call hangs" in (until(stream.ended) or "")


def _first_two(probe: Probe) -> tuple[DeviceInfo, DeviceInfo]:
    first, second = probe.discover().devices[:2]
    return first, second
