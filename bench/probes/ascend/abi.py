"""The ABI of Huawei's DCMI (libdcmi.so): structures, return codes, and the names of the same call in its generations.

Sources: `dcmi_interface_api.h` (2021, and that of Ascend HDK 26, where what is read here is the same), `dcmi_interface_api_v2.h`
(2026), and the driver's own source. Units from the "DCMI API Reference" of Atlas A2, A3 and 950.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import ClassVar

from bench.probes.native import Codes

CODES = Codes(
    names={
        -8001: "INVALID_PARAMETER",
        -8002: "OPER_NOT_PERMITTED",
        -8003: "MEM_OPERATE_FAIL",
        -8004: "SECURE_FUN_FAIL",
        -8005: "INNER_ERR",
        -8006: "TIME_OUT",
        -8007: "INVALID_DEVICE_ID",
        -8008: "DEVICE_NOT_EXIST",
        -8009: "IOCTL_FAIL",
        -8010: "SEND_MSG_FAIL",
        -8011: "RECV_MSG_FAIL",
        -8012: "NOT_READY",
        -8013: "NOT_SUPPORT_IN_CONTAINER",
        -8017: "IS_UPGRADING",
        -8020: "RESOURCE_OCCUPIED: another container has it",
        -8255: "NOT_SUPPORT",
    },
    lost=frozenset({-8007, -8008}),
    lasting=frozenset({-8001, -8002, -8013, -8255}),
)
NPU = 0
NDIE, VDIE, DDIE = range(3)
AICORE_CLOCK = 7
AICORE_USE = 2
HILINK, IMU = 18, 8
"""Components whose version is the firmware's: of all but the 910A, and of that."""
CARD_POWER = "dcmi_mcu_get_power_info"
CARD_CALLS: Mapping[str, tuple[str, ...]] = {
    "type": ("dcmi_get_device_type",),
    "chip": ("dcmi_get_device_chip_info_v2", "dcmi_get_device_chip_info"),
    "pcie": ("dcmi_get_device_pcie_info_v2",),
    "die": ("dcmi_get_device_die_v2",),
    "component": ("dcmi_get_device_component_static_version",),
    "power": ("dcmi_get_device_power_info",),
    "hbm": ("dcmi_get_device_hbm_info",),
    "ddr": ("dcmi_get_device_memory_info_v3",),
    "temperature": ("dcmi_get_device_temperature",),
    "frequency": ("dcmi_get_device_frequency",),
    "use": ("dcmi_get_device_multi_utilization_rate",),
    "use_of": ("dcmi_get_device_utilization_rate",),
    "processes": ("dcmi_get_device_resource_info",),
}
FLAT_CALLS: Mapping[str, tuple[str, ...]] = {
    "type": ("dcmiv2_get_device_type",),
    "chip": ("dcmiv2_get_device_chip_info",),
    "pcie": ("dcmiv2_get_device_pcie_info",),
    "die": ("dcmiv2_get_device_die_id", "dcmiv2_get_device_die"),
    "component": ("dcmiv2_get_device_component_static_version",),
    "power": ("dcmiv2_get_device_power_info",),
    "hbm": ("dcmiv2_get_device_hbm_info",),
    "temperature": ("dcmiv2_get_device_temperature",),
    "frequency": ("dcmiv2_get_device_frequency",),
    "use": ("dcmiv2_get_device_multi_utilization_rate",),
    "use_of": ("dcmiv2_get_device_utilization_rate",),
    "processes": ("dcmiv2_get_device_proc_mem_info", "dcmiv2_get_device_resource_info"),
}
"""Names of the same call, the newest first: some were renamed between drivers."""


class ChipInfo(ctypes.Structure):
    """`struct dcmi_chip_info_v2`. The older `dcmi_chip_info` is the same without its last member."""

    _fields_: ClassVar = [
        ("chip_type", ctypes.c_char * 32),
        ("chip_name", ctypes.c_char * 32),
        ("chip_ver", ctypes.c_char * 32),
        ("aicore_cnt", ctypes.c_uint),
        ("npu_name", ctypes.c_char * 32),
    ]


class PcieInfo(ctypes.Structure):
    """`struct dcmi_pcie_info_all`."""

    _fields_: ClassVar = [
        ("venderid", ctypes.c_uint),
        ("subvenderid", ctypes.c_uint),
        ("deviceid", ctypes.c_uint),
        ("subdeviceid", ctypes.c_uint),
        ("domain", ctypes.c_int),
        ("bdf_busid", ctypes.c_uint),
        ("bdf_deviceid", ctypes.c_uint),
        ("bdf_funcid", ctypes.c_uint),
        ("reserve", ctypes.c_ubyte * 32),
    ]


class DieId(ctypes.Structure):
    """`struct dcmi_die_id`."""

    _fields_: ClassVar = [("soc_die", ctypes.c_uint * 5)]


class HbmInfo(ctypes.Structure):
    """`struct dcmi_hbm_info`: sizes in MB. (The older call `dcmi_get_hbm_info`, not used here, gives KB.)"""

    _fields_: ClassVar = [
        ("memory_size", ctypes.c_ulonglong),
        ("freq", ctypes.c_uint),
        ("memory_usage", ctypes.c_ulonglong),
        ("temp", ctypes.c_int),
        ("bandwith_util_rate", ctypes.c_uint),
    ]


class DdrInfo(ctypes.Structure):
    """`struct dcmi_get_memory_info_stru`: sizes in MB, pages in KB."""

    _fields_: ClassVar = [
        ("memory_size", ctypes.c_ulonglong),
        ("memory_available", ctypes.c_ulonglong),
        ("freq", ctypes.c_uint),
        ("hugepagesize", ctypes.c_ulong),
        ("hugepages_total", ctypes.c_ulong),
        ("hugepages_free", ctypes.c_ulong),
        ("utiliza", ctypes.c_uint),
        ("reserve", ctypes.c_ubyte * 60),
    ]


class MultiUse(ctypes.Structure):
    """`struct dcmi_multi_utilization_info`: percent."""

    _fields_: ClassVar = [
        ("aic_util", ctypes.c_uint),
        ("aiv_util", ctypes.c_uint),
        ("aicore_util", ctypes.c_uint),
        ("npu_util", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 8),
    ]


class ProcessMemory(ctypes.Structure):
    """`struct dcmi_proc_mem_info`: bytes."""

    _fields_: ClassVar = [("proc_id", ctypes.c_int), ("proc_mem_usage", ctypes.c_ulong)]
