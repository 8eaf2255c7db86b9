"""asv's and Apache Otava's detectors on series of one number a night, asked anew each night. Run by a Python that has both:

    python other_detectors.py < series.json

In: an array of series, each an array of throughputs, judged from `LEAD_IN` on over the last `KEEP` nights. Out: for each
detector, for each series, the nights on which it raised an alarm.
"""

from __future__ import annotations

import json
import sys

LEAD_IN, KEEP = 60, 100
_NEAR = 3
"""A change point this near to one that was told is the same."""


def otava_alarms(values: list[float]) -> list[int]:
    """Nights on which a change for the worse of any size is reported that was not reported before; Otava's default options."""
    from otava.analysis import compute_change_points  # type: ignore[import-not-found]

    told: list[int] = []
    alarms = []
    for night in range(LEAD_IN, len(values)):
        first = max(0, night + 1 - KEEP)
        found, _ = compute_change_points(values[first : night + 1])
        for point in found:
            at = first + point.index
            if point.stats.forward_rel_change() >= 0 or at < LEAD_IN - KEEP or any(abs(at - old) <= _NEAR for old in told):
                continue
            told.append(at)
            if at >= LEAD_IN - 1:
                alarms.append(night)
    return alarms


def asv_alarms(values: list[float]) -> list[int]:
    """Nights on which asv's `detect_regressions` begins to report one, with the threshold of 5% that `asv publish` has."""
    from asv.step_detect import detect_regressions, detect_steps  # type: ignore[import-not-found]

    alarms: list[int] = []
    stands = False
    for night in range(LEAD_IN, len(values)):
        seconds = [1000.0 / value for value in values[max(0, night + 1 - KEEP) : night + 1]]  # asv wants less to be better
        found = detect_regressions(detect_steps(seconds), threshold=0.05)
        is_worse = found[2] is not None and len(found[2]) > 0
        if is_worse and not stands:
            alarms.append(night)
        stands = is_worse
    return alarms


if __name__ == "__main__":
    series = json.load(sys.stdin)
    detectors = {"otava": otava_alarms, "asv": asv_alarms}
    json.dump({name: [detect(values) for values in series] for name, detect in detectors.items()}, sys.stdout)
