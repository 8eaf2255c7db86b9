"""Results of GPUStack's benchmarks as its API tells them: each point carries a GuideLLM report of its own (`raw_metrics`).

Source: gpustack 2.3.0, gpustack/routes/benchmarks.py, gpustack/schemas/benchmark.py.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec.structs import replace

from bench.errors import UsageError
from bench.imported import ImportedResult
from bench.importers import guidellm
from bench.importers.contradictions import contradictions
from bench.importers.node import BadFile, Node
from bench.importers.reading import identity


def read_point(benchmark: Any, point: Any, where: str) -> ImportedResult | None:
    """One point of `GET /v2/benchmarks/{id}/results`, with what `GET /v2/benchmarks/{id}` says of all of them; None for a point
    without measurements. `where`: what it is called in messages and in the table. Raises: UsageError (a value that can't be).
    """
    about, one = Node(benchmark, f"{where}: $"), Node(point, f"{where}: $")
    try:
        raw = one.at("raw_metrics")
        if not (raw.is_object() and raw.at("metrics").is_object()):
            return None
        # the server's own stamps change when a row is written again; what was measured does not
        told = json.dumps([about.at("id").count(), one.at("input_tokens").number(), point["raw_metrics"]], sort_keys=True)
        sha256 = hashlib.sha256(told.encode()).hexdigest()
        read = guidellm.read(Node({}), raw, identity(where, sha256, one.at("sequence").count() or 0))
        return replace(read, tool="gpustack", **_about(about), notes=(*_notes(about, one), *contradictions(read)))
    except BadFile as error:
        raise UsageError(str(error), hint=error.hint) from error


def _about(benchmark: Node) -> dict[str, Any]:
    instance = benchmark.at("snapshot.instances")
    served = next(iter(instance.fields().values()), None) if instance.is_object() else None
    engine = Node(served, f"{instance.where}[0]")
    return {
        "model": benchmark.at("model_name").text(),
        "engine": engine.at("backend").text(),
        "engine_version": engine.at("backend_version").text(),
        "device": benchmark.at("gpu_summary").text(),
    }


def _notes(benchmark: Node, point: Node) -> list[str]:
    names = ("name", "state", "state_message", "target_mode", "dataset_name", "profile")
    told = ((name, benchmark.at(name).text()) for name in names)
    notes = [f"{name} {text}" for name, text in told if text]
    early = point.at("raw_metrics.termination.reason").text()
    if early not in (None, "max_requests"):
        notes.append(f"stopped early by {early}")
    return [*notes, *impossible(point)]


def impossible(point: Node) -> list[str]:
    """What the numbers of a point contradict: no server gives more tokens than its requests in flight take in at their TPOT."""
    output = point.at("output_tokens_per_second_mean").number()
    in_flight, tpot_ms = point.at("request_concurrency_max").number(), point.at("inter_token_latency_mean").number()
    if not output or not in_flight or not tpot_ms:
        return []
    most = in_flight * 1000.0 / tpot_ms
    if output <= 2 * most:
        return []
    return [
        f"impossible: {output:g} tok/s, but {in_flight:g} requests in flight at a TPOT of {tpot_ms:g} ms give {most:g} at most"
    ]
