"""What another tool measured, as it is kept here: beside our own trials, never among them.

Its numbers stand under our names so that they can be found, with what is not as ours said of each. What a tool does not say is
None, and its reason is said.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SCHEMA_VERSION = 1
Tool = Literal["vllm-bench", "guidellm", "aiperf", "llama-bench", "gpustack"]


class ImportedMetric(Struct, frozen=True, kw_only=True):
    """One metric of ours as a tool tells it, in the unit of our table. `key`: where its file has it, None where nothing there is
    like it (`reason` says so). `differs`: what is not as in our definition.
    """

    name: str
    unit: str
    key: str | None = None
    differs: str | None = None
    value: float | None = None
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    n: int | None = None
    reason: str | None = None


class ImportedResult(Struct, frozen=True, kw_only=True):
    """One measured point of a file of another tool. `import_id` follows from the file's bytes and the place in it, so that the
    same file is imported once. Lengths are means in tokens; `started_at` as the file has it, `window_s` the time that its
    throughput is over.
    """

    schema_version: int = SCHEMA_VERSION
    source: Literal["imported"] = "imported"
    import_id: str
    tool: Tool
    tool_version: str | None = None
    file: str
    file_sha256: str
    place: int
    imported_at: str
    bench_version: str
    started_at: str | None = None
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    device: str | None = None
    load: str | None = None
    batch_size: float | None = None
    request_rate: float | None = None
    num_prompts: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    requests_ok: int | None = None
    requests_failed: int | None = None
    window_s: float | None = None
    metrics: tuple[ImportedMetric, ...] = ()
    notes: tuple[str, ...] = ()
