"""The load generator: prompts, arrivals, the wire client and its worker processes, parsing after the fact.

`WireLoad` is the `bench.ports.LoadGenerator`; `recover` reads what a killed run left behind. The rest is for reuse and pure:
`arrival_offsets_s`, `draw_lengths`, `parse_request`, `split_events`, `synthetic_hash`, `worker_count`.
"""

from bench.load.arrivals import arrival_offsets_s
from bench.load.coordinator import WireLoad, worker_count
from bench.load.gather import recover
from bench.load.lengths import draw_lengths
from bench.load.parse import ParsedRequest, parse_request
from bench.load.prompts import synthetic_hash
from bench.load.sse import split_events

__all__ = [
    "ParsedRequest",
    "WireLoad",
    "arrival_offsets_s",
    "draw_lengths",
    "parse_request",
    "recover",
    "split_events",
    "synthetic_hash",
    "worker_count",
]
