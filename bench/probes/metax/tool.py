"""MetaX GPUs through `mx-smi`: the last way, where the library tells no power, and what selftest compares with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.probes.command import output
from bench.probes.metax import layouts
from bench.probes.metax.layouts import Listed
from bench.probes.tool import Told
from bench.probes.values import attempt

_FOLDERS = ("/opt/mxdriver/bin", "/opt/maca/bin", "/opt/mxn100/bin")
_EXACT = ("--show-board-power", "--show-temperature")
"""The table rounds to watts and degrees; these tell milliwatts and quarter degrees, of each device in a section of its own."""


class MxSmi:
    """The tool at a path. Devices are listed once; `read` asks for the values."""

    def __init__(self, path: str) -> None:
        self._ask: Callable[..., str] = lambda *options: output([path, *options])
        self._listed: Mapping[int, Listed] | None = None

    def read(self) -> Sequence[Told]:
        """Every device now. Raises: Unavailable."""
        told = layouts.table(self._ask())
        finer = attempt(lambda: layouts.sections(self._ask(*_EXACT)))[0] or {}
        return layouts.refined(told, self._list(), finer)

    @property
    def refused(self) -> list[tuple[str, str]]:
        """Devices that the tool lists and can't use, with the reason."""
        return [(one.pci or f"device {number}", one.faulty) for number, one in self._list().items() if one.faulty]

    def _list(self) -> Mapping[int, Listed]:
        if self._listed is None:
            self._listed = attempt(lambda: layouts.listing(self._ask("-L")))[0] or {}
        return self._listed


def find(env: Mapping[str, str]) -> MxSmi | None:
    """The tool on the path or in the driver's folder; None where it is not installed."""
    folders = [f"{root}/bin" for root in (env.get("MACA_PATH"),) if root]
    path = shutil.which("mx-smi", path=env.get("PATH")) or next(
        (tool for folder in (*folders, *_FOLDERS) if Path(tool := f"{folder}/mx-smi").is_file()), None
    )
    return None if path is None else MxSmi(path)
