"""What a meter of one's own prints, and how a person says so.

command: [./pdu.sh, outlet-7]   # an argument list: nothing passes through a shell
mode: once                      # once (run each period) | stream (runs on, one line a reading)
# csv: /var/log/meter.csv       # instead of command: rows are appended
unit: W                         # of power: W, mW, uW or kW
power: watts                    # column or key, where a line is CSV or JSON; without it a line is one number
energy: kwh                     # a counter, if there is one
energy_unit: kWh                # J, kJ, mJ, uJ, Wh or kWh
scope: node                     # node (default) or accelerator
name: PDU outlet 7
period_s: 1
gain_error: 0.01                # of the meter, relative
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic
import yaml

from bench.probes.values import LOWEST_W, Unavailable

_HIGHEST_W = {"node": 50_000.0, "accelerator": 5000.0}
_W = {"W": 1.0, "mW": 1e-3, "uW": 1e-6, "kW": 1e3}
_J = {"J": 1.0, "kJ": 1e3, "mJ": 1e-3, "uJ": 1e-6, "Wh": 3600.0, "kWh": 3.6e6}


class Config(pydantic.BaseModel):
    """What the YAML file may hold."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    command: list[str] | None = None
    mode: Literal["once", "stream"] = "once"
    csv: Path | None = None
    unit: Literal["W", "mW", "uW", "kW"] | None = None
    power: str | None = None
    energy: str | None = None
    energy_unit: Literal["J", "kJ", "mJ", "uJ", "Wh", "kWh"] | None = None
    scope: Literal["node", "accelerator"] = "node"
    name: str = "external meter"
    period_s: float = pydantic.Field(default=1.0, ge=0.05, le=60.0)
    gain_error: float | None = pydantic.Field(default=None, ge=0.0, lt=1.0)

    @pydantic.model_validator(mode="after")
    def _is_whole(self) -> Config:
        if bool(self.command) == (self.csv is not None):
            raise ValueError("name either a command or a csv file")
        if (self.energy is None) != (self.energy_unit is None):
            raise ValueError("energy and energy_unit go together")
        if self.unit is None and (self.power is not None or self.energy is None):
            raise ValueError("state the unit of power: W, mW, uW or kW")
        if self.csv is not None and self.power is None and self.energy is None:
            raise ValueError("a csv file needs the name of its power or energy column")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """One line of the meter."""

    power_w: float | None
    energy_j: float | None


def parse(line: str, config: Config, header: list[str] | None = None) -> Metered:
    """Watts and joules of one line: a number, a JSON object, or a CSV row under `header`. Raises: Unavailable."""
    text = line.strip()
    fields = _fields(text, header)
    if config.power is None and config.energy is None:
        watts = _number(text)
        return Metered(power_w=_watts(watts, config), energy_j=None)
    power = None if config.power is None else _watts(_number(fields.get(config.power)), config)
    energy = None if config.energy is None else _number(fields.get(config.energy)) * _J[config.energy_unit or "J"]
    return Metered(power_w=power, energy_j=energy)


def _fields(text: str, header: list[str] | None) -> Mapping[str, Any]:
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            raise Unavailable(f"not JSON: {text[:80]!r}", lasting=False) from None
        return found if isinstance(found, dict) else {}
    if header is None:
        return {}
    try:
        row = next(csv.reader(io.StringIO(text)), [])
    except csv.Error as error:
        raise Unavailable(f"not CSV: {text[:80]!r}", lasting=False) from error
    return dict(zip(header, (cell.strip() for cell in row), strict=False)) if len(row) == len(header) else {}


def _number(value: object) -> float:
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < 0:
        raise Unavailable(f"the meter gives {str(value)[:60]!r}, not a number", lasting=False)
    return found


def _watts(raw: float, config: Config) -> float:
    watts = raw * _W[config.unit or "W"]
    highest = _HIGHEST_W[config.scope]
    if not LOWEST_W <= watts <= highest:
        raise Unavailable(f"implausible power: {watts:g} W (believable: {LOWEST_W:g} to {highest:g} W)", lasting=False)
    return watts


def load(path: Path) -> Config:
    """The configuration in a YAML file. Raises: Unavailable with what is wrong in it."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Config.model_validate(raw)
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}", lasting=True) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # pydantic's too; what looks like a date and is none
        raise Unavailable(f"{path}: {' '.join(str(error).split())[:300]}", lasting=True) from error
