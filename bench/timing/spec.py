"""Every metric of the lab in one table, and the ways to make a `Metric` from it. Long because it is a table.

Adding a metric is one row here and one function that computes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bench.records import BOARD_SCOPES, Metric

Better = Literal["up", "down"]
_Row = tuple[str, str, Better | None, bool, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """What a metric is. `better`: which way is good, None where neither is. `gated`: takes part in regression gates."""

    name: str
    unit: str
    kind: Literal["scalar", "distribution"]
    better: Better | None
    gated: bool
    definition: str
    formula: str
    undefined_when: str

    @property
    def signed(self) -> bool:
        """Whether it may be below 0: what is left above another energy, and a share of change."""
        return "_net" in self.name or self.name == "ppl_delta"


_LATENCY_ROWS = (
    ("ttft_ms", "ms", True, "time to first token", "first content chunk - sent", "no content"),
    (
        "ttft_scheduled_ms",
        "ms",
        True,
        "time to first token, client queueing included",
        "first content chunk - scheduled",
        "closed loop",
    ),
    ("ttfat_ms", "ms", False, "time to first answer token", "first chunk that is not reasoning - sent", "no answer"),
    (
        "tpot_ms",
        "ms",
        True,
        "time per output token after the first",
        "(last content - first content) / (n_out - k1)",
        "n_out <= k1, no token count, hidden reasoning, all in one read",
    ),
    ("icl_ms", "ms", False, "inter-chunk latency", "gap between consecutive content chunks", "fewer than two chunks"),
    ("itl_ms", "ms", False, "inter-token latency", "gap / k, weighted by k", "tokens per chunk unknown and chunks != tokens"),
    ("e2e_ms", "ms", False, "end-to-end latency", "last content chunk - sent", "no content"),
    (
        "ttft_adjusted_ms",
        "ms",
        False,
        "TTFT with failures at +inf",
        "as ttft_ms over the whole population, inverted_cdf",
        "the quantile falls on a failure",
    ),
    (
        "ttft_scheduled_adjusted_ms",
        "ms",
        False,
        "scheduled TTFT with failures at +inf",
        "as ttft_scheduled_ms over the whole population, inverted_cdf",
        "closed loop; the quantile falls on a failure",
    ),
    (
        "e2e_adjusted_ms",
        "ms",
        False,
        "end-to-end latency with failures at +inf",
        "as e2e_ms over the whole population, inverted_cdf",
        "the quantile falls on a failure",
    ),
)

_PER_REQUEST_ROWS: tuple[tuple[str, str, Better | None, str, str, str], ...] = (
    ("tok_per_s_per_user", "tok/s", "up", "streaming speed that one user sees", "1000 / tpot_ms", "as tpot_ms"),
    (
        "tokens_per_chunk",
        "tok",
        None,
        "tokens in a content chunk, per request",
        "tokens delivered / content chunks",
        "no token count",
    ),
    (
        "output_tokens",
        "tok",
        None,
        "tokens generated per request",
        "server usage, else token ids, else its text",
        "no token count",
    ),
    ("input_tokens", "tok", None, "prompt tokens per request as the server counts them", "server usage", "no usage"),
)

_LOAD_ROWS: tuple[_Row, ...] = (
    (
        "output_tok_per_s",
        "tok/s",
        "up",
        True,
        "output throughput",
        "tokens with event time in the window / T",
        "no token count, no token in the window",
    ),
    (
        "input_tok_per_s",
        "tok/s",
        "up",
        False,
        "prompt throughput",
        "prompt tokens of requests whose first content is in the window / T",
        "no usage",
    ),
    ("total_tok_per_s", "tok/s", "up", False, "prompt and output throughput", "input_tok_per_s + output_tok_per_s", "either is"),
    (
        "requests_per_s",
        "1/s",
        "up",
        False,
        "completed requests per second (QPS)",
        "successes closed in the window / T",
        "no window",
    ),
    (
        "request_rate_asked_rps",
        "1/s",
        None,
        False,
        "requests per second that were due",
        "requests due in the window / T; whole job: (n - 1) / from first due to last",
        "closed loop, all due at once, no request",
    ),
    (
        "request_rate_sent_rps",
        "1/s",
        None,
        False,
        "requests per second that went out",
        "requests sent in the window / T; whole job: (n - 1) / from first sent to last",
        "closed loop, all sent at once, no request",
    ),
    (
        "goodput_rps",
        "1/s",
        "up",
        False,
        "requests per second that meet every SLO",
        "requests of the population within all limits / T",
        "no SLO, or a limit that can't be judged",
    ),
    (
        "error_share",
        "share",
        "down",
        False,
        "failed share of the population",
        "requests neither OK nor cut off by us / population",
        "no request",
    ),
    ("unfinished_share", "share", "down", False, "share cut off when the grace ended", "cancelled / population", "no request"),
    (
        "in_flight_mean",
        "1",
        None,
        False,
        "requests in flight, time average (Little's L)",
        "sum of overlaps of [sent, closed) with the window / T",
        "no request",
    ),
    (
        "prefix_cache_hit_share",
        "share",
        None,
        False,
        "prompt tokens served from a prefix cache",
        "cached / prompt tokens, counters before and after, else usage",
        "no counter, no usage detail",
    ),
    (
        "kv_cache_util_mean",
        "share",
        None,
        False,
        "KV cache in use, time average",
        "from the engine's own metrics",
        "engine has none",
    ),
    ("kv_cache_util_peak", "share", None, False, "KV cache in use, highest", "from the engine's own metrics", "engine has none"),
)

_ENGINE_ROWS: tuple[_Row, ...] = (
    (
        "requests_running_mean",
        "1",
        None,
        False,
        "requests that the engine works on",
        "mean of its gauge, asked each second",
        "as above",
    ),
    (
        "requests_waiting_mean",
        "1",
        None,
        False,
        "requests that wait in the engine",
        "mean of its gauge, asked each second",
        "as above",
    ),
    ("requests_waiting_peak", "1", None, False, "requests that wait in the engine, most", "largest of its gauge", "as above"),
    (
        "preemptions",
        "1",
        "down",
        False,
        "requests put back for lack of memory",
        "its counter, last before the window to first after it",
        "as above",
    ),
    ("engine_start_s", "s", "down", False, "start of the engine", "launch to the first good health page", "an attached endpoint"),
    ("engine_load_s", "s", "down", False, "loading of the weights", "as the engine logs it", "it does not"),
    (
        "engine_first_token_s",
        "s",
        "down",
        False,
        "first token of all, after the start",
        "good health page to the first token",
        "an attached endpoint",
    ),
)

PER_UNIT = ("", "_same_board", "_net", "_net_same_board")
"""Endings of an energy per unit of work: gross and net, each with its absolute interval and with that of one board."""

_UNITS_OF_WORK = (
    ("j_per_output_tok", "J/tok", True, "output token", "output tokens in the window", "no tokens"),
    ("j_per_total_tok", "J/tok", False, "prompt and output token", "(prompt + output tokens)", "no tokens"),
    ("j_per_request", "J", False, "completed request", "requests completed in the window", "none completed"),
)


def _per_unit_rows() -> Iterable[_Row]:
    """Gross and net energy per unit of work, and the companions of each whose interval leaves out the gain."""
    for base, unit, gated, what, count, nothing in _UNITS_OF_WORK:
        net = "(E - P_resident * T)"
        for name, energy, kind, missing, gate in (
            (base, "E", f"energy per {what}, gross", f"no energy, {nothing}", gated),
            (f"{base}_net", net, f"energy per {what} above the resident idle", "no resident window", False),
        ):
            formula = f"{energy} / {count}"
            yield name, unit, "down", gate, kind, formula, missing
            told = f"as {name}; its interval leaves out the sensor's gain"
            yield f"{name}_same_board", unit, "down", False, told, formula, f"as {name}"


_OUTPUT_ROWS: tuple[_Row, ...] = (
    (
        "top1_agreement",
        "share",
        "up",
        False,
        "greedy tokens that are the reference's",
        "agreed / compared, each answer up to where the two part (docs/correctness.md)",
        "no reference of these weights, an engine that refuses",
    ),
    (
        "ppl_delta",
        "share",
        None,
        False,
        "perplexity of a short text against the reference's",
        "perplexity / that of the reference - 1",
        "as above, no logprobs of a given text",
    ),
)

_DEVICE_ROWS: tuple[_Row, ...] = (
    (
        "memory_before_b",
        "B",
        None,
        False,
        "memory in use before the engine starts",
        "sum over boards of each one's highest in the idle window",
        "no board, no idle window",
    ),
    (
        "memory_loaded_b",
        "B",
        "down",
        False,
        "memory in use with the model loaded and no load",
        "sum over boards (else process trees) of each one's highest in the resident window",
        "no probe, no resident window",
    ),
    (
        "memory_used_peak_b",
        "B",
        "down",
        False,
        "memory in use, highest in the window",
        "sum over boards (else process trees) of each one's peak",
        "no probe",
    ),
    ("memory_reserved_util", "share", None, False, "memory in use over memory there", "sum of peaks / sum of totals", "no total"),
    (
        "cpu_util_mean",
        "share",
        None,
        False,
        "CPU use of the engine's process tree, share of the host",
        "mean over the window",
        "no probe",
    ),
    ("accelerator_util_mean", "share", None, False, "busy share of the boards", "mean over boards and the window", "no probe"),
    (
        "energy_j",
        "J",
        None,
        False,
        "energy of the headline scope",
        "counter difference, else integral of power",
        "see docs/energy.md",
    ),
    (
        "energy_other_j",
        "J",
        None,
        False,
        "the same energy by the method not used",
        "integral of power where the counter is used",
        "one method only, or too few readings",
    ),
    ("energy_net_j", "J", None, False, "energy above the resident idle", "E - P_resident * T", "no resident window"),
    ("power_mean_w", "W", None, False, "mean power of the headline scope", "E / T", "no energy"),
    ("idle_power_w", "W", None, False, "power before the engine starts", "E_idle / T_idle", "no idle window"),
    (
        "resident_power_w",
        "W",
        None,
        False,
        "power with the model loaded and no load",
        "E_resident / T_resident",
        "no resident window",
    ),
    *_per_unit_rows(),
    ("tok_per_j", "tok/J", "up", False, "output tokens per joule", "output tokens in the window / E", "no energy, no tokens"),
    (
        "tok_per_j_same_board",
        "tok/J",
        "up",
        False,
        "as tok_per_j; its interval leaves out the sensor's gain",
        "output tokens in the window / E",
        "as tok_per_j",
    ),
    (
        "wh_per_1000_requests",
        "Wh",
        "down",
        False,
        "energy of a thousand requests",
        "j_per_request * 1000 / 3600",
        "as j_per_request",
    ),
)

_NORMALISED_ROWS: tuple[_Row, ...] = (
    (
        "mfu",
        "share",
        "up",
        False,
        "model FLOP utilisation: arithmetic done over the dense peak",
        "(output tok/s * FLOP at its context + prompt tok/s * FLOP at its) / peak (docs/catalogue.md)",
        "chip or model not known, no prompt count",
    ),
    (
        "mbu",
        "share",
        "up",
        False,
        "memory bandwidth utilisation while it decodes",
        "steps/s * (weights + cache of all sequences) / bandwidth",
        "chip or model not known, nothing streamed",
    ),
    (
        "prefill_roofline_share",
        "share",
        "up",
        False,
        "least time for a prompt alone, over the TTFT that users saw",
        "max(FLOP / peak, weights / bandwidth) / ttft_ms p50",
        "chip or model not known, no TTFT",
    ),
    (
        "decode_roofline_share",
        "share",
        "up",
        False,
        "least time for a step, over the one that it took",
        "max(FLOP / peak, (weights + cache) / bandwidth) / icl_ms mean",
        "chip or model not known, nothing streamed",
    ),
    (
        "tok_per_s_per_tflops",
        "tok/s/TFLOP/s",
        "up",
        False,
        "output throughput per dense TFLOP/s that is rated",
        "output_tok_per_s / peak",
        "chip not known",
    ),
    (
        "tok_per_s_per_tbps",
        "tok/s/TB/s",
        "up",
        False,
        "output throughput per TB/s that is rated",
        "output_tok_per_s / bandwidth",
        "chip not known",
    ),
    (
        "tok_per_s_per_rated_w",
        "tok/s/W",
        "up",
        False,
        "output throughput per watt that is rated",
        "output_tok_per_s / rated power",
        "chip not known",
    ),
)

SCOPES = (*BOARD_SCOPES, "cpu_package", "dram", "node")


def _spec(kind: Literal["scalar", "distribution"], row: _Row) -> MetricSpec:
    name, unit, better, gated, definition, formula, undefined_when = row
    return MetricSpec(
        name=name,
        unit=unit,
        kind=kind,
        better=better,
        gated=gated,
        definition=definition,
        formula=formula,
        undefined_when=undefined_when,
    )


def scope_energy_name(scope: str, quality: str = "measured") -> str:
    """The column of one scope's energy; what is modelled or simulated never shares one with what is measured."""
    return f"energy_{scope}_j" if quality == "measured" else f"energy_{scope}_{quality}_j"


