"""Structures of libefml.so, written from the vendor's header.

Source: `efml.h` 1.2.3.5 (EnflameTechnology/gcu-exporter), which holds two interfaces: the old one (`Efml...`) and the one that it
calls next (`efml...`).
"""

from __future__ import annotations

from ctypes import Structure, c_char, c_float, c_uint, c_uint32, c_uint64, c_ulonglong
from typing import ClassVar

# --- next ---------------------------------------------------------------------------------------------------------------


class Memory(Structure):
    """efmlMemory_t [B]. Of the version after it, header and nvtop give the members in different orders."""

    _fields_: ClassVar = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class Utilisation(Structure):
    """efmlUtilization_t [%]."""

    _fields_: ClassVar = [("gcu", c_uint), ("memory", c_uint)]


class Process(Structure):
    """efmlProcessInfo_v1_t [B]."""

    _fields_: ClassVar = [
        ("pid", c_uint),
        ("usedGcuMemory", c_ulonglong),
        ("gcuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    ]


class Pci(Structure):
    """efmlPciInfo_t."""

    _fields_: ClassVar = [
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("function", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    ]


# --- old ----------------------------------------------------------------------------------------------------------------


class DevInfo(Structure):
    """efmlDeviceInfo_t."""

    _fields_: ClassVar = [
        ("name", c_char * 128),
        ("vendor_id", c_uint32),
        ("device_id", c_uint32),
        ("domain_id", c_uint32),
        ("bus_id", c_uint32),
        ("dev_id", c_uint32),
        ("func_id", c_uint32),
        ("logic_id", c_uint32),
    ]


class DevPower(Structure):
    """efmlDevPowerInfo_t [W]."""

    _fields_: ClassVar = [("pwr_capability", c_float), ("cur_pwr_consumption", c_float)]


class DevMemory(Structure):
    """efmlDevMemInfo_t: the size in B, what is used in MiB. The header gives no units; the vendor's exporter has these."""

    _fields_: ClassVar = [("mem_total_size", c_uint64), ("mem_used", c_uint32)]


class DevTemperatures(Structure):
    """efmlDevThermalInfoV2_t [C]. Older cards have a forerunner of three floats too, the first again that of the chip."""

    _fields_: ClassVar = [("cur_asic_temp", c_float), ("cur_mem_temp", c_float), ("cur_board_temp", c_float)]


class DevClocks(Structure):
    """efmlDevClkInfo_t [MHz]."""

    _fields_: ClassVar = [("cur_hbm_clock", c_uint32), ("cur_dtu_clock", c_uint32)]


class DevProcess(Structure):
    """efmlProcessInfo_t; nobody says in which unit."""

    _fields_: ClassVar = [("pid", c_uint32), ("dev_mem_usage", c_uint64), ("sys_mem_usage", c_uint64)]
