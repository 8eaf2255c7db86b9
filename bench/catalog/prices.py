"""Dated prices of devices and electricity. The data is `prices.yaml` beside this file; a results folder may bring its own."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import msgspec
import yaml

from bench.errors import UsageError

FILE = Path(__file__).with_name("prices.yaml")


class DevicePrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an hour of one device costs [USD]; `device` is a pattern for its whole name."""

    device: str
    usd_per_device_hour: float
    since: date
    source: str


class PowerPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kWh costs [USD] and emits [g CO2 equivalent] in a region; None where it isn't known."""

    region: str
    usd_per_kwh: float | None = None
    gco2_per_kwh: float | None = None
    since: date
    source: str


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All prices."""

    devices: tuple[DevicePrice, ...] = ()
    power: tuple[PowerPrice, ...] = ()


def read_prices(path: Path) -> Prices:
    """The prices in a file. Raises: UsageError (not readable, an unknown key, a price below zero, a pattern that is none)."""
    try:
        prices = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Prices)
        for entry in prices.devices:
            re.compile(entry.device)
    except (OSError, ValueError, RecursionError, yaml.YAMLError, msgspec.ValidationError, re.error) as error:
        raise UsageError(f"{path} can't be read as prices: {error}", hint=f"it is to be of the form of {FILE}") from error
    numbers = [entry.usd_per_device_hour for entry in prices.devices]
    numbers += [n for entry in prices.power for n in (entry.usd_per_kwh, entry.gco2_per_kwh) if n is not None]
    if not all(0.0 <= number < 1e9 for number in numbers):
        raise UsageError(f"{path} has a price that is no number of zero or more", hint="leave out what is not known")
    return prices
