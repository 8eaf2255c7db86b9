"""What other tools measured, as points of a comparison that always says that they are not comparable, and why."""

from __future__ import annotations

from pathlib import Path

from bench.analysis.compare import COMPARED, Point, Sample
from bench.errors import UsageError
from bench.imported import ImportedMetric, ImportedResult
from bench.store.imported import imported
from bench.timing.columns import main_field

PREFIX = "imported:"
_SETTING = ("load", "batch_size", "request_rate", "num_prompts", "input_tokens", "output_tokens")


def imported_points(results: Path, import_id: str) -> list[Point]:
    """The imported results whose id begins so. Raises: UsageError (none does), StoreError."""
    found = [one for one in imported(results) if import_id and one.import_id.startswith(import_id)]
    if not found:
        raise UsageError(f"no imported result has the id {import_id!r}", hint="bench table --imported lists them")
    return [_point(one) for one in found]


def _point(one: ImportedResult) -> Point:
    metrics = {metric.name: metric for metric in one.metrics}
    return Point(
        imported=one.tool,
        workload_id=one.import_id,
        series_id=None,
        config_id=None,
        host_id=one.import_id,
        case_id=one.import_id,
        run_id=one.import_id,
        started=one.imported_at,
        name=one.file,
        model=one.model or "?",
        precision=None,
        weights=None,
        engine=one.engine or one.tool,
        version=one.engine_version,
        build=None,
        devices=(one.device,) if one.device else (),
        boards=(),
        scope=None,
        window_kind=None,
        setting={
            name: f"{value:g}" if isinstance(value, float) else str(value) for name in _SETTING if (value := getattr(one, name))
        },
        samples={name: _sample(metrics[name]) for name in COMPARED if name in metrics},
    )


def _sample(metric: ImportedMetric) -> Sample:
    value = getattr(metric, main_field(metric.name))
    return Sample(reason=metric.reason) if value is None else Sample(values=(value,))
