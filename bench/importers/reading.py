"""A file of another tool: which one wrote it, and what it holds. Every doubt is a reason to refuse it, never a crash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench import __version__, clock
from bench.errors import UsageError
from bench.identity import digest
from bench.imported import ImportedResult
from bench.importers import aiperf, guidellm, llama_bench, vllm_bench
from bench.importers.contradictions import contradictions
from bench.importers.node import BadFile, Node
from bench.units import format_bytes

LIMIT_B = 128 << 20
_MODULES = {"vllm-bench": vllm_bench, "guidellm": guidellm, "aiperf": aiperf, "llama-bench": llama_bench}
FORMATS = tuple(_MODULES)
_MOST_RESULTS = 10_000


def read_file(path: Path, tool: str | None = None) -> list[ImportedResult]:
    """The results in `path`; `tool`: one of `FORMATS`, else it is told from the content.

    Raises: UsageError (can't be read, no such format, a value that can't be, with its place in the file).
    """
    data = _bytes(path)
    try:
        documents = list(_documents(data))
        tool = tool or _recognised(documents)
        return list(_results(documents, tool, path.name, hashlib.sha256(data).hexdigest()))
    except BadFile as error:
        raise UsageError(f"{path}: {error}", hint=error.hint) from error


def _bytes(path: Path) -> bytes:
    try:
        size_b = path.stat().st_size
        if not path.is_file():
            raise UsageError(f"{path} is no plain file", hint="write it to a file first")
        if size_b > LIMIT_B:
            raise UsageError(
                f"{path} is {format_bytes(size_b)}, more than {format_bytes(LIMIT_B)}",
                hint="give the summary, without raw requests",
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error


def _documents(data: bytes) -> Iterator[Node]:
    """The JSON value of a file, or those of its lines. Raises: BadFile."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"it is not UTF-8 at byte {error.start}") from error
    try:
        yield Node(_parsed(text))
    except json.JSONDecodeError as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        if whole.msg != "Extra data" or len(lines) < 2:
            raise BadFile(f"it is not JSON: {whole}") from whole
        for number, line in lines:
            try:
                yield Node(_parsed(line), f"line {number}: $")
            except json.JSONDecodeError as error:
                raise BadFile(f"line {number} is not JSON: {error}") from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise BadFile("it is nested too deeply") from error
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise BadFile(f"it is not JSON that can be read: {error}") from error


def _flat(documents: list[Node]) -> list[Node]:
    """Objects, out of the arrays that they may stand in."""
    return [one for document in documents for one in (document.items() if document.is_array() else [document])]


def _recognised(documents: list[Node]) -> str:
    """The only format that fits. Raises: BadFile."""
    objects = _flat(documents)
    if any(one.is_object() and one.at("tokjoule").is_object() for one in objects):
        raise BadFile("it is an export of bench itself", hint="bring in the shards that it was made of: bench ingest FOLDER")
    fitting = [tool for tool, module in _MODULES.items() if objects and all(map(module.is_one, objects))]
    if len(fitting) != 1:
        told = f"it could be of {' or '.join(fitting)}" if fitting else "it is of no tool that is known here"
        raise BadFile(told, hint=f"--from says what wrote it: {', '.join(FORMATS)}")
    return fitting[0]


def _results(documents: list[Node], tool: str, file: str, sha256: str) -> Iterator[ImportedResult]:
    """Raises: BadFile."""
    points = list(_points(documents, tool))
    if not points:
        raise BadFile("it holds no result")
    if len(points) > _MOST_RESULTS:
        raise BadFile(f"it holds {len(points)} results, more than {_MOST_RESULTS}")
    for place, (report, point) in enumerate(points):
        known = identity(file, sha256, place)
        one = guidellm.read(report, point, known) if tool == "guidellm" else _MODULES[tool].read(point, known)
        yield replace(one, notes=(*one.notes, *contradictions(one)))


def _points(documents: list[Node], tool: str) -> Iterator[tuple[Node, Node]]:
    for one in _flat(documents):
        if tool == "guidellm":
            yield from ((one, benchmark) for benchmark in one.at("benchmarks").items())
        else:
            yield one, one


def identity(file: str, sha256: str, place: int) -> dict[str, Any]:
    """What every imported result has, whatever its tool is: `place` is its own in the file."""
    return {
        "import_id": digest([sha256, place]),
        "file": file[:255].encode("utf-8", "replace").decode(),
        "file_sha256": sha256,
        "place": place,
        "imported_at": clock.iso_utc(clock.SYSTEM.wall_ns()),
        "bench_version": __version__,
    }
