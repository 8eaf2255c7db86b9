"""Views for people: trials put together into points, and points into the questions that are asked of them. All is SQL.

A view may use those before it. Names of metrics come from the table of metrics, with their units.
"""

from __future__ import annotations

from bench.timing.columns import WideColumn, wide_columns

SETTING = (
    "workload_id", "series_id", "suite", "case_name", "labels", "profile", "model", "weights_sha256", "precision", "engine",
    "engine_version", "engine_build", "vendor", "devices", "device_count", "driver", "load", "batch_size", "request_rate",
    "arrivals", "num_prompts", "input_tokens", "output_tokens", "dataset", "dataset_hash", "protocol", "duration_s",
    "cpu_model", "energy_scope", "bench_version",
)  # fmt: skip
"""What the repeats of a point share."""
AXES = ("engine_version", "engine_build", "driver", "bench_version", "weights_sha256")
"""What moves along a series."""
MISSING_DAYS = 14
"""So many days after its last trial a case counts as taken out of its suite."""
_FRONT = "(PARTITION BY {by} ORDER BY output_tok_per_s_per_device DESC {rows})"


def view_statements(schema: str) -> list[str]:
    """The statements that make every view in `schema`, in order."""
    bodies = {
        "trials_wide": _trials_wide(schema),
        "points": _points(schema),
        "latest": _latest(schema),
        "series": _series(schema),
        "pareto": _pareto(schema),
        "missing": _missing(schema),
    }
    return [f"CREATE VIEW {schema}.{name} AS {body}" for name, body in bodies.items()]


def _trials_wide(schema: str) -> str:
    picks = ", ".join(f"max(m.{c.field}) FILTER (m.name = '{c.metric}') AS {c.column}" for c in wide_columns(headline=True))
    return (
        f"SELECT t.*, w.* EXCLUDE (trial_id) FROM {schema}.trials t LEFT JOIN "  # noqa: S608 - our own names, here and below
        f"(SELECT m.trial_id, {picks} FROM {schema}.metrics m GROUP BY m.trial_id) w USING (trial_id)"
    )


def _points(schema: str) -> str:
    """Repeats pooled as `bench table` does it: means over the valid trials (a metric that must not be trusted is NULL in those).
    What a resumed run has measured again is left out; a trial that failed before its configuration was known joins the only one
    of its case.
    """
    means = ", ".join(f"{_mean(c.column)} AS {c.column}" for c in _numbers())
    of_valid = ", ".join(f"if(status = 'valid', {c.column}, NULL) AS {c.column}" for c in _numbers())
    shared = ", ".join(f"any_value({name}) AS {name}" for name in SETTING)
    return f"""
WITH last AS (
  SELECT * FROM {schema}.trials_wide QUALIFY attempt = max(attempt) OVER (PARTITION BY run_id, case_id, repeat, role)
), homes AS (
  SELECT run_id, case_id, role, any_value(config_id) AS home_config, any_value(host_id) AS home_host FROM last
  WHERE config_id IS NOT NULL GROUP BY run_id, case_id, role HAVING count(DISTINCT (config_id, host_id)) = 1
), placed AS (
  SELECT l.* REPLACE (
    coalesce(config_id, home_config) AS config_id, if(config_id IS NULL, coalesce(home_host, host_id), host_id) AS host_id,
    {of_valid}
  )
  FROM last l LEFT JOIN homes USING (run_id, case_id, role)
)
SELECT run_id, case_id, role, config_id, host_id, min(started_at) AS started_at, CAST(min(started_at) AS DATE) AS night,
  count(*) AS trials, count(*) FILTER (status = 'valid') AS valid_trials, {shared}, {means}
FROM placed GROUP BY run_id, case_id, role, config_id, host_id"""  # noqa: S608


def _mean(column: str) -> str:
    """Geometric where all are above zero, else arithmetic, as in `bench.analysis.pool`. What does not vary stays exactly as it
    is: a limit must not be passed by rounding. Of rows that have no number where they don't count: a FILTER on each of so many
    aggregates costs DuckDB half a second.
    """
    return (
        f"CASE WHEN min({column}) = max({column}) THEN min({column}) WHEN min({column}) > 0 "
        f"THEN exp(avg(ln(if({column} > 0, {column}, NULL)))) ELSE avg({column}) END"
    )


def _numbers() -> list[WideColumn]:
    return [column for column in wide_columns(headline=True) if column.field in ("value", "p50", "p90", "p99")]


