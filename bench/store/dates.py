"""Dates in files that people edit, as SQL will read them. Pure."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime


def check_day(text: str) -> None:
    """Refuse what is no day written YYYY-MM-DD: days are compared as text. Raises: ValueError."""
    with suppress(ValueError):
        if date.fromisoformat(text).isoformat() == text:
            return
    raise ValueError(f"{text[:40]!r} is no day: write YYYY-MM-DD")


def check_moment(text: str) -> None:
    """Refuse what is no moment such as 2026-11-30T12:00:00.123Z. Raises: ValueError."""
    with suppress(ValueError):
        if datetime.fromisoformat(text).isoformat(sep="T")[:19] == text[:10] + "T" + text[11:19]:
            return
    raise ValueError(f"{text[:40]!r} is no moment: write YYYY-MM-DDTHH:MM:SSZ")
