"""Moore Threads GPUs through `mthreads-gmi`: the last way, where the library tells no power, and what selftest compares with."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from bench.probes.command import output
from bench.probes.mthreads.layouts import devices
from bench.probes.tool import Read, first_form

_FORMS = (("-q", "--json"), ("-q",), ())
"""Best first. Older tools know no JSON; the table, without options, tells no power."""


def find(env: Mapping[str, str]) -> Read | None:
    """Asks the tool on the path for every device; None where it is not installed."""
    path = shutil.which("mthreads-gmi", path=env.get("PATH"))
    return None if path is None else first_form(_FORMS, lambda options: devices(output([path, *options])))
