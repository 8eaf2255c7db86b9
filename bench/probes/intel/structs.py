"""Structures of Level Zero Sysman.

Source: `zes_api.h` and `ze_api.h` of Level Zero 1.8. Every structure with `stype` is told its type, and `pNext` may lead to an
extension.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_double, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p

_HEAD = (("stype", c_int32), ("pNext", c_void_p))
_TEXT_B = 64
_NAME_B = 256
_UUID_B = 16


class CoreProperties(ctypes.Structure):
    """`ze_device_properties_t`."""

    _fields_ = (
        *_HEAD,
        ("type", c_int32),
        ("vendorId", c_uint32),
        ("deviceId", c_uint32),
        ("flags", c_uint32),
        ("subdeviceId", c_uint32),
        ("coreClockRate", c_uint32),
        ("maxMemAllocSize", c_uint64),
        ("maxHardwareContexts", c_uint32),
        ("maxCommandQueuePriority", c_uint32),
        ("numThreadsPerEU", c_uint32),
        ("physicalEUSimdWidth", c_uint32),
        ("numEUsPerSubslice", c_uint32),
        ("numSubslicesPerSlice", c_uint32),
        ("numSlices", c_uint32),
        ("timerResolution", c_uint64),
        ("timestampValidBits", c_uint32),
        ("kernelTimestampValidBits", c_uint32),
        ("uuid", c_uint8 * _UUID_B),
        ("name", c_char * _NAME_B),
    )


class DeviceProperties(ctypes.Structure):
    """`zes_device_properties_t`."""

    STYPE = 0x1
    _fields_ = (
        *_HEAD,
        ("core", CoreProperties),
        ("numSubdevices", c_uint32),
        ("serialNumber", c_char * _TEXT_B),
        ("boardNumber", c_char * _TEXT_B),
        ("brandName", c_char * _TEXT_B),
        ("modelName", c_char * _TEXT_B),
        ("vendorName", c_char * _TEXT_B),
        ("driverVersion", c_char * _TEXT_B),
    )


class PciAddress(ctypes.Structure):
    """`zes_pci_address_t`."""

    _fields_ = (("domain", c_uint32), ("bus", c_uint32), ("device", c_uint32), ("function", c_uint32))


class PciSpeed(ctypes.Structure):
    """`zes_pci_speed_t`."""

    _fields_ = (("gen", c_int32), ("width", c_int32), ("maxBandwidth", c_int64))


class PciProperties(ctypes.Structure):
    """`zes_pci_properties_t`."""

    STYPE = 0x2
    _fields_ = (
        *_HEAD,
        ("address", PciAddress),
        ("maxSpeed", PciSpeed),
        ("haveBandwidthCounters", c_uint8),
        ("havePacketCounters", c_uint8),
        ("haveReplayCounters", c_uint8),
    )


class LimitDescription(ctypes.Structure):
    """`zes_power_limit_ext_desc_t`; `limit` in mW where `limitUnit` is power."""

    STYPE = 0x27
    _fields_ = (
        *_HEAD,
        ("level", c_int32),
        ("source", c_int32),
        ("limitUnit", c_int32),
        ("enabledStateLocked", c_uint8),
        ("enabled", c_uint8),
        ("intervalValueLocked", c_uint8),
        ("interval", c_int32),
        ("limitValueLocked", c_uint8),
        ("limit", c_int32),
    )


class PowerExtension(ctypes.Structure):
    """`zes_power_ext_properties_t`, behind `PowerProperties.pNext`."""

    STYPE = 0x28
    _fields_ = (*_HEAD, ("domain", c_int32), ("defaultLimit", c_void_p))


class PowerProperties(ctypes.Structure):
    """`zes_power_properties_t`; limits in mW, -1 for unknown."""

    STYPE = 0xD
    _fields_ = (
        *_HEAD,
        ("onSubdevice", c_uint8),
        ("subdeviceId", c_uint32),
        ("canControl", c_uint8),
        ("isEnergyThresholdSupported", c_uint8),
        ("defaultLimit", c_int32),
        ("minLimit", c_int32),
        ("maxLimit", c_int32),
    )


class EnergyCounter(ctypes.Structure):
    """`zes_power_energy_counter_t`: microjoules, and microseconds of a clock of the domain's own."""

    _fields_ = (("energy", c_uint64), ("timestamp", c_uint64))


class MemoryProperties(ctypes.Structure):
    """`zes_mem_properties_t`."""

    STYPE = 0xB
    _fields_ = (
        *_HEAD,
        ("type", c_int32),
        ("onSubdevice", c_uint8),
        ("subdeviceId", c_uint32),
        ("location", c_int32),
        ("physicalSize", c_uint64),
        ("busWidth", c_int32),
        ("numChannels", c_int32),
    )


class MemoryState(ctypes.Structure):
    """`zes_mem_state_t` [bytes]."""

    STYPE = 0x1E
    _fields_ = (*_HEAD, ("health", c_int32), ("free", c_uint64), ("size", c_uint64))


class EngineProperties(ctypes.Structure):
    """`zes_engine_properties_t`."""

    STYPE = 0x5
    _fields_ = (*_HEAD, ("type", c_int32), ("onSubdevice", c_uint8), ("subdeviceId", c_uint32))


class EngineStats(ctypes.Structure):
    """`zes_engine_stats_t` [us]."""

    _fields_ = (("activeTime", c_uint64), ("timestamp", c_uint64))


class TemperatureProperties(ctypes.Structure):
    """`zes_temp_properties_t`."""

    STYPE = 0x14
    _fields_ = (
        *_HEAD,
        ("type", c_int32),
        ("onSubdevice", c_uint8),
        ("subdeviceId", c_uint32),
        ("maxTemperature", c_double),
        ("isCriticalTempSupported", c_uint8),
        ("isThreshold1Supported", c_uint8),
        ("isThreshold2Supported", c_uint8),
    )


class FrequencyProperties(ctypes.Structure):
    """`zes_freq_properties_t` [MHz]."""

    STYPE = 0x9
    _fields_ = (
        *_HEAD,
        ("type", c_int32),
        ("onSubdevice", c_uint8),
        ("subdeviceId", c_uint32),
        ("canControl", c_uint8),
        ("isThrottleEventSupported", c_uint8),
        ("min", c_double),
        ("max", c_double),
    )


class FrequencyState(ctypes.Structure):
    """`zes_freq_state_t` [V and MHz, below 0 for unknown]."""

    STYPE = 0x1B
    _fields_ = (
        *_HEAD,
        ("currentVoltage", c_double),
        ("request", c_double),
        ("tdp", c_double),
        ("efficient", c_double),
        ("actual", c_double),
        ("throttleReasons", c_uint32),
    )


class ProcessState(ctypes.Structure):
    """`zes_process_state_t` [bytes]."""

    STYPE = 0x16
    _fields_ = (*_HEAD, ("processId", c_uint32), ("memSize", c_uint64), ("sharedSize", c_uint64), ("engines", c_uint32))
