"""How other tools name or define the lab's metrics. The data is `peer_metrics.yaml` beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import yaml

_FILE = Path(__file__).with_name("peer_metrics.yaml")


class PeerTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another tool, and where its definitions were read."""

    name: str
    source: str


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    called: str | None = None
    says: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tools: dict[str, PeerTool]
    metrics: dict[str, dict[str, _Entry]]


class PeerMetric(msgspec.Struct, frozen=True, kw_only=True):
    """One tool's word on one of our metrics: its name there, what it means there, or both."""

    tool: str
    called: str | None
    says: str | None
    source: str


@cache
def peer_metrics() -> dict[str, tuple[PeerMetric, ...]]:
    """By our metric's name; a metric that no other tool has is not in it."""
    data = msgspec.convert(yaml.safe_load(_FILE.read_text(encoding="utf-8")), _File)
    return {
        metric: tuple(
            PeerMetric(tool=data.tools[key].name, called=entry.called, says=entry.says, source=data.tools[key].source)
            for key, entry in entries.items()
        )
        for metric, entries in data.metrics.items()
    }
