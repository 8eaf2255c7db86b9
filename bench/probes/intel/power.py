"""Energy, power and limit of an Intel GPU, from the power domain that holds most of its card."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from functools import partial

from bench.probes import values
from bench.probes.cards import Quantity
from bench.probes.intel import structs, sysman
from bench.probes.intel.meter import EnergyMeter, quantities
from bench.probes.native import Native
from bench.probes.values import MARK_64, Unavailable, attempt

_WHOLE = {1: "card", 2: "package", 0: "domain of unknown kind"}
"""Kinds of domains that may hold a whole card, best first. Others hold a part: stack, memory, GPU."""
_LEVELS = (1, 2, 3, 4, 0)
"""Kinds of limits, best first: sustained, burst, peak, instantaneous, unknown."""
_IN_POWER = 2


def of_device(api: Native, device: c_void_p) -> tuple[dict[str, Quantity], dict[str, str]]:
    """Quantities of the best domain that counts; without one, why there are none. Raises: ProbeError."""
    domains, why, _ = attempt(partial(sysman.handles, api, "zesDeviceEnumPowerDomains", device))
    whole = [(kind, domain) for domain in domains or () if (kind := _kind(api, domain)) in _WHOLE]
    for kind, domain in sorted(whole, key=lambda one: list(_WHOLE).index(one[0])):
        meter = EnergyMeter(partial(_counted, api, domain))
        why = attempt(meter.energy_uj)[1]
        if why is None:
            name = f"zesPowerGetEnergyCounter({_WHOLE[kind]})"
            limit = Quantity(get=partial(_limit_w, api, domain), api="zesPowerGetLimitsExt", unit="mW")
            return {**quantities(meter, name, attempt(limit.get)[0]), "power_limit_w": limit}, {}
    reason = why or "no power domain holds the whole card"
    return {}, {"power_w": reason, "energy_j": reason}


def _kind(api: Native, domain: c_void_p) -> int | None:
    """None for a domain of one stack, and for one that can't be asked."""
    extension = structs.PowerExtension(stype=structs.PowerExtension.STYPE)
    about = structs.PowerProperties(stype=structs.PowerProperties.STYPE, pNext=ctypes.addressof(extension))
    failed = attempt(lambda: api.call("zesPowerGetProperties", domain, byref(about)))[1]
    return None if failed is not None or about.onSubdevice else int(extension.domain)


def _counted(api: Native, domain: c_void_p) -> tuple[int, int]:
    found = structs.EnergyCounter()
    api.call("zesPowerGetEnergyCounter", domain, byref(found))
    return int(values.number(found.energy, marks=(MARK_64,))), found.timestamp


def _limit_w(api: Native, domain: c_void_p) -> float:
    """The sustained limit, else a lesser kind, else the highest that older drivers let one set."""
    described = attempt(partial(sysman.listed, api, "zesPowerGetLimitsExt", domain, structs.LimitDescription))[0] or []
    limits = {one.level: one.limit for one in described if one.limitUnit == _IN_POWER and one.limit > 0}
    highest = sysman.told(api, "zesPowerGetProperties", domain, structs.PowerProperties).maxLimit
    found_mw = next((limits[level] for level in _LEVELS if level in limits), highest)
    if found_mw <= 0:
        raise Unavailable("the driver tells no power limit", lasting=True)
    return float(found_mw * 1e-3)
