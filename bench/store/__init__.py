"""Results on disk: shards (the truth) and `lab.duckdb` (a cache built from them). DuckDB is imported only when used."""

from bench.store.adoption import AdoptReport, adopt
from bench.store.ingest import IngestReport, Rejection
from bench.store.lab import Lab
from bench.store.records import TrialFilter, check_run, records, records_in, run_records
from bench.store.shards import ShardStore
from bench.store.work import work_root

__all__ = [
    "AdoptReport",
    "IngestReport",
    "Lab",
    "Rejection",
    "ShardStore",
    "TrialFilter",
    "adopt",
    "check_run",
    "records",
    "records_in",
    "run_records",
    "work_root",
]
