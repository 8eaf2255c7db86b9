"""The API key of a target: where it is read, and how it is kept out of every text that is kept."""

from __future__ import annotations

import json
import os

_SHORTEST_PART = 6
"""A text that was cut may end with this many characters of the key, or more."""
_CUT = "..."


def key_in(variable: str | None) -> str | None:
    """The key itself, from the environment; what can't stand in a header is left out, and the server then refuses it."""
    key = os.environ.get(variable, "") if variable else ""
    return "".join(c for c in key if "!" <= c <= "~") or None


def strike_out(text: str, secret: str | None) -> str:
    """`text` without the key: plain, as JSON escapes it, and where the end of the text was cut in the midst of it."""
    if not secret:
        return text
    escaped = json.dumps(secret)[1:-1]
    for form in (secret, escaped, escaped.replace("/", "\\/")):
        text = text.replace(form, "***")
    body, cut = (text[: -len(_CUT)], _CUT) if text.endswith(_CUT) else (text, "")
    for size in range(len(secret) - 1, _SHORTEST_PART - 1, -1):
        if body.endswith(secret[:size]):
            return body[:-size] + "***" + cut
    return text
