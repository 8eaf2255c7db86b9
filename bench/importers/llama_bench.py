"""`llama-bench -o json` and `-o jsonl`: one object a test, of one sequence of exact token ids and no client at all.

Source: tools/llama-bench/README.md and llama-bench.cpp of llama.cpp.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from bench.imported import ImportedResult
from bench.importers.dialect import Dialect, Key
from bench.importers.node import BadFile, Node
from bench.units import NS_PER_S

_BARE = "one sequence without server, client or sampling; mean of the repetitions"


def _dialect(name: str, differs: str) -> Dialect:
    return Dialect(
        tool="llama-bench",
        scalar="{}",
        spread={"p50": "{}"},
        keys=(Key(name=name, key="avg_ts", differs=differs),),
        no_equal={"avg_ns": "the time of one repetition", "stddev_ts": "the spread of the repetitions"},
        lacks=dict.fromkeys(
            ("ttft_ms", "tpot_ms", "icl_ms", "itl_ms", "e2e_ms", "requests_per_s", "goodput_rps"), "llama-bench sends no requests"
        ),
    )


PROMPT = _dialect("input_tok_per_s", f"prompt processing (n_gen 0): {_BARE}")
GENERATION = _dialect("output_tok_per_s", f"generation (n_prompt 0): {_BARE}")
BOTH = _dialect("total_tok_per_s", f"prompt and generation (-pg): {_BARE}")


def is_one(node: Node) -> bool:
    """Whether this object is such a test."""
    return node.is_object() and all(node.at(name).is_number() for name in ("n_prompt", "n_gen", "avg_ts"))


def read(node: Node, identity: dict[str, Any]) -> ImportedResult:
    """One test. Raises: BadFile."""
    prompt, generated = node.at("n_prompt").count(), node.at("n_gen").count()
    if not prompt and not generated:
        raise BadFile(f"{node.where} has neither prompt nor generation")
    dialect = BOTH if prompt and generated else PROMPT if prompt else GENERATION
    file, depth = node.at("model_filename").text(), node.at("n_depth").count()
    samples = [sample.number() for sample in node.at("samples_ts").items()]
    told = (
        (f"{len(samples)} repetitions: {', '.join(f'{one:g}' for one in samples if one is not None)} tok/s",) if samples else ()
    )
    return ImportedResult(
        **identity,
        tool="llama-bench",
        tool_version=node.at("build_commit").text(),
        started_at=node.at("test_time").text(),
        model=PurePosixPath(file.replace("\\", "/")).name if file else node.at("model_type").text(),
        engine="llamacpp",
        engine_version=node.at("build_commit").text(),
        device=node.at("gpu_info").text() or node.at("cpu_info").text(),
        load="closed",
        batch_size=1,
        input_tokens=prompt,
        output_tokens=generated,
        window_s=_seconds(node.at("avg_ns").number()),
        metrics=dialect.metrics(node),
        notes=(*told, *((f"after a context of {depth} tokens (n_depth)",) if depth else ())),
    )


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
