"""Chips: the catalogue itself, the names that drivers tell, and the names that people say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.catalog import chips
from bench.catalog.chips import Chip
from bench.records import DeviceInfo

PROBES = Path(__file__).parents[1] / "probes"
MIB = 1 << 20
SAMPLES: tuple[tuple[str, str, int | None, str | None], ...] = (
    ("ascend/samples/npu_smi_info_310p3_duo_na.txt", "310P3", None, "Ascend 310P3"),
    ("ascend/samples/npu_smi_info_910a_warning_procs.txt", "910A", None, "Ascend 910A"),
    ("ascend/samples/npu_smi_info_910b2.txt", "910B2", 65536 * MIB, "Ascend 910B2"),
    ("ascend/samples/npu_smi_info_a3_dual_die.txt", "Ascend910", 65536 * MIB, None),
    ("ascend/samples/npu_smi_info_a3_26_wide.txt", "Ascend910", None, None),
    ("biren/samples/brsmi_query_gpu.csv", "Biren166M", None, None),
    ("cambricon/samples/cnmon_v4_mlu370x4.txt", "MLU370-X4", None, None),
    ("cambricon/samples/cnmon_v5_mlu370x8.txt", "MLU370-X8", 23374 * MIB, "MLU370-X8 chip"),
    ("cambricon/samples/cnmon_v5_mlu370x8_idle.txt", "MLU370-X8", 23374 * MIB, "MLU370-X8 chip"),
    ("cambricon/samples/cnmon_info.json", "MLU370-X8", 49152 * MIB, "MLU370-X8"),
    ("enflame/samples/efsmi_l300.txt", "L300", None, None),
    ("enflame/samples/efsmi_q.txt", "S60", None, "S60"),
    ("enflame/samples/efsmi_q_sizes.txt", "S60", None, "S60"),
    ("enflame/samples/efsmi_v1.2_s60.txt", "S60", None, "S60"),
    ("enflame/samples/efsmi_v1.6_s60g_sriov.txt", "S60G", None, None),
    ("gaudi/samples/hl_smi_q_2x_hl325l.csv", "HL-325L", 131072 * MIB, "Gaudi 3 OAM"),
    ("gaudi/samples/hl_smi_table_hl325.txt", "HL-325", 131072 * MIB, "Gaudi 3 OAM"),
    ("gaudi/samples/hl_smi_table_hl205_old_units.txt", "HL-205", None, None),
    ("hygon/samples/hy_smi_24.04_z100l.json", "Z100L", None, None),
    ("hygon/samples/hy_smi_25.04.json", "K100_AI", None, "K100-AI"),
    ("hygon/samples/hy_smi_table_k100ai.txt", "K100_AI", None, "K100-AI"),
    ("hygon/samples/hy_smi_table_bw1000.txt", "BW1000", None, None),
    ("hygon/samples/hy_smi_bw_missing_commas.json", "BW", None, None),
    ("iluvatar/samples/ixsmi_bi_v100.txt", "Iluvatar BI-V100", 32768 * MIB, "BI-V100"),
    ("iluvatar/samples/ixsmi_bi_v150_dual_chip_na.txt", "Iluvatar BI-V150", None, None),
    ("iluvatar/samples/ixsmi_bi_v150s_single_chip_na.txt", "Iluvatar BI-V150S", None, None),
    ("iluvatar/samples/ixsmi_query_gpu.csv", "Iluvatar MR-V100", None, None),
    ("iluvatar/samples/ixsmi_query_gpu.csv", "Iluvatar MR-V50", None, None),
    ("intel/samples/xpu_smi1_discovery.json", "Intel(R) Data Center GPU Max 1550", None, "Data Center GPU Max 1550"),
    ("intel/samples/xpu_smi2_query_gpu.csv", "Intel(R) Arc(TM) Pro B60 Graphics", None, "Arc Pro B60"),
    ("metax/samples/mx_smi_2.1.12_c500.txt", "MetaX C500", 65536 * MIB, "C500"),
    ("metax/samples/mx_smi_2.2.9_c500_boards.txt", "MetaX C500", 65536 * MIB, "C500"),
    ("metax/samples/mx_smi_2.1.6_c550_no_cap.txt", "MXC550", None, "C550"),
    ("metax/samples/mx_smi_L_unavailable.txt", "MXC500", None, "C500"),
    ("metax/samples/mx_smi_show_board_power.txt", "MXC500", None, "C500"),
    ("metax/samples/mx_smi_show_temperature.txt", "MXC500", None, "C500"),
    ("metax/samples/mx_smi_2.2.8_n260.txt", "MetaX N260", None, None),
    ("metax/samples/mx_smi_2.2.9_c600_two_dies.txt", "MetaX C600-A", None, None),
    ("mthreads/samples/gmi_1.14_s80_ecc_na.txt", "MTT S80", None, None),
    ("mthreads/samples/gmi_2.4.1_s5000.txt", "MTT S5000", None, "MTT S5000"),
    ("mthreads/samples/gmi_q.json", "MTT S5000", None, "MTT S5000"),
    ("mthreads/samples/gmi_q.txt", "MTT S5000", None, "MTT S5000"),
    ("mthreads/samples/gmi_q_s5000.json", "MTT S5000", None, "MTT S5000"),
)
"""What vendors' tools have printed: the file, the name in it, the memory, and the chip that it is."""
NAMELESS = {
    "apple",
    *("npu_smi_device_used_error.txt", "npu_smi_t_common_310p_duo.txt", "npu_smi_t_common_910b.txt", "brml_fake_values.json"),
    *("efsmi_dmon.txt", "hwmon_xe_files.tree", "xpu_smi1_discovery_none.json", "xpu_smi1_dump.csv", "grpc_metrics.textproto"),
    *("xpu_smi1_stats_b60_tile_na.txt", "hy_smi_table_z100_fan_na.txt"),
}
"""Samples that tell no device's name."""
LIBRARIES: tuple[tuple[str, int | None, float | None, str | None], ...] = (
    ("NVIDIA H100 80GB HBM3", 81559 * MIB, 700.0, "H100 SXM"),
    ("NVIDIA H100 80GB HBM3", 81559 * MIB, 500.0, "H100 SXM"),
    ("NVIDIA H100 PCIe", 81559 * MIB, 350.0, "H100 PCIe"),
    ("NVIDIA H100 NVL", 95830 * MIB, 400.0, "H100 NVL"),
    ("NVIDIA H100", 81559 * MIB, 700.0, "H100 SXM"),
    ("NVIDIA H100", 81559 * MIB, 350.0, "H100 PCIe"),
    ("NVIDIA H100", 81559 * MIB, 500.0, "H100 SXM"),
    ("NVIDIA H100", 95830 * MIB, None, "H100 NVL"),
    ("NVIDIA H100", 81559 * MIB, 300.0, None),
    ("NVIDIA H100", 81559 * MIB, None, None),
    ("NVIDIA H100", None, None, None),
    ("NVIDIA H200", 143771 * MIB, 700.0, "H200 SXM"),
    ("NVIDIA H200 NVL", 143771 * MIB, 600.0, "H200 NVL"),
    ("NVIDIA B200", 183359 * MIB, 1000.0, "B200"),
    ("NVIDIA A100-SXM4-80GB", 81920 * MIB, 400.0, "A100 SXM 80GB"),
    ("NVIDIA A100-SXM4-40GB", 40960 * MIB, 400.0, "A100 SXM 40GB"),
    ("NVIDIA A100-SXM4-80GB", 40960 * MIB, 400.0, None),
    ("NVIDIA L40S", 46068 * MIB, 350.0, "L40S"),
    ("NVIDIA L4", 23034 * MIB, 72.0, "L4"),
    ("NVIDIA A40", 46068 * MIB, 300.0, "A40"),
    ("NVIDIA GeForce RTX 4090", 24564 * MIB, 450.0, "GeForce RTX 4090"),
    ("NVIDIA GH200 480GB", 97871 * MIB, 900.0, "GH200 96GB"),
    ("NVIDIA GH200 480GB", 144 << 30, 900.0, None),
    ("NVIDIA H20", 97871 * MIB, 500.0, "H20"),
    ("NVIDIA H20", 143771 * MIB, 500.0, None),
    ("Tesla T4", 15360 * MIB, 70.0, "T4"),
    ("Tesla V100-SXM2-16GB", 16160 * MIB, 300.0, "V100 SXM2"),
    ("Tesla V100", None, None, None),
    ("NVIDIA GeForce RTX 3080", None, None, None),
    ("NVIDIA RTX A3000 Laptop GPU", None, None, None),
    ("NVIDIA GB10", None, None, None),
    ("GRID A100-40C", 40960 * MIB, None, None),
    ("NVIDIA A100XM-40C", 40960 * MIB, None, None),
    ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9856 * MIB, None, None),
    ("AMD Instinct MI300X", 196592 * MIB, 750.0, "MI300X"),
    ("AMD Instinct MI300X OAM", 196592 * MIB, 750.0, "MI300X"),
    ("AMD Instinct MI300X", 98296 * MIB, 750.0, None),
    ("AMD Instinct MI300A", 128 << 30, 550.0, "MI300A"),
    ("AMD Instinct MI210", 65520 * MIB, 300.0, "MI210"),
    ("AMD INSTINCT MI250 (MCM) OAM AC MBA", 65520 * MIB, 560.0, "MI250 die"),
    ("AMD Instinct MI250X", 65520 * MIB, 560.0, "MI250X die"),
    ("AMD GPU 0x744c", None, None, None),
    ("Intel(R) UHD Graphics 770", None, None, None),
    ("Intel GPU 0xe20b", None, None, None),
    ("TPU v4", None, None, "TPU v4"),
    ("TPU v5e", None, None, "TPU v5e"),
    ("TPU v5p", None, None, "TPU v5p"),
    ("TPU v6e", None, None, "TPU v6e"),
    ("TPU7x", None, None, "TPU v7"),
    ("TPU v2 or v3", None, None, None),
    ("MLU590-M9", None, None, "MLU590"),
    ("Ascend950PR", None, None, None),
    ("Ascend 910A", None, None, "Ascend 910A"),
    ("Apple M4 GPU", None, None, None),
    ("Apple M2 Ultra GPU", 192 << 30, None, "M2 Ultra"),
)
"""What libraries and drivers tell: name, memory, power limit, and the chip that it is."""


