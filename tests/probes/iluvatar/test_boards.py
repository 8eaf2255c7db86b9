"""Two chips of one card: the odd chip of a BI-V150 tells the power of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.probes.iluvatar.probe import IluvatarProbe
from bench.probes.placement import resolve
from tests.fakes.library import FakeLibrary
from tests.probes.iluvatar.conftest import Bound, Opened
from tests.probes.iluvatar.host import BI_V150, ON_BOARDS

CHIPS = tuple(f"iluvatar:pci:0000:{bus}:00.0" for bus in ("13", "16", "1c", "1f"))


@pytest.mark.parametrize("scale", [1, 1000])
def test_93_w_for_chips_0_and_1(fake: FakeLibrary, probe: IluvatarProbe, scale: int) -> None:
    values = {key: value * scale if key.endswith((".power", ".limit")) else value for key, value in BI_V150.items()}
    fake.show(4, values)
    found = probe.discover()
    assert [d.uid for d in found.devices] == list(CHIPS)
    assert [d.board for d in found.devices] == [CHIPS[1], CHIPS[1], CHIPS[3], CHIPS[3]]
    assert [d.covers for d in found.devices] == [(), (CHIPS[0],), (), (CHIPS[2],)]
    assert [probe.sample(uid).power_w for uid in CHIPS] == [None, 93.0, None, 94.0]
    assert found.devices[0].power_reason == f"measured with {CHIPS[1]}: one sensor for the whole board"
    assert all(probe.sample(uid).memory_used_b == 116 << 20 for uid in CHIPS)
    assert found.problems == ()


def test_boards_by_the_vendors_own_calls(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(4, {**BI_V150, **ON_BOARDS, "*.energy": 5_000_000})
    found = probe.discover()
    assert [d.covers for d in found.devices] == [(), (CHIPS[0],), (), (CHIPS[2],)]
    assert found.devices[1].power is not None
    assert found.devices[1].power.api == "ixmlDeviceGetBoardPowerUsage"
    assert [probe.sample(uid).power_w for uid in CHIPS] == [None, 93.0, None, 94.0]
    assert "one chip" in found.devices[1].reasons["energy_j"]
    assert all(d.energy is None for d in found.devices)


def test_a_board_may_draw_what_its_chips_may_together(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(2, {**BI_V150, **ON_BOARDS, "*.limit": 150, "1.limit": 150, "1.board_power": 310})
    probe.discover()
    assert probe.sample(CHIPS[1]).power_w == 310.0


def test_a_board_that_every_chip_tells_is_counted_once(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(2, {**BI_V150, **ON_BOARDS, "0.power": 93, "0.limit": 350})
    found = probe.discover()
    assert [d.power is not None for d in found.devices] == [True, False]
    assert found.devices[0].covers == (CHIPS[1],)


def test_chips_by_name_are_not_joined_where_the_boards_are_known(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(2, {**BI_V150, "0.board": 1, "0.position": 0, "1.board": 2, "1.position": 1})
    assert [d.covers for d in probe.discover().devices] == [(), ()]


def test_without_the_whole_boards_call_the_one_chip_tells_it(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(2, {**BI_V150, **ON_BOARDS})
    for chip in (0, 1):
        fake.set(f"{chip}.board_power", None)
    power = probe.discover().devices[1].power
    assert power is not None
    assert power.api == "nvmlDeviceGetPowerUsage"
    assert probe.sample(CHIPS[1]).power_w == 93.0


def test_half_a_board_in_a_container_is_marked_as_shared(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(1, {**BI_V150, **ON_BOARDS})
    (device,) = probe.discover().devices
    assert "chips can't be seen" in (device.shared or "")
    assert probe.sample(device.uid).power_w == 93.0


@pytest.mark.parametrize(
    ("key", "value"), [("1.bus_id", "00000000:9B:00.0"), ("1.bus_id", "00000001:16:00.0"), ("*.name", "Iluvatar BI-V150S")]
)
def test_other_neighbours_are_not_joined(fake: FakeLibrary, probe: IluvatarProbe, key: str, value: str) -> None:
    fake.show(2, {**BI_V150, key: value})
    first, second = probe.discover().devices
    assert (first.covers, second.covers, first.power, second.power is not None) == ((), (), None, True)


def test_choosing_one_chip_measures_its_card(fake: FakeLibrary, probe: IluvatarProbe) -> None:
    fake.show(4, BI_V150)
    placement = resolve(probe.discover().devices, ["iluvatar:0"])
    assert set(placement.device_uids) == {CHIPS[0], CHIPS[1]}
    assert placement.visibility_env == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_release_without_the_vendors_own_calls(old_ixml: Path, bind: Bound, opened: Opened) -> None:
    shown = bind(old_ixml)
    shown.show(4, {**BI_V150, **ON_BOARDS})
    probe = opened(shown)
    assert [d.covers for d in probe.discover().devices] == [(), (CHIPS[0],), (), (CHIPS[2],)]
    assert probe.sample(CHIPS[3]).power_w == 94.0