def _latest(schema: str) -> str:
    """As `bench table` without --all: each case's last run on a host; one without a valid trial hides no earlier one that has
    some.
    """
    return f"""
WITH of_run AS (
  SELECT *, sum(valid_trials) OVER run > 0 AS good, max(started_at) OVER run AS run_at
  FROM {schema}.points WINDOW run AS (PARTITION BY case_id, host_id, run_id)
), of_case AS (
  SELECT *, max(run_at) FILTER (good) OVER c AS last_good, max(run_at) OVER c AS last_run
  FROM of_run WINDOW c AS (PARTITION BY case_id, host_id)
)
SELECT * EXCLUDE (good, run_at, last_good, last_run) FROM of_case
WHERE run_at = last_good OR (NOT good AND run_at = last_run)"""  # noqa: S608


def _series(schema: str) -> str:
    """Each series on each host along time; `changed` names what is not as it was at the point before."""
    changes = ", ".join(
        f"CASE WHEN before IS NOT NULL AND {name} IS DISTINCT FROM lag({name}) OVER s THEN '{name}' END" for name in AXES
    )
    ratios = ", ".join(
        f"{name} / lag({name} IGNORE NULLS) OVER s AS {name}_ratio"
        for name in ("output_tok_per_s", "ttft_p50_ms", "tpot_p50_ms", "j_per_output_tok")
    )
    order = "PARTITION BY series_id, host_id ORDER BY started_at, run_id, config_id"
    return f"""
WITH measured AS (
  SELECT *, lag(run_id) OVER ({order}) AS before FROM {schema}.points WHERE series_id IS NOT NULL AND role = 'measure'
)
SELECT * EXCLUDE (before), before AS previous_run_id, list_filter([{changes}], lambda name: name IS NOT NULL) AS changed, {ratios}
FROM measured WINDOW s AS ({order})"""  # noqa: S608


def _pareto(schema: str) -> str:
    """Points of `latest` that no other beats in both tokens a second a device and time per output token, no interpolation."""
    question = "model, input_tokens, output_tokens, dataset, dataset_hash"
    setting = f"{question}, precision, engine, devices, device_count"
    columns = {"of_setting": setting, "overall": question}
    best = ", ".join(f"{_is_front(by)} AS {name}" for name, by in columns.items())
    return f"""
WITH shown AS (
  SELECT *, output_tok_per_s / greatest(device_count, 1) AS output_tok_per_s_per_device FROM {schema}.latest
  WHERE role = 'measure' AND output_tok_per_s IS NOT NULL AND tpot_p50_ms IS NOT NULL
), marked AS (SELECT *, {best} FROM shown)
SELECT * EXCLUDE (of_setting) FROM marked WHERE of_setting"""  # noqa: S608


def _is_front(by: str) -> str:
    """Faster a token than all that have more throughput, and no slower than those that have as much."""
    better = _FRONT.format(by=by, rows="RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE GROUP")
    equal = _FRONT.format(by=by, rows="RANGE BETWEEN CURRENT ROW AND CURRENT ROW")
    return f"(tpot_p50_ms < coalesce(min(tpot_p50_ms) OVER {better}, 'inf') AND tpot_p50_ms = min(tpot_p50_ms) OVER {equal})"


def _missing(schema: str) -> str:
    """Nights on which a nightly case has no valid trial, from its first night to two weeks after its last."""
    return f"""
WITH tried AS (
  SELECT t.*, CAST(started_at AS DATE) AS night, r.codes FROM {schema}.trials t LEFT JOIN (
    SELECT trial_id, string_agg(DISTINCT code, ', ' ORDER BY code) AS codes
    FROM {schema}.reasons WHERE severity = 'invalid' GROUP BY trial_id
  ) r USING (trial_id) WHERE profile = 'nightly' AND role = 'measure'
), cases AS (
  SELECT suite, case_id, host_id, any_value(case_name) AS case_name, any_value(model) AS model, any_value(engine) AS engine,
    unnest(range(
      min(night), least(max(night) + {MISSING_DAYS}, (SELECT max(night) FROM tried)) + INTERVAL 1 DAY, INTERVAL 1 DAY
    )) AS day
  FROM tried WHERE config_id IS NOT NULL GROUP BY suite, case_id, host_id
)
SELECT CAST(c.day AS DATE) AS night, c.suite, c.case_id, c.case_name, c.model, c.engine, c.host_id, count(t.trial_id) AS trials,
  CASE WHEN count(t.trial_id) = 0 THEN 'no trial'
    ELSE string_agg(DISTINCT concat_ws(': ', t.status, coalesce(t.error, t.codes)), '; ') END AS why
FROM cases c LEFT JOIN tried t ON t.night = c.day AND t.case_id = c.case_id AND (t.host_id = c.host_id OR t.config_id IS NULL)
GROUP BY ALL HAVING count(*) FILTER (t.status = 'valid') = 0"""  # noqa: S608
