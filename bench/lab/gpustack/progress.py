"""How far a benchmark has come, told to a GPUStack server: `PATCH {url}` with a bearer token and `{"progress": 0..100}`.

The measurement waits for no answer: reports go out in a thread of their own, the newest one only. A failure is a warning.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bench.clock import SYSTEM, Clock
from bench.errors import UsageError
from bench.ports import Observer
from bench.records import LoadProgress, TrialRecord
from bench.units import NS_PER_S

_EVERY_S = 1.0
_EVERY_POINTS = 2.0
_TIMEOUT_S = 30.0
_LAST_WAIT_S = 10.0
"""How long the end of a run waits for its last report to go out."""
_DONE = 100.0


class ProgressReporter:
    """Sends progress while its `with` block lasts, and whatever came last before it ends. Never raises for a server's fault."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        warn: Callable[[str], None],
        ca_cert: str | None = None,
        insecure: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        """`ca_cert`: file of the authorities for this connection alone. `insecure`: verify nothing, whatever `ca_cert` says.

        Raises: UsageError (no URL, no such authorities).
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError("--progress-url must begin with http:// or https://")
        self._url, self._token, self._warn, self._clock = url, token, warn, clock
        self._opener = urllib.request.build_opener(
            _NoRedirect(), urllib.request.HTTPSHandler(context=_context(ca_cert, insecure))
        )
        self._warned: set[str] = set()
        self._told: tuple[float, int] | None = None
        self._next: float | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._send_all, name="gpustack-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WAIT_S)

    def tell(self, percent: float) -> None:
        """Report `percent`, unless the last report was less than a second and less than two points ago; 100 always goes out."""
        now_ns = self._clock.monotonic_ns()
        with self._changed:
            if self._told is not None and percent < _DONE:
                points, since_s = percent - self._told[0], (now_ns - self._told[1]) / NS_PER_S
                if points < 0 or (since_s < _EVERY_S and points < _EVERY_POINTS):
                    return
            self._told = (percent, now_ns)
            self._next = percent
            self._changed.notify()

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._closing)
                percent, self._next = self._next, None
            if percent is None:
                return
            self._send(percent)

    def _send(self, percent: float) -> None:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        body = json.dumps({"progress": percent}).encode()
        request = urllib.request.Request(self._url, body, headers, method="PATCH")  # noqa: S310 - the scheme is checked above
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S):
                pass
        except urllib.error.HTTPError as error:
            with error:
                self._warn_once(f"the server answers {error.code}")
        except (OSError, http.client.HTTPException, UnicodeError, ValueError) as error:
            self._warn_once(str(getattr(error, "reason", error)) or type(error).__name__)

    def _warn_once(self, why: str) -> None:
        why = why.replace(self._token, "***") if self._token else why
        if why not in self._warned:
            self._warned.add(why)
            self._warn(f"progress could not be reported: {why}; the benchmark goes on")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for this server alone."""

    def redirect_request(self, *_: object) -> None:
        return None


def _context(ca_cert: str | None, insecure: bool) -> ssl.SSLContext:
    if insecure:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=ca_cert)
    except OSError as error:
        raise UsageError(f"--progress-ca-cert {ca_cert} can't be read: {error.strerror or error}") from error


class ReportingObserver:
    """Passes everything on to another observer, and tells `tell` how many per cent of `trials` are done. `on_trial` gets each
    ended trial before it counts.
    """

    def __init__(
        self, seen: Observer, trials: int, tell: Callable[[float], None], on_trial: Callable[[TrialRecord], None]
    ) -> None:
        self._seen, self._trials, self._tell, self._on_trial = seen, trials, tell, on_trial
        self._done = 0
        self.expected: int | None = None
        """Requests of the trial under way, where it ends by their number."""

    def phase(self, name: str, detail: str = "") -> None:
        self._seen.phase(name, detail)

    def bytes_done(self, what: str, done: int, total: int | None) -> None:
        self._seen.bytes_done(what, done, total)

    def load(self, progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> None:
        self._seen.load(progress, power_w, seconds_left)
        self._say(self._share(progress, seconds_left))

    def trial_done(self, record: TrialRecord) -> None:
        self._seen.trial_done(record)
        self._on_trial(record)
        self._done += 1
        self._say(0.0)

    def note(self, message: str) -> None:
        self._seen.note(message)

    def _share(self, progress: LoadProgress, seconds_left: float | None) -> float:
        if progress.phase == "drain":
            return 1.0
        if self.expected:
            return min(1.0, (progress.completed + progress.failed) / self.expected)
        if seconds_left is None or progress.phase == "warmup":
            return 0.0
        return progress.elapsed_s / max(progress.elapsed_s + seconds_left, 1e-9)

    def _say(self, share: float) -> None:
        """Below 100: that is said once the reports are written."""
        self._tell(min(99.0, 100.0 * (self._done + share) / max(self._trials, 1)))