def device(name: str, memory_b: int | None = None, limit_w: float | None = None, shared: str | None = None) -> DeviceInfo:
    return DeviceInfo(
        uid="u", probe="p", vendor="v", name=name, index=0, scope="accelerator", memory_total_b=memory_b, power_limit_w=limit_w,
        shared=shared,
    )  # fmt: skip


def full(name: str) -> str:
    """As the Ascend probe completes a bare `910B2`."""
    return f"Ascend {name}" if name[0].isdigit() else name


@pytest.mark.parametrize(("file", "name", "memory_b", "chip"), SAMPLES)
def test_a_device_of_a_sample_is_one_chip_or_none_on_purpose(
    file: str, name: str, memory_b: int | None, chip: str | None
) -> None:
    assert name in (PROBES / file).read_text(encoding="utf-8"), "the sample tells this name"
    found = chips.identify(device(full(name), memory_b))
    assert (found.chip.name if found.chip else None) == chip
    assert (found.reason is None) == (chip is not None)
    if chip is None:
        assert chips.why_unknown(full(name)), "unknown, with the reason"


def test_no_sample_is_forgotten() -> None:
    files = set(PROBES.glob("*/samples/*"))
    told = {PROBES / file for file, *_ in SAMPLES}
    left = {path.name for path in files - told if path.parts[-3] not in NAMELESS}
    assert left <= NAMELESS


