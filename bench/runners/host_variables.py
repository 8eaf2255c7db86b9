"""Variables of this process that change how an engine runs."""

from __future__ import annotations

import os

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def without_secrets(prefixes: tuple[str, ...]) -> dict[str, str]:
    """Those whose names begin like `prefixes`, without any that may hold a secret."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(prefixes) and not any(word in name for word in _SECRET)
    }
