"""`profile_export_aiperf.json` of AIPerf.

Source: aiperf/common/models/export_models.py and metrics/types/ of AIPerf 0.13 (export schema 1.4).
"""

from __future__ import annotations

from typing import Any

from bench.imported import ImportedResult
from bench.importers.dialect import Dialect, Key
from bench.importers.node import Node

_WHOLE_JOB = "over the whole job after its warm-up, its ramp-up and drain included"
_COUNTS = "tokens by the client's tokenizer, unless the server's are asked for"

DIALECT = Dialect(
    tool="aiperf",
    scalar="{}.avg",
    spread={"mean": "{}.avg", "p50": "{}.p50", "p90": "{}.p90", "p99": "{}.p99", "n": "{}.count"},
    keys=(
        Key(name="output_tok_per_s", key="output_token_throughput", unit="tokens/sec", differs=f"{_WHOLE_JOB}; {_COUNTS}"),
        Key(name="input_tok_per_s", key="input_token_throughput", unit="tokens/sec", differs=f"{_WHOLE_JOB}; {_COUNTS}"),
        Key(name="total_tok_per_s", key="total_token_throughput", unit="tokens/sec", differs=f"{_WHOLE_JOB}; {_COUNTS}"),
        Key(name="requests_per_s", key="request_throughput", unit="requests/sec", differs=_WHOLE_JOB),
        Key(name="goodput_rps", key="goodput", unit="requests/sec", differs=_WHOLE_JOB),
        Key(name="ttft_ms", key="time_to_first_token", unit="ms", differs="every request of the job; the event is ours"),
        Key(name="ttfat_ms", key="time_to_first_output_token", unit="ms", differs="every request of the job; the event is ours"),
        Key(
            name="tpot_ms",
            key="inter_token_latency",
            unit="ms",
            differs=f"(E2E - TTFT) / (n - tokens of the first chunk, else 1), called ITL there; {_COUNTS}",
        ),
        Key(name="icl_ms", key="inter_chunk_latency", unit="ms", differs="every request of the job; the event is ours"),
        Key(name="e2e_ms", key="request_latency", unit="ms", differs="every request of the job; the event is ours"),
        Key(
            name="tok_per_s_per_user",
            key="output_token_throughput_per_user",
            unit="tokens/sec/user",
            differs=f"1 / its ITL; {_COUNTS}",
        ),
        Key(name="output_tokens", key="output_sequence_length", unit="tokens", differs=_COUNTS),
        Key(name="input_tokens", key="input_sequence_length", unit="tokens", differs=_COUNTS),
    ),
    no_equal={
        "time_to_second_token": "the gap after the first chunk",
        "effective_latency": "with the wait in the client",
        "effective_concurrency": "requests that its scheduler holds",
        "telemetry_data": "power and energy of boards over a time that is not that of the throughput",
    },
    lacks={
        "itl_ms": "aiperf times chunks, not tokens: see icl_ms and tpot_ms",
        "j_per_output_tok": "aiperf's energy is over a time that is not that of its throughput",
    },
)


def is_one(node: Node) -> bool:
    """Whether this object is such an export."""
    return node.is_object() and node.at("request_throughput").is_object() and node.at("request_throughput.unit").is_text()


def read(node: Node, identity: dict[str, Any]) -> ImportedResult:
    """One export. Raises: BadFile."""
    phase = next((one for one in node.at("input_config.phases").items() if one.at("name").text() == "profiling"), Node(None))
    model = next(iter(node.at("input_config.models.items").items()), Node(None))
    rate, limit = phase.at("rate").number(), phase.at("concurrency").number()
    told = node.at("incomplete_reason").text()
    cancelled = ("the run was cancelled",) if node.at("was_cancelled").is_set() else ()
    return ImportedResult(
        **identity,
        tool="aiperf",
        tool_version=node.at("aiperf_version").text(),
        started_at=node.at("start_time").text(),
        model=model.at("name").text(),
        load="open" if rate is not None else "closed" if limit is not None else phase.at("type").text(),
        batch_size=limit,
        request_rate=rate,
        num_prompts=phase.at("requests").count(),
        input_tokens=node.at("input_sequence_length.avg").number(),
        output_tokens=node.at("output_sequence_length.avg").number(),
        requests_ok=node.at("request_count.avg").count(),
        requests_failed=node.at("error_request_count.avg").count(),
        window_s=node.at("benchmark_duration.avg").number(),
        metrics=DIALECT.metrics(node),
        notes=(*cancelled, *((f"the run is not complete: {told}",) if told else ())),
    )
