"""Request bodies of a data set on disk, written once by the harness before any load and mapped by every worker.

A record is a body with a gap for its lead. The key of the API isn't in it: heads are made when a request is sent.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from bench.errors import LoadError, UsageError
from bench.load.address import Address, http_head
from bench.load.arrivals import trace_offsets_s
from bench.load.data.formats import TRACES, read_rows
from bench.load.data.rows import Row
from bench.load.data.survey import Survey, survey
from bench.load.data.trace_prompts import Filler, TracePrompts
from bench.load.lengths import draw_lengths
from bench.load.prompts import SLOT, SLOT_JSON, Calibration, seed_of, vocabulary_of
from bench.load.protocols import WireProtocol, wire_protocol
from bench.load.vocabulary import LEAD_TOKENS, Vocabulary
from bench.ports import LoadPlan
from bench.records import MISSING, Case, FloatArray, IntArray, Target

MOST_ROWS = 200_000
"""Prompts that are made ready where only time bounds a trial."""
MOST_BYTES = 4 << 30
_COLUMNS = 7  # begin, gap, end [B]; input, output, lead [tokens]; due [ns]
_BYTES_PER_ITEM = 8
_BODY_EXTRA_B = 300


def book_path(folder: Path) -> Path:
    """Where the bodies of a trial lie; the index beside it ends with `.index`."""
    return folder / "worker-shared.book"


def _index_path(folder: Path) -> Path:
    return folder / "worker-shared.index"


def write_book(plan: LoadPlan, calibration: Calibration) -> None:
    """Write the bodies of `plan.case`'s data set, in the order in which they are sent, into `plan.spill_dir`.

    Raises: UsageError where the file has changed since it was pinned or asks for too much room, LoadError where the disk is full.
    """
    case = plan.case
    found = survey(case.dataset, case.data)
    if found.sha256 != case.data.sha256:
        raise UsageError(f"{case.data.path}: has changed since the run began", hint="start the run again")
    try:
        _Writer(plan, calibration, found).write()
    except OSError as error:
        raise LoadError(
            f"prompts can't be kept on disk: {error.strerror}", hint="free space where results are written"
        ) from error


class _Writer:
    def __init__(self, plan: LoadPlan, calibration: Calibration, found: Survey) -> None:
        self._case, self._target, self._folder = plan.case, plan.target, plan.spill_dir
        self._salt = plan.salt
        self._protocol = wire_protocol(plan.target.protocol)
        self._words = _vocabulary(plan.case, plan.target, self._protocol)
        self._filler = TracePrompts(self._words, calibration, plan.salt)
        self._found = found
        self._heads: dict[int, tuple[bytes, bytes]] = {}

    def write(self) -> None:
        ranks, due_ns = self._order()
        count = int((ranks >= 0).sum())
        outputs = self._drawn_outputs(count)
        index: IntArray = np.zeros((count, _COLUMNS), dtype=np.int64)
        at_b = 0
        with book_path(self._folder).open("wb") as book:
            for row, rank in zip(self._rows(), ranks.tolist(), strict=True):
                if rank < 0:
                    continue
                output = int(outputs[rank]) if outputs is not None else row.output_tokens
                assert output is not None
                record = self._record(row, rank, output)
                book.write(record.before)
                book.write(record.after)
                gap_b = at_b + len(record.before)
                end_b = gap_b + len(record.after)
                index[rank] = (at_b, gap_b, end_b, record.input_tokens, output, record.lead_tokens, due_ns[rank])
                at_b = end_b
        np.save(_index_path(self._folder).open("wb"), index)

    def _rows(self) -> Iterator[Row]:
        assert self._case.data.path is not None
        return read_rows(self._found.kind, self._case.data.path, self._case.data)

    def _order(self) -> tuple[IntArray, IntArray]:
        """For each row of the file when it is sent (-1: not at all), and for each one sent when it is due."""
        load, rows = self._case.load, self._found.rows
        if load.arrivals == "trace":
            return self._order_of_trace()
        wanted = min(load.num_prompts or self._room(), rows)
        self._check_room(wanted)
        chosen = np.arange(wanted)
        if self._case.data.shuffle and not self._found.has_blocks:
            chosen = np.random.default_rng(self._case.seed).permutation(rows)[:wanted]
        ranks = np.full(rows, -1, dtype=np.int64)
        ranks[chosen] = np.arange(wanted)
        return ranks, np.full(wanted, MISSING, dtype=np.int64)

    def _order_of_trace(self) -> tuple[IntArray, IntArray]:
        case, load = self._case, self._case.load
        stamps_s = np.array([row.stamp_s for row in self._rows()], dtype=np.float64)
        in_time = np.argsort(stamps_s, kind="stable")
        offsets_s = trace_offsets_s(stamps_s[in_time], load.speed or 1.0)
        count = load.num_prompts
        if count is None:
            count = int(np.searchsorted(offsets_s, case.warmup_s + case.duration_s + case.grace_s))
        self._check_room(count)
        ranks = np.full(len(stamps_s), -1, dtype=np.int64)
        ranks[in_time[:count]] = np.arange(count)
        return ranks, np.round(offsets_s[:count] * 1e9).astype(np.int64)

    def _mean_b(self) -> float:
        found = self._found
        return _BODY_EXTRA_B + (found.bytes_b or found.input_sum * _BYTES_PER_ITEM) / found.rows

    def _room(self) -> int:
        """Prompts to make ready for a trial that time bounds."""
        return max(1, min(MOST_ROWS, int(MOST_BYTES / self._mean_b())))

    def _check_room(self, count: int) -> None:
        needed_b = count * self._mean_b()
        if needed_b > MOST_BYTES * 1.1:
            raise UsageError(
                f"{self._case.data.path}: {count:,} prompts would take {needed_b / 2**30:.1f} GiB, not {MOST_BYTES >> 30}",
                hint="ask for fewer with num_prompts, or for shorter ones with max_input_tokens",
            )

    def _drawn_outputs(self, count: int) -> IntArray | None:
        """Lengths of replies where the case names them, else None: each row has its own."""
        spec = self._case.output_tokens
        return None if spec.dist == "dataset" else draw_lengths(spec, count, np.random.default_rng(self._case.seed))

    def _record(self, row: Row, rank: int, output_tokens: int) -> _Record:
        if row.text is None:
            return self._of_lengths(row, self._filler.prompt(row, rank), output_tokens)
        salted = self._case.data.salt
        before, after = self._around(f"{SLOT} {row.text}" if salted else SLOT + row.text, SLOT_JSON[1:-1], output_tokens)
        return _Record(before, after, MISSING, LEAD_TOKENS if salted else 0)

    def _of_lengths(self, row: Row, filler: Filler, output_tokens: int) -> _Record:
        around = self._heads.get(output_tokens)
        if around is None:
            around = self._heads[output_tokens] = self._around(SLOT, SLOT_JSON, output_tokens)
        opening, closing = self._words.quotes
        return _Record(
            around[0] + opening + filler.shared, filler.rest + closing + around[1], row.input_tokens, filler.lead_tokens
        )

    def _around(self, prompt: str, slot: bytes, output_tokens: int) -> tuple[bytes, bytes]:
        body = self._protocol.body(self._target, self._case, prompt, output_tokens, exact=self._case.exact_lengths)
        before, _, after = msgspec.json.encode(body).partition(slot)
        return before, after


def _vocabulary(case: Case, target: Target, protocol: WireProtocol) -> Vocabulary:
    """Text goes before text; only prompts that are made up may be token ids."""
    return vocabulary_of(target, protocol) if case.dataset in TRACES else Vocabulary(None)


@dataclass(frozen=True, slots=True)
class _Record:
    before: bytes
    after: bytes
    input_tokens: int
    lead_tokens: int


class BookSource:
    """Requests out of a book, as a `bench.load.prompts.PromptSource`: number n is its n-th record, from the start again at its
    end.
    """

    def __init__(
        self, folder: Path, *, case: Case, target: Target, protocol: WireProtocol, address: Address, key: str | None, salt: str
    ) -> None:
        self._words = _vocabulary(case, target, protocol)
        self._address, self._path, self._key = address, address.path + protocol.path(target, stream=case.stream), key
        self._start = seed_of(salt, 6)
        self._index: IntArray = np.load(_index_path(folder))
        with book_path(folder).open("rb") as file:
            self._book = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._timed = case.load.arrivals == "trace"
        self.recycled = False

    def __len__(self) -> int:
        return len(self._index)

    def take(self, number: int) -> tuple[bytes, int, int]:
        if number >= len(self._index):
            self.recycled = True
        begin, gap, end, asked_in, asked_out, lead_tokens, _ = self._index[number % len(self._index)].tolist()
        lead = self._words.lead(self._start + number, lead_tokens) if lead_tokens else b""
        head = http_head(self._address, self._path, end - begin + len(lead), self._key)
        return head + self._book[begin:gap] + lead + self._book[gap:end], asked_in, asked_out

    def due_s(self) -> FloatArray | None:
        return self._index[:, -1] / 1e9 if self._timed else None
