"""Data sets in files: ShareGPT, columns of JSONL, CSV and Parquet, traces. Read by the harness, never by a worker.

`pin(case)` reads a case's file before anything is started and fills in what only the file can tell. `write_book` turns its rows
into request bodies on disk, from which `BookSource` serves a worker.
"""

from bench.load.data.book import BookSource, book_path, write_book
from bench.load.data.survey import pin

__all__ = ["BookSource", "book_path", "pin", "write_book"]
