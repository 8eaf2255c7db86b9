"""Hashes that say what is the same: cases, workloads, series, configurations. Pure.

An id is the first 16 hex digits of the SHA-256 of canonical JSON (sorted keys, no spaces, floats as Python writes them).
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from bench.records import BOARD_SCOPES, LATER, Case, DataSpec, DeviceInfo, EngineHandle, LocalModel, Parallelism

_NOT_MEASURED = ("name", "suite", "labels", "api_key_env")
_NOT_CANONICAL_ARGS = frozenset({"port", "host", "log_file", "log_level", "verbosity", "api_key", "engine_python", "binary"})


def digest(value: Any) -> str:
    """16 hex digits that depend on nothing but the value."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(held) for name, before in _fields(type(value)) if (held := getattr(value, name)) != before}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return value


@functools.cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a record, each with the value that leaves it out: its default where it came later (that is what was so
    without it), else `NODEFAULT`, which no value is.
    """
    return tuple((f.name, f.default if LATER in getattr(f.type, "__metadata__", ()) else NODEFAULT) for f in fields(kind))


def _known_by_content(case: Case) -> Case:
    """A file whose content is known counts by that, wherever it lies."""
    if case.data.sha256 is None:
        return case
    return replace(case, data=replace(case.data, path=None))


def case_id(case: Case) -> str:
    """Hash of the resolved case without what is only for people (its name, suite and labels) and where its data lies."""
    plain = _plain(_known_by_content(case))
    for name in _NOT_MEASURED:
        del plain[name]
    return digest(plain)


def workload_id(case: Case, dataset_hash: str | None = None) -> str:
    """Hash of load, lengths, dataset, seed and sampling. Known before anything starts: a synthetic dataset is its own
    description, a file is its content's hash (`case.data.sha256`, or `dataset_hash` where that isn't filled in).
    """
    case = _known_by_content(case)
    data = {} if case.data == DataSpec() else {"data": case.data}
    return digest(
        {
            "load": case.load,
            "input": case.input_tokens,
            "output": case.output_tokens,
            "exact": case.exact_lengths,
            "dataset": dataset_hash or case.dataset,
            "protocol": case.protocol,
            "seed": case.seed,
            "sampling": case.sampling,
            **data,
            **({} if case.stream else {"stream": False}),
        }
    )


def trial_id(run_id: str, case: str, repeat: int, role: str, attempt: int = 1) -> str:
    """Hash of run, case, repeat and role; from the second attempt on also of its number."""
    return digest([run_id, case, repeat, role, *([attempt] if attempt > 1 else [])])


def series_id(case: Case, workload: str, model: LocalModel | None, engine: EngineHandle, devices: tuple[DeviceInfo, ...]) -> str:
    """Hash of what stays the same along a time axis: workload, weights, precision, engine, canonical args, devices."""
    boards = sorted(f"{d.name}|{d.power_limit_w}" for d in devices if d.scope in BOARD_SCOPES)
    return digest(
        {
            "workload": workload,
            "model": case.model,
            "weights": model.weights_sha256 if model else None,
            "precision": engine.precision or case.precision,
            "engine": engine.name,
            "args": {k: v for k, v in case.engine_args.items() if k not in _NOT_CANONICAL_ARGS},
            "boards": boards,
            **({} if case.parallel == Parallelism() else {"parallel": case.parallel}),
            **({} if case.batching == "continuous" else {"batching": case.batching}),
        }
    )


def config_id(series: str, engine: EngineHandle, devices: tuple[DeviceInfo, ...]) -> str:
    """Hash of a series plus what moves in time: engine version and build, effective settings, drivers."""
    drivers = sorted({f"{d.vendor}|{d.driver}" for d in devices if d.scope in BOARD_SCOPES})
    return digest(
        {
            "series": series,
            "version": engine.version,
            "build": engine.build,
            "settings": engine.settings,
            "drivers": drivers,
        }
    )
