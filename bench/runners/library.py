"""What engines that are libraries have in common here: they run on one device, and a server of ours (`shims/openai_http.py`)
tells at `/info` what it loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.errors import UsageError
from bench.records import Scalar
from bench.runners.http import Answer, get


def check_one_device(engine: str, devices: int) -> None:
    """Raises: UsageError where a case has more."""
    if devices > 1:
        raise UsageError(f"{engine} runs on one device, and the case names {devices}", hint="name one device")


def info_at(base_url: str, page: str = "/info") -> dict[str, Any]:
    """What the server tells of how it runs; empty where it gives no answer."""
    answer = get(base_url + page)
    return answer.json_object() if isinstance(answer, Answer) else {}


def settings_of(info: Mapping[str, Any], names: Sequence[str]) -> dict[str, Scalar]:
    """Those of `names` that it tells; what it does not say is absent."""
    return {name: value for name in names if isinstance(value := info.get(name), str | int)}
