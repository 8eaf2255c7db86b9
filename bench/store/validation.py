"""Reading a shard that anyone may have written: every doubt is a reason to refuse it, never a crash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import codec
from bench.records import SCHEMA_VERSION, Metric, TrialRecord
from bench.store import layout
from bench.timing.spec import SPECS
from bench.units import format_bytes

TRIAL_JSON_LIMIT_B = 16 << 20
_INT64_LIMIT = 1 << 63
_SMALLEST = 1e-30
"""Above 0: what one can still divide by and compare."""
_LARGEST = 1e18
"""No rate, time, size or energy of a benchmark is beyond it; sums and products of larger ones are no numbers."""
_LONGEST = str(_INT64_LIMIT - 1).encode()
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")
_AHEAD_S = 86_400.0
"""How far a shard's clock may be ahead of ours: time zones set wrong, but no more."""


class BadShard(ValueError):
    """Why a shard is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    schema_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A shard that passed: `sha256` is that of `trial.json`."""

    folder: Path
    sha256: str
    record: TrialRecord


def read_shard(folder: Path, *, verify: bool) -> Shard:
    """The shard in `folder`. `verify` also hashes the siblings; without it they only have to be there.

    Raises: BadShard with the reason.
    """
    data = _trial_json(folder)
    record = _decode(data)
    check_record(record)
    _check_siblings(folder, record, verify=verify)
    return Shard(folder=folder, sha256=hashlib.sha256(data).hexdigest(), record=record)


def read_record(folder: Path) -> TrialRecord:
    """The record alone, whatever became of its siblings. Raises: BadShard."""
    return _decode(_trial_json(folder))


def check_record(record: TrialRecord) -> None:
    """Refuse a record that no shard can hold: its names, its date, its numbers. Raises: BadShard."""
    _check_names(record)
    _check_numbers(record)


def check_clock(record: TrialRecord, now_ns: int) -> None:
    """Refuse a trial from the future, which would be the latest of its series until then. Raises: BadShard."""
    for what, anchor in (("started", record.started), ("ended", record.ended)):
        ahead_s = (anchor.wall_ns - now_ns) / 1e9
        if ahead_s > _AHEAD_S:
            raise BadShard(f"it {what} {ahead_s / _AHEAD_S:.1f} days in the future: set the clock of its host, or of this one")


def check_place(results: Path, shard: Shard) -> None:
    """Refuse a shard that does not lie where its record says. Raises: BadShard."""
    expected = layout.shard_path(shard.record)
    actual = shard.folder.relative_to(results).as_posix()
    if actual != expected:
        raise BadShard(f"it lies in {actual} but its record belongs in {expected}")


def _trial_json(folder: Path) -> bytes:
    path = folder / layout.TRIAL_JSON
    try:
        if path.is_symlink() or not path.is_file():
            raise BadShard("trial.json is missing" if not path.exists() else "trial.json is no plain file")
        size_b = path.stat().st_size
        if size_b > TRIAL_JSON_LIMIT_B:
            raise BadShard(f"trial.json is {format_bytes(size_b)}, more than {format_bytes(TRIAL_JSON_LIMIT_B)}")
        return path.read_bytes()
    except OSError as error:
        raise BadShard(f"trial.json can't be read: {error.strerror}") from error


def _decode(data: bytes) -> TrialRecord:
    try:
        record = codec.decode(data, TrialRecord)
    except (ValueError, RecursionError) as error:
        _check_version(_version_of(data))  # a later schema may not even decode
        raise BadShard(f"trial.json is not a trial record: {error}") from error
    _check_version(record.schema_version)
    return record


def _version_of(data: bytes) -> int:
    try:
        return codec.decode(data, _Version).schema_version
    except (ValueError, RecursionError):
        return SCHEMA_VERSION


