"""What to do about each validity code, for somebody who reads of it in a table. Pure."""

from __future__ import annotations

_QUIET = "stop other work on this machine (bench doctor names the busiest), then measure again"
_SENSOR = "bench devices selftest says what the sensor does here; measure again"

REMEDIES: dict[str, str] = {
    "no_window": "give it time for a window: a longer --duration or a shorter --warmup",
    "too_short": "a --duration of at least that, or more --num-prompts",
    "too_few_requests": "a longer --duration, more --num-prompts, or shorter answers (--output-tokens)",
    "errors": "bench table --all says what most of them said; ask for less, or mend the server",
    "unfinished": "a longer --grace, shorter answers (--output-tokens), or fewer requests at once",
    "client_saturated": f"{_QUIET}; bench selfcheck says what load this machine's client follows",
    "server_saturated": f"{_QUIET}, or ask the mock engine for less",
    "not_steady": "a longer --warmup if it was still warming up; fewer requests per second if a queue grew; else see with bench"
    " doctor what else runs here",
    "length_mismatch": "see that the engine honours ignore_eos and has room for the answers; --exact-lengths makes it an error",
    "input_length_mismatch": "see which tokenizer the engine counts with; --exact-lengths makes it an error",
    "prefix_cache_hits": "switch the engine's prefix cache off, or say that it is meant: prefixes, or salt: false, in data",
    "token_counts_disagree": "see that nobody else uses the endpoint, and that it streams all that it generates",
    "prompts_recycled": "more prompts in the data, or a shorter trial",
    "throttled_thermal": "better cooling or a rest before it; bench devices --watch shows the temperature",
    "temperature_drift": "a longer --warmup",
    "foreign_process": "end what else computes on the device: bench devices counts it, the vendor's tool (nvidia-smi) names it",
    "power_coverage": _QUIET,
    "power_gap": "nothing, the interval says it; with less other work on this machine it is narrower",
    "counter_reset": _SENSOR,
    "counter_stuck": _SENSOR,
    "power_methods_disagree": _SENSOR,
    "below_sensor_resolution": "a longer --duration",
    "part_time_sensor": "nothing, the interval says it; a longer --duration and more --repeats make it narrower",
    "aliased": "more --repeats: each meets the sensor at another moment",
    "stream_ended": "the note says why the probe stopped; bench doctor says whether it runs now",
    "shared_device": "measure on a whole device that nobody else uses",
    "silent_precision_fallback": "ask for the precision that the engine runs, or for a device that has the one asked for",
    "wrong_output": "don't use the numbers: find what broke the engine or its weights (docs/correctness.md)",
    "impossible": "don't use the numbers: the note says which one; a server or driver tells what can't be",
}
"""What to do next, by code; every rule has one."""
