"""Where `bench` keeps what it can get again: model weights, and what it has asked of installed engines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def default_dir(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """`BENCH_CACHE`, else the user's cache folder."""
    if env.get("BENCH_CACHE"):
        return Path(env["BENCH_CACHE"]).expanduser().absolute()
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]).expanduser().absolute() / "tokjoule"
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    return home / ("Library/Caches" if platform == "darwin" else ".cache") / "tokjoule"
