"""Records to tables and bytes."""

from bench.reports.runs import run_json

__all__ = ["run_json"]
