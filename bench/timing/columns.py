"""Metrics as the columns of a wide table: one name per number, with its unit in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.timing.spec import SPECS, MetricSpec

Field = Literal["value", "low", "high", "p50", "p90", "p99", "p99_low", "p99_high", "n"]
_SCALAR: dict[Field, str] = {"value": "", "low": "_low", "high": "_high"}
_DISTRIBUTION: dict[Field, str] = {
    "p50": "_p50",
    "low": "_p50_low",
    "high": "_p50_high",
    "p90": "_p90",
    "p99": "_p99",
    "p99_low": "_p99_low",
    "p99_high": "_p99_high",
    "n": "_n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WideColumn:
    """One number of one metric: `ttft_p50_ms` is `p50` of `ttft_ms`."""

    column: str
    metric: str
    field: Field


def main_field(name: str) -> Literal["value", "p50"]:
    """The number that stands for a metric: a scalar's value, a distribution's p50."""
    return "value" if SPECS[name].kind == "scalar" else "p50"


def wide_columns(*, headline: bool = False) -> tuple[WideColumn, ...]:
    """Every number of every metric, in the order in which people read them; the same whatever was measured. `headline`
    leaves out sample counts, and intervals but those of gated scalars.
    """
    return tuple(
        WideColumn(column=_column(spec, suffix, field), metric=spec.name, field=field)
        for spec in SPECS.values()
        for field, suffix in (_SCALAR if spec.kind == "scalar" else _DISTRIBUTION).items()
        if not headline or _is_headline(spec, field)
    )


def _column(spec: MetricSpec, suffix: str, field: Field) -> str:
    base = spec.name.removesuffix("_ms")
    unit = "" if field == "n" else spec.name[len(base) :]
    return f"{base}{suffix}{unit}"


def _is_headline(spec: MetricSpec, field: Field) -> bool:
    return field in ("value", "p50", "p90", "p99") or (spec.kind == "scalar" and spec.gated and field != "n")
