"""What went wrong most often, in words for a person, with the server's own words and what to try next. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bench.records import Case, EventLog, Outcome
from bench.timing.population import BoolArray
from bench.unix_url import parse_unix

MAX_QUOTE = 200
NO_WINDOW = "the load ended before the window began"
_WORDS = {
    Outcome.CONNECT: "no connection",
    Outcome.HTTP: "HTTP status other than 200",
    Outcome.STREAM_ERROR: "an error inside the stream",
    Outcome.TRUNCATED: "the answer broke off",
    Outcome.EMPTY: "an empty answer",
    Outcome.PROTOCOL: "an answer that can't be read",
    Outcome.TIMEOUT: "no end within the request timeout",
    Outcome.CANCELLED: "cut off unfinished",
}
_NO_KEY = "name the variable that holds the API key with --api-key-env"
_BY_STATUS: dict[int | None, str] = {
    401: _NO_KEY,
    403: _NO_KEY,
    404: "check --base-url, --model and --protocol",
    429: "ask for less with --batch-size or --request-rate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The most frequent failure among some requests: how often, how, and what was said."""

    count: int
    outcome: Outcome
    http_status: int | None
    said: str | None

    def __str__(self) -> str:
        status = self.http_status if self.http_status is not None and self.http_status != 200 else None
        words = f"HTTP {status}" if self.outcome is Outcome.HTTP and status else _WORDS[self.outcome]
        if not self.said:
            return words
        told = self.outcome is Outcome.HTTP and self.said.startswith("HTTP ")  # the status is in what was said
        return self.said if told else f"{words}: {self.said}"


def most_frequent(log: EventLog, which: BoolArray) -> Failure | None:
    """The most frequent failure of the requests `which`, by outcome and status; of what they said, the most frequent too."""
    rows = [i for i in np.flatnonzero(which).tolist() if log.outcome[i] != Outcome.OK]
    if not rows:
        return None
    kinds = Counter((int(log.outcome[i]), int(log.http_status[i])) for i in rows)
    (outcome, status), count = kinds.most_common(1)[0]
    alike = [i for i in rows if (int(log.outcome[i]), int(log.http_status[i])) == (outcome, status)]
    said = Counter(text for i in alike if (text := quoted(log.error[i])))
    return Failure(
        count=count,
        outcome=Outcome(outcome),
        http_status=status if status > 0 else None,
        said=said.most_common(1)[0][0] if said else None,
    )


def quoted(text: str | None) -> str:
    """What a server said, on one line, printable, no longer than `MAX_QUOTE` characters."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text or "").split())
    return plain if len(plain) <= MAX_QUOTE else f"{plain[: MAX_QUOTE - 3]}..."


def without_window(case: Case, log: EventLog) -> str:
    """Why a load has no window: what its requests came to, and the next step."""
    done = int((log.outcome == Outcome.OK).sum())
    lost = (log.outcome != Outcome.OK) & (log.outcome != Outcome.CANCELLED)
    failure = most_frequent(log, lost)
    if len(log) == 0:
        return f"{NO_WINDOW}: no request was sent"
    if failure is None:
        cut = int((log.outcome == Outcome.CANCELLED).sum())
        cause = "; none of them was answered: is the server hung?" if not done and cut else ""
        return f"{NO_WINDOW}: {done} of {len(log)} requests succeeded, {cut} were cut off{cause}"
    often = f"{int(lost.sum())} of {len(log)} requests failed, most often ({failure.count}): {failure}"
    return f"{NO_WINDOW}: {often}. Next: {_next_step(case, failure)}"


def _next_step(case: Case, failure: Failure) -> str:
    if failure.outcome is Outcome.TIMEOUT:
        return "raise --request-timeout, or ask for less with --output-tokens or --batch-size"
    if failure.http_status in _BY_STATUS:
        return _BY_STATUS[failure.http_status]
    if case.base_url is None:
        return "read the engine's log of this trial"
    by_hand = _by_hand(case.base_url)
    return f"check --base-url and --protocol; {by_hand}" if failure.outcome is Outcome.PROTOCOL else by_hand


def _by_hand(base_url: str) -> str:
    unix = parse_unix(base_url)
    if unix is not None:
        path = unix.path.rstrip("/").removesuffix("/v1")
        return f"try the endpoint by hand: curl -i --unix-socket {shlex.quote(unix.socket_path)} http://localhost{path}/v1/models"
    # what stands before an @ is a password, what stands behind a ? may be one
    shown = base_url.split("?", 1)[0].rstrip("/").removesuffix("/v1")
    address = "URL" if "@" in shown else shown
    return f"try the endpoint by hand: curl -i {address}/v1/models"
