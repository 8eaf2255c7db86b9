"""In a child process, where the library may do its worst."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bench.ports import ProbeStream
from bench.probes.host import ChildProbeHost
from bench.probes.presence import Roots
from tests.probes.amd.cards import RX_7900, add_card
from tests.probes.amd.fake_amdsmi import GPU_0, FakeAmdsmi
from tests.probes.polling import until
from tests.probes.trees import roots_env

Open = Callable[[], ProbeStream]


@pytest.fixture
def open_amd(roots: Roots, fake_amdsmi: FakeAmdsmi) -> Iterator[Open]:
    opened: list[ProbeStream] = []

    def open_amd() -> ProbeStream:
        host = ChildProbeHost({**roots_env(roots), **fake_amdsmi.env()}, deadline_s=30.0)
        opened.append(host.open("amd", 0.05))
        return opened[-1]

    yield open_amd
    for stream in opened:
        stream.close()


def _watts(stream: ProbeStream) -> list[float]:
    got: list[float] = []

    def some() -> bool:
        got.extend(r.power_w for r in stream.drain() if r.uid == GPU_0 and r.power_w is not None)
        assert stream.ended() is None
        return len(got) >= 3

    until(some)
    return got


def test_readings_arrive(open_amd: Open) -> None:
    stream = open_amd()
    assert len(stream.discovery().devices) == 2
    assert set(_watts(stream)) == {133.0}


def test_prints_and_noise_are_no_harm(open_amd: Open, fake_amdsmi: FakeAmdsmi) -> None:
    fake_amdsmi.change(b0__power__print='{"readings": []}', b0__energy__flood=100_000)
    assert set(_watts(open_amd())) == {133.0}


def test_a_crash_ends_the_stream_with_the_signal(open_amd: Open, fake_amdsmi: FakeAmdsmi) -> None:
    stream = open_amd()
    assert stream.discovery().devices
    fake_amdsmi.change(b0__power__crash=1)
    assert "SIGSEGV" in (until(stream.ended) or "")


def test_a_hang_ends_the_stream_with_the_reason(open_amd: Open, fake_amdsmi: FakeAmdsmi) -> None:
    stream = open_amd()
    assert stream.discovery().devices
    fake_amdsmi.change(b0__energy__hang_s=60)
    assert "a vendor call hangs" in (until(stream.ended) or "")


def test_a_device_that_is_lost_costs_its_own_readings(open_amd: Open, fake_amdsmi: FakeAmdsmi) -> None:
    stream = open_amd()
    assert stream.discovery().devices
    fake_amdsmi.change(b1__energy__ret=34)
    until(lambda: any("DRIVER_NOT_LOADED" in problem.problem for problem in stream.discovery().problems))
    assert set(_watts(stream)) == {133.0}


def test_a_library_that_is_broken_gives_way_to_the_files(open_amd: Open, fake_amdsmi: FakeAmdsmi, roots: Roots) -> None:
    fake_amdsmi.change(all__init__ret=34)
    add_card(roots, "0000:03:00.0", RX_7900)
    (device,) = open_amd().discovery().devices
    assert device.power is not None
    assert device.power.api == "hwmon power1_average"
