"""A metric of a series over its nights, and what it is tonight: what the gate reads, judges and tells. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bench.analysis.gate import Judged, Night, State
from bench.analysis.gate_drift import Drift


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeriesKey:
    """One metric of one series on one host, under one profile; joules also under one scope."""

    series_id: str
    host_id: str
    profile: str
    metric: str
    scope: str | None = None

    @property
    def text(self) -> str:
        """The key as one string."""
        return f"{self.series_id}/{self.host}"

    @property
    def host(self) -> str:
        """What it shares with other series whose nights are as good or bad as its own."""
        return "/".join((self.host_id, self.profile, self.metric, self.scope or ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesHistory:
    """A metric of a series over its nights, oldest first. `label` says what it is in words, `builds` which engine ran."""

    key: SeriesKey
    label: str
    nights: tuple[Night, ...]
    builds: tuple[str, ...]
    judged: tuple[Judged, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What tonight is for one metric of a series. `judged` is None for a missing result: `missing` says what is known. `drift`:
    what got worse too slowly for any night to see.
    """

    history: SeriesHistory
    state: State
    judged: Judged | None = None
    missing: str | None = None
    drift: Drift | None = None

    @property
    def is_open(self) -> bool:
        """Whether something still has to be measured: a result that is missing, or pairs."""
        return self.judged is None or self.judged.wants_pairs
