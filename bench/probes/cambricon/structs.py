"""Structures of libcndev.so, written from the vendor's header.

Source: `cndev.h` with CNDEV_VERSION_6 (Cambricon/mlu-exporter, drivers 5.10 to 6); for what it dropped (`Memory`, `Power`,
`Pcie`) the one before it. Sizes are in MB of 2^20 bytes.
"""

from __future__ import annotations

from ctypes import (
    Structure,
    Union,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_long,
    c_longlong,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_ulong,
    c_ulonglong,
)
from typing import ClassVar


class CardInfo(Structure):
    """cndevCardInfo_t."""

    _fields_: ClassVar = [("version", c_int32), ("number", c_uint32)]


class Uuid(Structure):
    """cndevUUID_t; the text has no `MLU-` before it."""

    _fields_: ClassVar = [("version", c_int32), ("uuid", c_uint8 * 37), ("ncsUUID64", c_uint64)]


class CardSerial(Structure):
    """cndevCardSN_t: `sn` is that of the board, which two chips may share."""

    _fields_: ClassVar = [("version", c_int32), ("sn", c_uint64), ("motherBoardSn", c_uint64)]


class VersionInfo(Structure):
    """cndevVersionInfo_t: the card's firmware (MCU) and the driver."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("mcuMajorVersion", c_uint32),
        ("mcuMinorVersion", c_uint32),
        ("mcuBuildVersion", c_uint32),
        ("driverMajorVersion", c_uint32),
        ("driverMinorVersion", c_uint32),
        ("driverBuildVersion", c_uint32),
    ]


class MemoryV2(Structure):
    """cndevMemoryInfoV2_t [MB]; no version."""

    _fields_: ClassVar = [
        ("physicalMemoryTotal", c_int64),
        ("physicalMemoryUsed", c_int64),
        ("reservedMemory", c_int64),
        ("virtualMemoryTotal", c_int64),
        ("virtualMemoryUsed", c_int64),
        ("globalMemory", c_uint64),
        ("reserved", c_uint64 * 16),
    ]


class Memory(Structure):
    """cndevMemoryInfo_t [MB], of older drivers."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("physicalMemoryTotal", c_int64),
        ("physicalMemoryUsed", c_int64),
        ("virtualMemoryTotal", c_int64),
        ("virtualMemoryUsed", c_int64),
        ("channelNumber", c_int64),
        ("channelMemoryUsed", c_int64 * 20),
        ("globalMemory", c_uint64),
    ]


class DevicePower(Structure):
    """cndevDevicePowerInfo_t [W]; no version."""

    _fields_: ClassVar = [
        ("usage", c_int32),
        ("cap", c_int32),
        ("machine", c_int32),
        ("tdp", c_int32),
        ("maxPower", c_int32),
        ("reserved", c_int32 * 16),
    ]


class Power(Structure):
    """cndevPowerInfo_t [W], of older drivers. What its `usageDecimal` counts is not documented: it is left alone."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("usage", c_int32),
        ("cap", c_int32),
        ("usageDecimal", c_int32),
        ("machine", c_int32),
        ("capDecimal", c_int32),
        ("thermalDesignPower", c_uint16),
        ("instantaneousPowerUsage", c_uint16),
        ("instantaneousPowerUsageDecimal", c_uint16),
    ]


class Temperature(Structure):
    """cndevTemperatureInfo_t [C]: the highest of each kind."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("board", c_int32),
        ("cluster", c_int32 * 20),
        ("memoryDie", c_int32 * 8),
        ("chip", c_int32),
        ("airInlet", c_int32),
        ("airOutlet", c_int32),
        ("memory", c_int32),
        ("videoInput", c_int32),
        ("cpu", c_int32),
        ("isp", c_int32),
    ]


class Utilisation(Structure):
    """cndevUtilizationInfo_t [%]."""

    _fields_: ClassVar = [("version", c_int32), ("averageCoreUtilization", c_int32), ("coreUtilization", c_int32 * 80)]


class Frequency(Structure):
    """cndevFrequencyInfo_t [MHz]."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("boardFreq", c_int32),
        ("ddrFreq", c_int32),
        ("overtempDfsFlag", c_uint8),
        ("fastDfsFlag", c_uint8),
        ("mluClusterFreqCount", c_uint16),
        ("mluClusterFreq", c_uint16 * 20),
        ("boardDefaultFreq", c_int32),
        ("boardFreqArange", c_int32 * 2),
    ]


class ThrottleReason(Structure):
    """cndevPerformanceThrottleReason_t: 0 or 1 each."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("tdp", c_int),
        ("powerSetting", c_int),
        ("clockSetting", c_int),
        ("frequencyLocked", c_int),
        ("powerBrake", c_int),
        ("thermalSlowdown", c_int),
    ]


class Process(Structure):
    """cndevProcessInfo_t [KiB]; `pid` is the host's."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("pid", c_uint32),
        ("physicalMemoryUsed", c_uint64),
        ("virtualMemoryUsed", c_uint64),
    ]


class PcieV2(Structure):
    """cndevPCIeInfoV2_t; no version."""

    _fields_: ClassVar = [
        ("subsystemId", c_uint32),
        ("deviceId", c_uint32),
        ("vendor", c_uint16),
        ("subsystemVendor", c_uint16),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("moduleId", c_uint16),
        ("slotId", c_uint16),
        ("reserved", c_uint32 * 8),
    ]


class Pcie(Structure):
    """cndevPCIeInfo_t, of older drivers."""

    _fields_: ClassVar = [
        ("version", c_int32),
        ("subsystemId", c_uint32),
        ("deviceId", c_uint32),
        ("vendor", c_uint16),
        ("subsystemVendor", c_uint16),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("physicalSlot", c_char_p),
        ("slotID", c_int32),
    ]


class Value(Union):
    """cndevValue_t."""

    _fields_: ClassVar = [
        ("dVal", c_double),
        ("uiVal", c_uint),
        ("ulVal", c_ulong),
        ("ullVal", c_ulonglong),
        ("siVal", c_int),
        ("slVal", c_long),
        ("sllVal", c_longlong),
    ]


MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "siVal", "slVal", "sllVal")
"""Members of `Value` by cndevFieldValuesTypeNum_t."""


class FieldValue(Structure):
    """cndevFieldValue_t; `timestamp` is the wall clock's [us]."""

    _fields_: ClassVar = [
        ("fieldId", c_int),
        ("ret", c_int),
        ("value", Value),
        ("valueType", c_int),
        ("latencyUsec", c_longlong),
        ("timestamp", c_longlong),
        ("scopeId", c_uint),
    ]
