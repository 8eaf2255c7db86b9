"""JSON reports of GuideLLM, also those of GPUStack's benchmark runner, which are of that shape.

Source: guidellm/benchmark/schemas/metrics.py and schemas/base/request_stats.py of GuideLLM 0.8;
gpustack/worker/schemas/benchmark_runner.py of GPUStack 2.3.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bench.imported import ImportedResult
from bench.importers.dialect import Dialect, Key
from bench.importers.node import Node

_LATEST_S = 253_402_300_799.0
"""The last second of the year 9999."""
_MEAN = "mean over the job less its warm-up and cool-down, weighted by time"

DIALECT = Dialect(
    tool="guidellm",
    scalar="{}.successful.mean",
    spread={
        "mean": "{}.successful.mean",
        "p50": "{}.successful.percentiles.p50",
        "p90": "{}.successful.percentiles.p90",
        "p99": "{}.successful.percentiles.p99",
        "n": "{}.successful.count",
    },
    keys=(
        Key(name="output_tok_per_s", key="output_tokens_per_second", differs=f"{_MEAN}; requests that succeeded"),
        Key(name="input_tok_per_s", key="prompt_tokens_per_second", differs=f"{_MEAN}; requests that succeeded"),
        Key(name="total_tok_per_s", key="tokens_per_second", differs=f"{_MEAN}; requests that succeeded"),
        Key(name="requests_per_s", key="requests_per_second", differs=_MEAN),
        Key(name="goodput_rps", key="request_goodput", differs=f"{_MEAN}; a request with an unknown criterion is left out"),
        Key(name="in_flight_mean", key="request_concurrency", differs="only requests that succeeded"),
        Key(name="ttft_ms", key="time_to_first_token_ms", differs="requests whose first token lies in the time that is measured"),
        Key(
            name="tpot_ms",
            key="inter_token_latency_ms",
            differs="(last token - first token) / (n - 1), weighted by tokens; the first chunk counts as one",
        ),
        Key(name="icl_ms", key="inter_token_latency_per_chunk_ms", differs="of GPUStack's runner only"),
        Key(name="e2e_ms", key="request_latency", scale=1000.0, differs="in seconds there; ends when the reply has ended"),
        Key(name="output_tokens", key="output_token_count", differs="the server's usage, else chunks"),
        Key(name="input_tokens", key="prompt_token_count", differs="the server's usage, else the client's tokenizer"),
    ),
    no_equal={
        "time_per_output_token_ms": "(last token - start) / n: the time to the first token is in it",
        "tokens_per_second percentiles": "made of token times that are spread evenly between first and last",
        "request_streaming_iterations_count": "server-sent events, empty ones too",
        "iter_tokens_per_iteration": "tokens a chunk without the first",
    },
    lacks={"itl_ms": "guidellm keeps no time of each token: see tpot_ms"},
)


def is_one(node: Node) -> bool:
    """Whether this object is such a report."""
    if not (node.is_object() and node.at("benchmarks").is_array()):
        return False
    return all(one.is_object() and one.at("metrics").is_object() for one in node.at("benchmarks").items())


def read(report: Node, one: Node, identity: dict[str, Any]) -> ImportedResult:
    """One benchmark of a report. Raises: BadFile."""
    metrics, strategy = one.at("metrics"), one.at("config.strategy")
    totals, kind = metrics.at("request_totals"), strategy.at("type_").text()
    return ImportedResult(
        **identity,
        tool="guidellm",
        tool_version=report.at("metadata.guidellm_version").text(),
        started_at=_date(one.at("start_time")),
        model=report.at("config.spec.backend.model").text(),
        load="open" if kind in ("constant", "poisson") else "closed" if kind == "concurrent" else kind,
        batch_size=strategy.at("streams").number(),
        request_rate=strategy.at("rate").number(),
        num_prompts=totals.at("total").count(),
        input_tokens=metrics.at("prompt_token_count.successful.mean").number(),
        output_tokens=metrics.at("output_token_count.successful.mean").number(),
        requests_ok=totals.at("successful").count(),
        requests_failed=totals.at("errored").count(),
        window_s=one.at("duration").number(),
        metrics=DIALECT.metrics(metrics),
    )


def _date(node: Node) -> str | None:
    seconds = node.number()
    if seconds is None:
        return None
    if seconds > _LATEST_S:
        raise node.refused("not a date in seconds")
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
