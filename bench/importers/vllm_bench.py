"""JSON of `vllm bench serve --save-result` (or `--append-result`: one object a line).

Source: vllm/benchmarks/serve.py and lib/endpoint_request_func.py of vLLM 0.32.
"""

from __future__ import annotations

from typing import Any

from bench.imported import ImportedResult
from bench.importers.dialect import Dialect, Key
from bench.importers.node import Node

_WHOLE_JOB = "over the whole job, its ramp-up and drain included"

DIALECT = Dialect(
    tool="vllm-bench",
    scalar="{}",
    spread={"mean": "mean_{}_ms", "p50": "median_{}_ms", "p90": "p90_{}_ms", "p99": "p99_{}_ms"},
    keys=(
        Key(name="output_tok_per_s", key="output_throughput", differs=f"{_WHOLE_JOB}; only tokens of requests that succeeded"),
        Key(name="total_tok_per_s", key="total_token_throughput", differs=f"{_WHOLE_JOB}; only requests that succeeded"),
        Key(name="requests_per_s", key="request_throughput", differs=_WHOLE_JOB),
        Key(name="goodput_rps", key="request_goodput", differs=f"{_WHOLE_JOB}; a TPOT of one token counts as 0, so as met"),
        Key(name="ttft_ms", key="ttft", differs="ends at the first chunk with choices, even one of no text"),
        Key(name="tpot_ms", key="tpot", differs="(E2E - TTFT) / (n - 1): the first chunk counts as one token"),
        Key(name="icl_ms", key="itl", differs="gaps between chunks with choices, those of no text too; called ITL there"),
        Key(name="e2e_ms", key="e2el", differs="ends at the last chunk with choices, even one of no text"),
    ),
    no_equal={
        "max_output_tokens_per_s": "a count of chunks in the best second",
        "max_concurrent_requests": "requests that touch the busiest second",
        "mean_client_queue_time_ms": "time in the client before a request is sent",
        "rtfx": "audio",
    },
    lacks={
        "itl_ms": "vllm-bench times chunks, not tokens: see icl_ms",
        "input_tok_per_s": "vllm-bench tells the sum of input and output tokens only: see total_tok_per_s",
    },
)


def is_one(node: Node) -> bool:
    """Whether this object is such a result."""
    names = ("completed", "output_throughput", "total_token_throughput", "request_throughput")
    return node.is_object() and all(node.at(name).is_number() for name in names)


def read(node: Node, identity: dict[str, Any]) -> ImportedResult:
    """One result. Raises: BadFile."""
    completed, limit = node.at("completed").count(), node.at("max_concurrency").count()
    spoken = node.at("backend").text()
    rate = None if node.at("request_rate").is_text("inf") else node.at("request_rate").number()
    return ImportedResult(
        **identity,
        tool="vllm-bench",
        started_at=node.at("date").text(),
        model=node.at("model_id").text(),
        load="open" if rate is not None else "closed" if limit is not None else "burst",
        batch_size=limit,
        request_rate=rate,
        num_prompts=node.at("num_prompts").count(),
        input_tokens=_each(node.at("total_input_tokens").number(), completed),
        output_tokens=_each(node.at("total_output_tokens").number(), completed),
        requests_ok=completed,
        requests_failed=node.at("failed").count(),
        window_s=node.at("duration").number(),
        metrics=DIALECT.metrics(node),
        notes=("started_at is the job's end by the client's own clock", *((f"protocol {spoken}",) if spoken else ())),
    )


def _each(total: float | None, requests: int | None) -> float | None:
    return total / requests if total is not None and requests else None