@pytest.mark.parametrize(("name", "memory_b", "limit_w", "chip"), LIBRARIES)
def test_what_drivers_tell(name: str, memory_b: int | None, limit_w: float | None, chip: str | None) -> None:
    found = chips.identify(device(name, memory_b, limit_w))
    assert (found.chip.name if found.chip else None) == chip
    assert (found.reason is None) == (chip is not None)


def test_a_shared_board_is_not_the_whole_chip() -> None:
    found = chips.identify(device("NVIDIA H100 80GB HBM3", 81559 * MIB, 700.0, shared="MIG: 2 slices share the board's power"))
    assert found.chip is None
    assert "not the whole chip: MIG" in (found.reason or "")


def test_reasons_say_what_is_wrong() -> None:
    assert "the catalogue has no such chip" in (chips.identify(device("NVIDIA New")).reason or "")
    assert "neither memory nor power limit tells" in (chips.identify(device("NVIDIA H100")).reason or "")
    assert "tells 42.9 GB of memory, in the catalogue it has 80" in (
        chips.identify(device("NVIDIA A100-SXM4-80GB", 40960 * MIB)).reason or ""
    )


# --- the file -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", chips.all_chips(), ids=lambda chip: chip.name)
def test_figures_make_sense(chip: Chip) -> None:
    """Dense peaks follow from each other by powers of two; a sparse figure among them would stand out."""
    peaks = chip.tflops
    assert len(chip.source) > 3
    if "bf16" in peaks and "fp16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]
    sixteen = peaks.get("bf16") or peaks.get("fp16")
    if sixteen:
        assert peaks.get("tf32", sixteen / 2) == pytest.approx(sixteen / 2, rel=0.03)
        assert sixteen * 0.9 <= peaks.get("fp8", sixteen) <= sixteen * 2.1
        assert sixteen * 0.9 <= peaks.get("int8", sixteen) <= sixteen * 4.1
        assert sixteen <= peaks.get("fp4", sixteen) <= sixteen * 8.1
    if chip.bandwidth_tb_s:
        assert 0.1 <= chip.bandwidth_tb_s <= 30
    assert chip.tdp_w is None or 50 <= chip.tdp_w <= 1500
    assert chip.limit_w is None or (chip.tdp_w is not None and chip.tdp_w < chip.limit_w <= 1500)


