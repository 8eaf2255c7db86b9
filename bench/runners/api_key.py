"""The API key of an endpoint: the one place in the runners that reads it."""

from __future__ import annotations

import os

from bench.errors import UsageError


def read_key(variable: str | None) -> str | None:
    """The key in `variable` without white space around it; None where there is none. It is read for each call and not kept.

    Raises: UsageError, naming the variable and never the value, where a header can't carry it.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    wrong = next((c for c in key if not "!" <= c <= "~"), None)
    if wrong is None:
        return key or None
    what = "white space or a control character inside it" if wrong <= " " or wrong == "\x7f" else "a character that is not ASCII"
    raise UsageError(
        f"the API key in {variable} can't be sent: it holds {what}",
        hint=f"copy the key again, alone on one line, into {variable}",
    )