SIMULATED_J_PER_OUTPUT_TOK = "j_per_output_tok_simulated"
"""Of devices that are simulated: never beside what is measured, in no default table, in no gate."""


def _scope_rows() -> Iterable[_Row]:
    for quality in ("measured", "modelled", "simulated"):
        for scope in SCOPES:
            name = scope_energy_name(scope, quality)
            yield name, "J", None, False, f"energy of the scope {scope}, {quality}", "sum over its domains", "a part is missing"
    name = SIMULATED_J_PER_OUTPUT_TOK
    yield name, "J/tok", None, False, "energy per output token of simulated boards", "E / output tokens", "as j_per_output_tok"


def _table() -> dict[str, MetricSpec]:
    latency = [_spec("distribution", (n, unit, "down", gated, d, f, u)) for n, unit, gated, d, f, u in _LATENCY_ROWS]
    per_request = [_spec("distribution", (n, unit, better, False, d, f, u)) for n, unit, better, d, f, u in _PER_REQUEST_ROWS]
    scalars = [
        _spec("scalar", row)
        for row in (*_LOAD_ROWS, *_ENGINE_ROWS, *_OUTPUT_ROWS, *_DEVICE_ROWS, *_NORMALISED_ROWS, *_scope_rows())
    ]
    return {spec.name: spec for spec in (*latency, *per_request, *scalars)}


SPECS: dict[str, MetricSpec] = _table()
"""Every metric by name, in the order in which people read them."""

ENERGY_METRICS = tuple(row[0] for row in _DEVICE_ROWS if row[1] in ("J", "J/tok", "tok/J", "Wh") or row[0] == "power_mean_w")
"""What an invalid energy reason turns into NULL."""

NORMALISED = tuple(row[0] for row in _NORMALISED_ROWS)
"""Measured numbers over those of the catalogue."""

REQUIRED = tuple(name for name in SPECS if not name.endswith(("_modelled_j", "_simulated_j", "_simulated")))
"""Metrics that every trial has, undefined ones with their reason; the rest appear only where there are such devices."""


def undefined(name: str, reason: str, *, n: int = 0) -> Metric:
    """`name` with no number at all, and why."""
    return Metric(name=name, unit=SPECS[name].unit, reason=reason, n=n)


def scalar(
    name: str,
    value: float,
    *,
    low: float | None = None,
    high: float | None = None,
    n: int = 1,
    source: str | None = None,
) -> Metric:
    """`name` as one number with its interval; `n` observations stand behind it."""
    return Metric(name=name, unit=SPECS[name].unit, value=value, low=low, high=high, n=n, source=source)
