"""Events and readings to metrics, energy and validity. Pure."""

from bench.timing.spec import SPECS, MetricSpec
from bench.timing.trial import measure

__all__ = ["SPECS", "MetricSpec", "measure"]
