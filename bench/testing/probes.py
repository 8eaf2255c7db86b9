"""What every probe must keep to. A vendor's test module subclasses `ProbeConformance` and says how to make its probe."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import codec, plugins
from bench.errors import ProbeError
from bench.ports import Discovery, Probe
from bench.records import DeviceInfo, Reading


class ProbeConformance:
    """Subclass as `TestXConformance`; give `name`, `vendor_modules`, and the fixtures `working` and `absent`."""

    name: str
    vendor_modules: tuple[str, ...] = ()
    """Packages that importing the probe's module must not import."""

    @pytest.fixture
    def working(self, tmp_path: Path) -> Probe | Iterator[Probe]:
        """A probe with at least one readable device (through a fake)."""
        raise NotImplementedError

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        """A probe on a machine without the vendor."""
        raise NotImplementedError

    def test_is_in_the_table_under_its_own_name(self, working: Probe) -> None:
        assert working.name == self.name
        assert isinstance(working, plugins.load("bench.probes", self.name))

    def test_importing_it_imports_no_vendor_package(self, absent: Probe) -> None:
        code = f"import sys; import {type(absent).__module__}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert not set(self.vendor_modules) & set(done.stdout.split())

    def test_devices_are_whole(self, working: Probe) -> None:
        devices = working.discover().devices
        assert devices
        assert len({d.uid for d in devices}) == len(devices)
        for device in devices:
            assert device.probe == self.name
            assert all((device.uid, device.vendor, device.name))
            assert (device.power is None) == (device.power_reason is not None)
            assert device.memory_total_b is None or device.memory_total_b > 0
            assert device.power_limit_w is None or device.power_limit_w > 0
            for sensor in (device.power, device.energy):
                assert sensor is None or (sensor.api and sensor.unit)

    def test_discovery_can_be_repeated_and_sent(self, working: Probe) -> None:
        found = working.discover()
        assert [d.uid for d in working.discover().devices] == [d.uid for d in found.devices]
        assert codec.decode(codec.encode(found), Discovery) == found

    def test_readings_are_whole(self, working: Probe) -> None:
        last_ns = 0
        for device in working.discover().devices:
            reading = working.sample(device.uid)
            assert reading.uid == device.uid
            assert last_ns <= reading.before_ns <= reading.after_ns
            last_ns = reading.before_ns
            assert codec.decode(codec.encode(reading), Reading) == reading
            self._check_values(device, reading)

    def test_counters_do_not_fall(self, working: Probe) -> None:
        for device in working.discover().devices:
            first, second = working.sample(device.uid), working.sample(device.uid)
            if first.energy_j is not None and second.energy_j is not None:
                assert second.energy_j >= first.energy_j

    def test_an_unknown_device_is_an_error(self, working: Probe) -> None:
        working.discover()
        with pytest.raises(ProbeError, match="no-such-device"):
            working.sample("no-such-device")

    def test_watching_nothing_adds_nothing(self, working: Probe) -> None:
        working.discover()
        assert working.watch([]).devices == ()

    def test_it_can_be_closed_twice_and_then_finds_and_reads_the_same(self, working: Probe) -> None:
        first = working.discover().devices
        working.close()
        working.close()
        again = working.discover().devices
        assert [(d.uid, d.scope, d.power, d.energy) for d in again] == [(d.uid, d.scope, d.power, d.energy) for d in first]
        for device in again:
            self._check_values(device, working.sample(device.uid))

    def test_a_missing_vendor_is_not_an_error(self, absent: Probe) -> None:
        found = absent.discover()
        assert found.devices == ()
        for problem in found.problems:
            assert problem.probe == self.name
            assert all((problem.subject, problem.problem, problem.fix))
        absent.close()

    @staticmethod
    def _check_values(device: DeviceInfo, reading: Reading) -> None:
        assert (reading.energy_j is not None) <= (device.energy is not None)
        assert (reading.power_w is not None) <= (device.power is not None)
        lowest_w = 0.0 if device.quality == "modelled" else 0.5
        assert reading.power_w is None or lowest_w <= reading.power_w <= 5000
        assert reading.energy_j is None or reading.energy_j >= 0
        assert reading.utilisation is None or 0 <= reading.utilisation <= 1
        if reading.memory_used_b is not None and device.memory_total_b is not None:
            assert 0 <= reading.memory_used_b <= device.memory_total_b
        assert reading.throttle is None or all(name == name.lower() for name in reading.throttle)
