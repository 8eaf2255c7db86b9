from __future__ import annotations

import pytest

from bench.errors import DeviceMissing, UsageError
from bench.probes.placement import resolve
from bench.records import DeviceInfo, PlacedBoard, Placement, Scope

A, B, C = "GPU-1111aaaa-0000", "GPU-2222bbbb-0000", "GPU-1111cccc-0000"


def device(uid: str, index: int, *, probe: str = "nvidia", scope: Scope = "accelerator", **more: object) -> DeviceInfo:
    board = more.pop("board", uid)
    return DeviceInfo(uid=uid, probe=probe, vendor=probe, name=f"Card {index}", index=index, scope=scope, board=board, **more)  # type: ignore[arg-type]


CARDS = [
    device("rapl:package-0", 0, probe="cpu", scope="cpu_package"),
    device(A, 0, pci="0000:18:00.0"),
    device(B, 1, covers=("MIG-aaaa-1", "MIG-bbbb-2")),
    device(C, 2),
]


@pytest.mark.parametrize(
    ("wanted", "uids"),
    [
        (["0"], [A]),
        (["nvidia:1"], [B]),
        ([B], [B]),
        (["GPU-2222"], [B]),
        (["gpu-1111a"], [A]),
        (["0000:18:00.0"], [A]),
        (["2", "0"], [C, A]),
        (["nvidia"], [A, B, C]),
    ],
)
def test_ways_to_name_a_board(wanted: list[str], uids: list[str]) -> None:
    numbers = ",".join(str([A, B, C].index(uid)) for uid in uids)
    expected = Placement(
        device_uids=tuple(uids),
        visibility_env={"CUDA_VISIBLE_DEVICES": ",".join(uids)},
        numbered_env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers},
        boards=tuple(PlacedBoard(probe="nvidia", uid=uid, number=str([A, B, C].index(uid))) for uid in uids),
        devices=len(uids),
    )
    assert resolve(CARDS, wanted) == expected


def test_nothing_wanted_restricts_nothing() -> None:
    assert resolve(CARDS, []) == Placement()


def test_a_slice_shows_itself_and_is_measured_by_its_board() -> None:
    placement = resolve(CARDS, ["MIG-bbbb-2"])
    assert (placement.device_uids, placement.devices) == ((B,), 1)
    assert placement.visibility_env == {"CUDA_VISIBLE_DEVICES": "MIG-bbbb-2"}
    assert placement.numbered_env is None


def test_two_slices_of_one_board_are_one_board() -> None:
    placement = resolve(CARDS, ["MIG-aaaa-1", "MIG-bbbb-2"])
    assert placement.device_uids == (B,)
    assert placement.visibility_env == {"CUDA_VISIBLE_DEVICES": "MIG-aaaa-1,MIG-bbbb-2"}
    assert placement.devices == 2


def test_the_module_comes_with_its_board() -> None:
    devices = [device(A, 0), device(f"{A}/module", 0, scope="module", board=A, covers=(A,))]
    placement = resolve(devices, ["0"])
    assert placement.device_uids == (A, f"{A}/module")
    assert placement.visibility_env == {"CUDA_VISIBLE_DEVICES": A}
    assert placement.devices == 1


def test_cpu_hides_the_accelerators() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
    assert resolve(CARDS, ["cpu"]) == Placement(
        device_uids=("rapl:package-0",), visibility_env=hidden, numbered_env=hidden
    )  # engines that take numbers only are hidden them too
    assert resolve([], ["cpu"]) == Placement()


def test_a_board_without_uuid_goes_by_the_drivers_order() -> None:
    placement = resolve([device("pci:0000:18:00.0", 1)], ["1"])
    assert placement.visibility_env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize("word", ["3", "nvidia:7", "GPU-9999", "amd:0", "GPU", "", "tpu"])
def test_what_is_not_here_is_missing_and_says_what_is(word: str) -> None:
    with pytest.raises(DeviceMissing, match="is not here") as caught:
        resolve(CARDS, [word])
    assert caught.value.exit_code == 4
    assert f"nvidia:0 Card 0 ({A})" in (caught.value.hint or "")


def test_nothing_here_says_so() -> None:
    with pytest.raises(DeviceMissing) as caught:
        resolve(CARDS[:1], ["0"])
    assert "no accelerator" in (caught.value.hint or "")


def test_the_start_of_two_uids_is_refused() -> None:
    with pytest.raises(UsageError, match="could be several") as caught:
        resolve(CARDS, ["GPU-1111"])
    assert A in (caught.value.hint or "")


def test_an_index_of_two_vendors_is_refused() -> None:
    with pytest.raises(UsageError, match="could be several") as caught:
        resolve([*CARDS, device("0x1", 0, probe="amd")], ["0"])
    assert "amd:0" in (caught.value.hint or "")


