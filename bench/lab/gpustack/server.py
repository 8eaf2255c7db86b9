"""A GPUStack server's benchmarks over its API."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from bench.errors import TargetError, UsageError
from bench.imported import ImportedResult
from bench.importers.gpustack import read_point
from bench.runners.base_url import server_parts
from bench.runners.http import NoAnswer, get

_TIMEOUT_S = 60.0
_PER_PAGE = 100
_MOST_PAGES = 1000


class GpuStackServer:
    """Reads benchmarks; changes nothing. The key is read from the variable `key_env` for each call and not kept."""

    def __init__(self, url: str, key_env: str) -> None:
        """Raises: UsageError."""
        if not url.startswith(("http://", "https://")) or "@" in url or "?" in url or server_parts(url) is None:
            raise UsageError(f"{url[:100]!r} is not the URL of a GPUStack server", hint="write http://HOST:PORT or https://HOST")
        self._url = url.rstrip("/")
        self._key_env = key_env

    def benchmarks(self) -> Iterator[dict[str, Any]]:
        """Every benchmark that the key may see. Raises: TargetError."""
        for page in range(1, _MOST_PAGES + 1):
            document = self._ask(f"/v2/benchmarks?page={page}&perPage={_PER_PAGE}")
            items = document.get("items") if isinstance(document, dict) else None
            if not isinstance(items, list):
                raise TargetError(
                    f"{self._url}/v2/benchmarks is no list of benchmarks", hint="is this the URL of a GPUStack server?"
                )
            yield from (item for item in items if isinstance(item, dict))
            if len(items) < _PER_PAGE:
                return

    def benchmark(self, number: int) -> dict[str, Any]:
        """One benchmark. Raises: TargetError."""
        found = self._ask(f"/v2/benchmarks/{number}")
        if not isinstance(found, dict):
            raise TargetError(f"{self._url}/v2/benchmarks/{number} is no benchmark")
        return found

    def results(self, benchmark: dict[str, Any]) -> list[ImportedResult]:
        """Its points; those without measurements are left out. Raises: TargetError, UsageError (a value that can't be)."""
        number = benchmark.get("id")
        if isinstance(number, bool) or not isinstance(number, int):
            raise TargetError(f"{self._url} tells of a benchmark without a number")
        points = self._ask(f"/v2/benchmarks/{number}/results")
        if not isinstance(points, list):
            raise TargetError(f"{self._url}/v2/benchmarks/{number}/results is no list of points")
        where = f"{self._url}/v2/benchmarks/{number}"
        read = (read_point(benchmark, point, where) for point in points)
        return [one for one in read if one is not None]

    def _ask(self, path: str) -> Any:
        key = os.environ.get(self._key_env)
        answer = get(self._url + path, timeout_s=_TIMEOUT_S, headers={"Authorization": f"Bearer {key}"} if key else {})
        if isinstance(answer, NoAnswer):
            raise TargetError(f"{self._url} gives no answer: {answer.detail}")
        if answer.status in (401, 403):
            hint = f"put an API key of the server into {self._key_env}, or name another variable with --api-key-env"
            raise TargetError(
                f"{self._url}{path} answers {answer.status}: it {'refuses the' if key else 'wants a'} key", hint=hint
            )
        if answer.status != 200:
            raise TargetError(f"{self._url}{path} answers {answer.status}")
        return answer.json()
