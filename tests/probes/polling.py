"""Waiting for something to become true, with a deadline instead of a guess."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], seconds: float = 20.0) -> T:
    """The first truthy value of `condition`; fails the test at the deadline."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"still not true after {seconds} s"
        pause.wait(0.02)