@pytest.mark.parametrize(
    ("name", "limit_w", "rated_w"),
    [
        ("H20", 500.0, 500.0),
        ("H20", 400.0, 400.0),
        ("H20", 300.0, 400.0),
        ("H20", None, 400.0),
        ("H20", 700.0, 400.0),
        ("A100 SXM 80GB", 500.0, 500.0),
        ("H100 SXM", 500.0, 700.0),
        ("MI250 die", 560.0, 280.0),
        ("MI300A", 760.0, 760.0),
        ("MLU370-X8 chip", 250.0, 125.0),
        ("Ascend 910C", 500.0, None),
    ],
)
def test_a_board_s_own_limit_counts_where_it_is_above_the_rating(name: str, limit_w: float | None, rated_w: float | None) -> None:
    """Not where somebody has lowered it, nor where it is that of the whole card."""
    (chip,) = [chip for chip in chips.all_chips() if chip.name == name]
    assert chip.board_w(limit_w) == rated_w


@pytest.mark.parametrize("chip", chips.all_chips(), ids=lambda chip: chip.name)
def test_eight_bits_have_their_own_peak_in_either_format(chip: Chip) -> None:
    """What is not listed counts as unpacked to 16 bits, so that a peak which was only forgotten would double an MFU."""
    floats_only = {"B300", "Rubin", "Gaudi 2", "Gaudi 3 OAM", "TPU v7"}
    if "fp8" in chip.tflops and chip.name not in floats_only:
        assert chip.tflops.get("int8", 0.0) >= 0.99 * chip.tflops["fp8"]


def test_names_are_given_once() -> None:
    names = [chip.name for chip in chips.all_chips()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("chip", chips.all_chips(), ids=lambda chip: chip.name)
def test_a_chip_s_own_name_means_it(chip: Chip) -> None:
    assert chip in chips.spoken(chip.name)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("H100", {"H100 SXM", "H100 PCIe", "H100 NVL"}),
        ("h100-sxm", {"H100 SXM"}),
        ("NVIDIA H100 SXM", {"H100 SXM"}),
        ("NVIDIA H100 80GB HBM3", {"H100 SXM"}),
        ("H100 80GB", {"H100 SXM", "H100 PCIe"}),
        ("A100 40GB", {"A100 SXM 40GB", "A100 PCIe 40GB"}),
        ("AMD Instinct MI300X", {"MI300X"}),
        ("910B", {"Ascend 910B2"}),
        ("Huawei Ascend 910B", {"Ascend 910B2"}),
        ("V100", {"V100 SXM2"}),
        ("RTX 4090", {"GeForce RTX 4090"}),
        ("GH200", {"GH200 96GB"}),
        ("", set()),
        ("nvidia", set()),
        ("80GB", set()),
        ("H1000", set()),
        ("Rubin", {"Rubin"}),
    ],
)
def test_names_that_people_say(said: str, meant: set[str]) -> None:
    assert {chip.name for chip in chips.spoken(said)} == meant


WORDS = sorted({word for chip in chips.all_chips() for word in chip.name.lower().split() if not re.search(r"\d", word)})


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_some_name_is_no_chip(word: str) -> None:
    """`GPU` once was Intel's Data Center GPU Max 1550, and `SXM` an A100."""
    assert {chip.name.lower() for chip in chips.spoken(word)} <= {word}


def test_the_nearest_name() -> None:
    assert chips.nearest("MI300Y") == "MI300X"
    assert chips.nearest("zzzzzzzzz") is None


def test_confidence_of_a_figure() -> None:
    by_name = {chip.name: chip for chip in chips.all_chips()}
    assert by_name["MI250X die"].confidence_of("tdp_w") == "estimate"
    assert by_name["MI250X die"].confidence_of("tflops") == "datasheet"