def _check_version(version: int) -> None:
    """Refuse what another bench wrote in another way. Raises: BadShard."""
    if version > SCHEMA_VERSION:
        raise BadShard(f"schema version {version} is newer than this bench reads ({SCHEMA_VERSION}): update bench")
    if version < 1:
        raise BadShard(f"schema version {version} is unknown")


def _check_names(record: TrialRecord) -> None:
    for what, name in (("run_id", record.key.run_id), ("trial_id", record.key.trial_id)):
        if not layout.safe_name(name):
            raise BadShard(f"{what} {name[:80]!r} can't be a folder's name")
    for name in record.files:
        if name not in layout.SIBLINGS:
            raise BadShard(f"files names {name[:80]!r}, which is no part of a shard")
    try:
        layout.shard_path(record)
    except ValueError as error:
        raise BadShard(str(error)) from error


def _check_numbers(record: TrialRecord) -> None:
    """JSON, which every record comes from, has no NaN and no infinity: numbers can only be too large or too small."""
    if not _surely_fit(codec.encode(record)):
        plain = codec.to_builtins(record)
        plain.pop("extra")
        for where, value in _integers(plain, "$"):
            if not -_INT64_LIMIT <= value < _INT64_LIMIT:
                raise BadShard(f"{where} does not fit into 64 bits: {str(value)[:40]}")
    for name, metric in record.metrics.items():
        _check_metric(name, metric)
    for what, window in (("window", record.window), ("idle", record.idle), ("resident", record.resident)):
        if window is not None and window.t1_ns < window.t0_ns:
            raise BadShard(f"its {what} ends {(window.t0_ns - window.t1_ns) / 1e9:g} s before it begins")


def _check_metric(name: str, metric: Metric) -> None:
    """Its interval may reach below 0, and what this bench does not know may be anything. Raises: BadShard."""
    if metric.name != name:
        raise BadShard(f"metrics[{name[:80]!r}] holds a metric named {metric.name[:80]!r}")
    spec = SPECS.get(name)
    least = -_LARGEST if spec is None or spec.signed else 0.0
    for number in (metric.value, metric.mean, metric.p50, metric.p90, metric.p99):
        if number is not None and abs(number) > _LARGEST:
            raise BadShard(f"metrics[{name[:80]!r}] is {number:g}, larger than anything that can be measured")
        if number is not None and number < least:
            raise BadShard(f"metrics[{name[:80]!r}] is {number:g}, which can't be below 0")
        if number is not None and least == 0.0 and 0.0 < number < _SMALLEST:
            raise BadShard(f"metrics[{name[:80]!r}] is {number:g}, smaller than anything that can be measured")
    if metric.n < 0:
        raise BadShard(f"metrics[{name[:80]!r}] is of {metric.n} observations")


def _surely_fit(data: bytes) -> bool:
    """Whether no integer in `data` can be beyond 64 bits: few have as many digits, and a look at all of them takes long."""
    shape, at, digits = data.translate(_DIGITS_AS_0), 0, len(_LONGEST)
    while (at := shape.find(b"0" * digits, at)) >= 0:
        if data[at : at + digits] > _LONGEST or shape[at + digits : at + digits + 1] == b"0":
            return False
        at += digits
    return True


def _integers(value: Any, where: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, int):
        yield where, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _integers(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _integers(item, f"{where}[{index}]")


def _check_siblings(folder: Path, record: TrialRecord, *, verify: bool) -> None:
    for name, digest in record.files.items():
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise BadShard(f"{name} is missing" if not path.is_symlink() else f"{name} is no plain file")
        try:
            if verify and layout.sha256_file(path) != digest:
                raise BadShard(f"{name} is not the file that was written: its sha256 differs")
            if verify and path.suffix == ".parquet":
                _check_parquet(path, record.key.trial_id)
        except OSError as error:
            raise BadShard(f"{name} can't be read: {error.strerror}") from error


def _check_parquet(path: Path, trial_id: str) -> None:
    from bench.store.parquet_check import check_parquet

    check_parquet(path, trial_id)
