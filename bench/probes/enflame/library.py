"""libefml.so: which of its two interfaces speaks here.

Source: `efml.h` 1.2.3.5. They have return codes of their own and give power in different units. Only one is started: what both at
once would do is documented nowhere.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from pathlib import Path

from bench.errors import ProbeError
from bench.probes import native
from bench.probes.enflame.next import Next
from bench.probes.enflame.old import Old
from bench.probes.native import Codes
from bench.probes.values import Unavailable, attempt

LIBRARY = "BENCH_EFML_LIBRARY"
"""Environment: path of the library to load, and no other."""
_NAMES = ("libefml.so", "libefml.so.1", "/usr/lib/libefml.so")
_INSTALLED = Path("/usr/local/efsmi")


def load(env: Mapping[str, str]) -> Next | Old:
    """The library, started. Raises: Unavailable with what was tried."""
    installed = [str(path) for path in sorted(_INSTALLED.glob("*/lib/libefml.so*"))]
    named = env.get(LIBRARY)
    library = native.load([named] if named else [*_NAMES, *installed], Codes(names={}))
    _ignore_its_signals()
    why: list[str] = []
    for kind in (Next, Old):
        try:
            return _with_cards(kind.started(library))
        except (Unavailable, ProbeError) as error:
            why.append(str(error))
    raise Unavailable("; ".join(why), lasting=True)


def _with_cards(api: Next | Old) -> Next | Old:
    """The next interface does not list the cards of older generations."""
    many, why, _ = attempt(api.count)
    if not many:
        api.close()
        raise Unavailable(why or "the library lists no card", lasting=True)
    return api


def _ignore_its_signals() -> None:
    """It sends itself SIGUSR1 and SIGUSR2, which end a process that does not expect them (so the vendor's exporter does it)."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.SIG_IGN)
