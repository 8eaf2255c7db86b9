"""The report files that GPUStack looks for, each there as a whole or not at all: it reads them while a benchmark goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.errors import StoreError
from bench.records import EventLog, TrialRecord
from bench.reports.export_guidellm import guidellm_report
from bench.store import layout
from bench.store.parquet import read_log
from bench.whole_file import write_whole


class ReportFiles:
    """Writes `{stem}.json` for each ended trial that has something to report; `stem_of` gets it and how many there were before.
    `benchmarks` are their entries, by trial id.
    """

    def __init__(self, folder: Path, results: Path, stem_of: Callable[[TrialRecord, int], str]) -> None:
        self._folder = folder
        self._results = results
        self._stem_of = stem_of
        self.benchmarks: dict[str, dict[str, Any]] = {}

    def keep(self, record: TrialRecord) -> None:
        """The report of one trial; none where nothing was measured. Raises: StoreError."""
        report = guidellm_report([(record, _log_of(self._results, record))])
        if report["benchmarks"]:
            stem = self._stem_of(record, len(self.benchmarks))
            self.benchmarks[record.key.trial_id] = report["benchmarks"][0]
            self.write(f"{stem}.json", report)

    def write(self, name: str, document: dict[str, Any]) -> None:
        """`name` in the folder of the reports. Raises: StoreError."""
        home = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(home, json.dumps(document, indent=2, allow_nan=False).encode())
        except OSError as error:
            raise StoreError(f"{home} can't be written: {error.strerror}", hint="give another folder as --output-dir") from error


def _log_of(results: Path, record: TrialRecord) -> EventLog | None:
    shard = results / layout.shard_path(record)
    return read_log(shard) if (shard / layout.REQUESTS).exists() else None