@pytest.mark.parametrize("wanted", [["0", "0"], ["0", "nvidia"], [A, "nvidia:0"]])
def test_the_same_board_twice_is_refused(wanted: list[str]) -> None:
    with pytest.raises(UsageError, match="named twice"):
        resolve(CARDS, wanted)


AMD_A, AMD_B = "GPU-1a2b3c4d5e6f7081", "GPU-00000000a0b0c001"
TWO_DIES = [device(AMD_A, 0, probe="amd", covers=(AMD_B,)), device(AMD_B, 1, probe="amd", board=AMD_A)]


class TestAmd:
    def test_rocr_is_told_the_unique_ids_and_hip_its_own_numbers(self) -> None:
        placement = resolve([device(AMD_A, 0, probe="amd"), device(AMD_B, 1, probe="amd")], ["1", "0"])
        assert placement.device_uids == (AMD_B, AMD_A)
        assert placement.visibility_env == {"ROCR_VISIBLE_DEVICES": f"{AMD_B},{AMD_A}", "HIP_VISIBLE_DEVICES": "0,1"}

    @pytest.mark.parametrize("word", ["amd:1", "1", AMD_B, "GPU-00000000a"])
    def test_a_die_shows_itself_and_is_measured_by_its_board(self, word: str) -> None:
        placement = resolve(TWO_DIES, [word])
        assert set(placement.device_uids) == {AMD_A, AMD_B}
        assert placement.visibility_env == {"ROCR_VISIBLE_DEVICES": AMD_B, "HIP_VISIBLE_DEVICES": "0"}

    def test_both_dies_of_a_board(self) -> None:
        placement = resolve(TWO_DIES, ["amd"])
        assert placement.device_uids == (AMD_A, AMD_B)
        assert placement.visibility_env == {"ROCR_VISIBLE_DEVICES": f"{AMD_A},{AMD_B}", "HIP_VISIBLE_DEVICES": "0,1"}

    def test_without_unique_ids_the_drivers_order_goes(self) -> None:
        placement = resolve([device("amd:pci:0000:03:00.0", 0, probe="amd"), device(AMD_A, 1, probe="amd")], ["amd"])
        assert placement.visibility_env == {"ROCR_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0,1"}

    def test_cpu_hides_both_vendors_boards(self) -> None:
        placement = resolve([*CARDS, *TWO_DIES], ["cpu"])
        assert placement.visibility_env == {"ROCR_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "-1"}

    def test_a_board_of_each_vendor(self) -> None:
        placement = resolve([*CARDS, *TWO_DIES], ["nvidia:0", "amd:0"])
        assert placement.visibility_env == {
            "CUDA_VISIBLE_DEVICES": A,
            "ROCR_VISIBLE_DEVICES": AMD_A,
            "HIP_VISIBLE_DEVICES": "0",
        }


@pytest.mark.parametrize("probe", ["amd", "ascend", "gaudi", "hygon", "iluvatar", "intel", "metax", "mthreads", "nvidia", "tpu"])
def test_cpu_never_hides_by_an_empty_value(probe: str) -> None:
    """HIP and Level Zero take an empty one for a variable that is not set: every device would be visible."""
    env = resolve([device("x0", 0, probe=probe)], ["cpu"]).visibility_env
    assert env
    assert all(value.strip() for value in env.values())


@pytest.mark.parametrize(
    ("probe", "variable"),
    [
        ("biren", "SUPA_VISIBLE_DEVICES"),
        ("cambricon", "MLU_VISIBLE_DEVICES"),
        ("gaudi", "HABANA_VISIBLE_MODULES"),
        ("iluvatar", "CUDA_VISIBLE_DEVICES"),
        ("metax", "MACA_VISIBLE_DEVICES"),
    ],
)
def test_other_vendors_are_told_the_numbers_that_their_runtime_uses(probe: str, variable: str) -> None:
    cards = [device("x0", 0, probe=probe), device("x1", 1, probe=probe, visible_as="6")]
    assert resolve(cards, [f"{probe}:1", f"{probe}:0"]).visibility_env == {variable: "6,0"}


def test_ascends_runtime_takes_ascending_numbers_only() -> None:
    cards = [device("x0", 0, probe="ascend", visible_as="10"), device("x1", 1, probe="ascend", visible_as="9")]
    assert resolve(cards, ["ascend:0", "ascend:1"]).visibility_env == {"ASCEND_RT_VISIBLE_DEVICES": "9,10"}


def test_two_vendors_that_share_a_variable_are_not_mixed() -> None:
    cards = [*CARDS, device("x0", 0, probe="iluvatar")]
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        resolve(cards, ["nvidia:0", "iluvatar:0"])
    both = resolve([*CARDS, device("x0", 0, probe="metax")], ["nvidia:0", "metax:0"])
    assert both.visibility_env == {"CUDA_VISIBLE_DEVICES": A, "MACA_VISIBLE_DEVICES": "0"}
