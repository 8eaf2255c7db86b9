"""The table of metrics, and the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.analysis.gate import RULES as GATED
from bench.timing.spec import ENERGY_METRICS, REQUIRED, SPECS, scalar, scope_energy_name, undefined
from bench.timing.validity import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def test_names_end_in_their_unit() -> None:
    ends: dict[str, str | tuple[str, ...]] = {"ms": "_ms", "J": ("_j", "j_per_request"), "W": "_w", "B": "_b"}
    for spec in SPECS.values():
        if spec.unit in ends:
            base = spec.name.removesuffix("_same_board").removesuffix("_net")
            assert base.endswith(ends[spec.unit]), spec.name


def test_the_gated_ones_are_those_that_the_gate_judges() -> None:
    assert {name: spec.better for name, spec in SPECS.items() if spec.gated} == {name: r.better for name, r in GATED.items()}


@pytest.mark.parametrize("name", REQUIRED)
def test_the_page_has_every_metric_as_the_table_says(name: str) -> None:
    spec = SPECS[name]
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == [
        spec.unit,
        spec.definition,
        spec.formula,
        spec.undefined_when,
    ]
    assert ("(gated)" in row) is spec.gated


@pytest.mark.parametrize("code", RULES)
def test_the_page_has_every_code_with_its_severities(code: str) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{code}`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    rule = RULES[code]
    for cell, severity, limit in zip(cells[3:], rule.severity, rule.threshold or (None,) * 3, strict=True):
        assert cell == (severity if limit is None else f"{severity}, {limit:g}")


def test_makers_take_the_unit_from_the_table() -> None:
    assert undefined("ttft_ms", "why").unit == "ms"
    assert scalar("energy_j", 3.0).unit == "J"
    assert scope_energy_name("dram") == "energy_dram_j"
    assert scope_energy_name("dram", "modelled") == "energy_dram_modelled_j"
    assert set(ENERGY_METRICS) <= set(SPECS)
