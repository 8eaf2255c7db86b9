"""One reading of a data file before anything is started: is every line sound, how many rows are there, how long are they?"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from bench.errors import UsageError
from bench.load.data.formats import TRACES, format_of, read_rows
from bench.load.data.rows import Here, open_file
from bench.records import Case, DataSpec, LengthSpec

_LEAST_BYTES_PER_TOKEN = 3
"""Prompts of text are allowed this much for their largest size: an engine must have room for them."""
_PIECE_B = 1 << 20
_SOUND = ("sha256", "rows", "shares_prefixes", "shuffle", "salt")
"""What of a `DataSpec` has no influence on which rows are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a file holds. `bytes_b` is the text of all prompts; `output_*` are None where the file names no lengths of replies."""

    kind: str
    sha256: str
    rows: int
    input_sum: int
    input_max: int
    output_sum: int | None
    output_max: int | None
    bytes_b: int
    begin_s: float | None
    end_s: float | None
    has_blocks: bool


def pin(case: Case) -> Case:
    """`case` with what only its data file can tell: format, content's hash, number of rows, lengths, requests of a whole trace.

    Raises: UsageError for a file that is missing, empty or unsound, with the line; for a trace shorter than what is asked of it.
    """
    if case.dataset == "synthetic":
        return case
    if case.data.path is None:
        raise UsageError(f"dataset {case.dataset!r} needs a file", hint="dataset: {path: FILE}, or --dataset-path FILE")
    found = survey(case.dataset, case.data)
    data = replace(case.data, sha256=found.sha256, rows=found.rows, shares_prefixes=found.has_blocks)
    pinned = replace(
        case,
        dataset=found.kind,
        data=data,
        input_tokens=_input_lengths(found),
        output_tokens=_output_lengths(case.output_tokens, found),
    )
    return _with_trace(pinned, found) if case.load.arrivals == "trace" else pinned


def survey(dataset: str, data: DataSpec) -> Survey:
    """What the file of `data` holds; a file that hasn't changed is read once. Raises: UsageError."""
    assert data.path is not None
    open_file(data.path).close()
    state = Path(data.path).stat()
    bare = DataSpec()
    read_by = replace(data, **{name: getattr(bare, name) for name in _SOUND})
    kind = format_of(data.path) if dataset == "file" and state.st_size else dataset
    return _survey(kind, read_by, state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=64)
def _survey(kind: str, data: DataSpec, size_b: int, changed_ns: int, inode: int) -> Survey:
    assert data.path is not None
    here = Here(path=data.path)
    if size_b == 0:
        here.refuse("is empty")
    rows = inputs = input_max = outputs = output_max = untold = bytes_b = 0
    begin_s, end_s, has_blocks = math.inf, -math.inf, False
    for row in read_rows(kind, data.path, data):
        rows += 1
        inputs, input_max = inputs + row.input_tokens, max(input_max, row.input_tokens)
        if row.text is not None:
            bytes_b += len(row.text.encode())
        if row.output_tokens is None:
            untold += 1
        else:
            outputs, output_max = outputs + row.output_tokens, max(output_max, row.output_tokens)
        if row.stamp_s is not None:
            begin_s, end_s = min(begin_s, row.stamp_s), max(end_s, row.stamp_s)
        has_blocks = has_blocks or bool(row.blocks)
    if rows == 0:
        here.refuse("has no row that can be used", hint="are the limits on lengths too narrow, or is it another type of file?")
    return Survey(
        kind=kind, sha256=_sha256(data.path), rows=rows, input_sum=inputs, input_max=input_max,
        output_sum=None if untold else outputs, output_max=None if untold else output_max, bytes_b=bytes_b,
        begin_s=begin_s if math.isfinite(begin_s) else None, end_s=end_s if math.isfinite(end_s) else None, has_blocks=has_blocks,
    )  # fmt: skip


def _sha256(path: str) -> str:
    content = hashlib.sha256()
    with open_file(path) as file:
        while piece := file.read(_PIECE_B):
            content.update(piece)
    return content.hexdigest()


def _input_lengths(found: Survey) -> LengthSpec:
    largest = found.input_max
    if found.bytes_b:
        largest = math.ceil(largest * 4 / _LEAST_BYTES_PER_TOKEN)
    return LengthSpec(dist="dataset", mean=max(1, round(found.input_sum / found.rows)), largest=largest)


def _output_lengths(asked: LengthSpec, found: Survey) -> LengthSpec:
    """Lengths that the case names go before those of the file; where neither does, all are as long as the mean says."""
    if asked.dist != "dataset":
        return asked
    if found.output_sum is None:
        return LengthSpec(mean=asked.mean)
    return LengthSpec(dist="dataset", mean=max(1, round(found.output_sum / found.rows)), largest=found.output_max)


def _with_trace(case: Case, found: Survey) -> Case:
    load = case.load
    if found.kind not in TRACES or found.begin_s is None or found.end_s is None:
        raise UsageError(
            f"{case.data.path}: is of type {found.kind}, which doesn't say when requests came",
            hint=f"arrivals: trace needs one of {', '.join(TRACES)}",
        )
    if load.num_prompts is not None and load.num_prompts > found.rows:
        raise UsageError(
            f"{case.data.path}: the trace has {found.rows:,} requests, {load.num_prompts:,} are asked for",
            hint="lower num_prompts, or leave it out to replay all of it",
        )
    if load.whole_trace:
        return replace(case, load=replace(load, num_prompts=found.rows))
    lasts_s = (found.end_s - found.begin_s) / (load.speed or 1.0)
    if load.num_prompts is None and lasts_s < case.warmup_s + case.duration_s:
        raise UsageError(
            f"{case.data.path}: the trace lasts {lasts_s:.1f} s at this speed,"
            f" warmup and duration {case.warmup_s + case.duration_s:g} s",
            hint="shorten duration, lower speed, or leave duration out to replay all of it",
        )
    return case
