"""YAML to validated, frozen cases."""

from bench.records import Case
from bench.suite.build import Suite, load, text_of
from bench.suite.lookup import SuiteInfo, available, locate, shipped
from bench.suite.options import from_options, override, suite_from_options
from bench.suite.picking import pick, picked
from bench.suite.schema import json_schema


def expand(suite: Suite) -> tuple[Case, ...]:
    """Every resolved case of a suite, in file order; a sweep has none until it runs (`suite.sweeps`)."""
    return suite.cases


__all__ = [
    "Suite",
    "SuiteInfo",
    "available",
    "expand",
    "from_options",
    "json_schema",
    "load",
    "locate",
    "override",
    "pick",
    "picked",
    "shipped",
    "suite_from_options",
    "text_of",
]
