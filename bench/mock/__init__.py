"""A mock engine with an exact schedule, and its own truth.

`start(ttft_ms=50, gap_ms=20, quirks=("usage-late=500",))` runs one in a process of its own.
"""

from bench.mock.launch import MockServer, start
from bench.mock.options import MockOptions
from bench.mock.truth import Spread, Truth

__all__ = ["MockOptions", "MockServer", "Spread", "Truth", "start"]
