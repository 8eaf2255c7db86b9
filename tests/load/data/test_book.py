"""What goes out: bodies on disk, mapped by workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bench.errors import UsageError
from bench.load.address import parse_address
from bench.load.data import BookSource, pin, write_book
from bench.load.data import book as book_module
from bench.load.prompts import Calibration
from bench.load.protocols import wire_protocol
from bench.ports import LoadPlan
from bench.records import MISSING, Case, LengthSpec, LoadSpec, Target
from tests.load.data.samples import azure, conversation, jsonl, mooncake, parquet, said, sharegpt, table
from tests.load.data.test_survey import file_case, trace_load
from tests.load.scripted import make_target

CLOSED = LoadSpec(kind="closed", batch_size=2)
WORD_FOR_WORD = Calibration()
IDS: dict[str, Any] = {"protocol": "openai-completions", "token_ids": True, "vocab_size": 49152}


def open_book(
    folder: Path, case: Case, *, target: Target | None = None, salt: str = "s", key: str | None = None,
    calibration: Calibration = WORD_FOR_WORD,
) -> BookSource:  # fmt: skip
    where = target or make_target("http://127.0.0.1:8000")
    spill = folder / f"spill-{salt}"
    spill.mkdir(exist_ok=True)
    write_book(LoadPlan(case=case, target=where, salt=salt, spill_dir=spill), calibration)
    protocol, address = wire_protocol(where.protocol), parse_address(where.base_url)
    return BookSource(spill, case=case, target=where, protocol=protocol, address=address, key=key, salt=salt)


def bodies(book: BookSource, numbers: range) -> list[dict[str, Any]]:
    found = []
    for number in numbers:
        head, _, body = book.take(number)[0].partition(b"\r\n\r\n")
        assert int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]) == len(body)
        found.append(json.loads(body))
    return found


def questions(path: Path, count: int) -> str:
    return jsonl(path, [{"prompt": f"question {i} «é»", "n": i + 1} for i in range(count)])


def test_every_row_goes_out_once_in_the_order_of_the_seed_with_its_own_length(tmp_path: Path) -> None:
    case = pin(file_case(questions(tmp_path / "q.jsonl", 30), data={"output_tokens_column": "n"}, load=CLOSED))
    book = open_book(tmp_path, case)
    sent = bodies(book, range(30))
    numbers = [int(said(body).split("question ")[1].split()[0]) for body in sent]
    assert sorted(numbers) == list(range(30))
    assert numbers != list(range(30))
    assert [body["max_tokens"] for body in sent] == [number + 1 for number in numbers]
    assert all(said(body).endswith(" «é»") for body in sent)
    assert not book.recycled
    assert [book.take(n)[1:] for n in range(3)] == [(MISSING, number + 1) for number in numbers[:3]]
    again = bodies(open_book(tmp_path, case), range(30))
    other = bodies(open_book(tmp_path, pin(replace(case, seed=5))), range(30))
    assert again == sent
    assert other != sent


def test_prompts_run_out_and_say_so(tmp_path: Path) -> None:
    book = open_book(tmp_path, pin(file_case(questions(tmp_path / "q.jsonl", 4), load=CLOSED)))
    told = []
    for number in range(5):
        (fifth,) = bodies(book, range(number, number + 1))
        told.append(book.recycled)
    assert told == [False, False, False, False, True]
    assert said(fifth).split(" ", 4)[4] == said(bodies(book, range(1))[0]).split(" ", 4)[4]
    assert said(fifth) != said(bodies(book, range(1))[0])  # the lead is new even so


def test_the_salt_makes_every_prompt_new_unless_it_is_taken_off(tmp_path: Path) -> None:
    path = questions(tmp_path / "q.jsonl", 6)
    salted = pin(file_case(path, load=CLOSED))
    one, two = (bodies(open_book(tmp_path, salted, salt=salt), range(6)) for salt in ("a", "b"))
    assert [said(body).split(" ", 4)[4] for body in one] == [said(body).split(" ", 4)[4] for body in two]
    first_words = [said(body).split(" ")[0] for body in (*one, *two)]
    assert len(set(first_words)) > 6
    plain = pin(file_case(path, data={"salt": False, "shuffle": False}, load=CLOSED))
    assert [said(body) for body in bodies(open_book(tmp_path, plain), range(6))] == [f"question {i} «é»" for i in range(6)]


def test_text_stays_text_where_the_engine_takes_ids(tmp_path: Path) -> None:
    case = pin(file_case(questions(tmp_path / "q.jsonl", 3), load=CLOSED))
    for body in bodies(open_book(tmp_path, case, target=make_target("http://x", **IDS)), range(3)):
        assert isinstance(body["prompt"], str)
        assert "question" in body["prompt"]


def test_lengths_of_the_case_are_drawn_by_its_seed(tmp_path: Path) -> None:
    spec = LengthSpec(dist="uniform", mean=50, spread=0.8)
    case = pin(file_case(questions(tmp_path / "q.jsonl", 40), load=CLOSED, output_tokens=spec))
    lengths = [body["max_tokens"] for body in bodies(open_book(tmp_path, case), range(40))]
    assert len(set(lengths)) > 10
    assert all(10 <= n <= 90 for n in lengths)
    assert lengths == [body["max_tokens"] for body in bodies(open_book(tmp_path, case, salt="other"), range(40))]


def test_a_job_of_few_takes_few(tmp_path: Path) -> None:
    load = LoadSpec(kind="closed", batch_size=1, num_prompts=5)
    book = open_book(tmp_path, pin(file_case(questions(tmp_path / "q.jsonl", 1000), load=load)))
    assert len(book) == 5


def test_csv_parquet_and_sharegpt_go_the_same_way(tmp_path: Path) -> None:
    paths = [
        table(tmp_path / "a.csv", ["prompt"], [["tell me"]]),
        parquet(tmp_path / "a.parquet", "'tell me' as prompt"),
        sharegpt(tmp_path / "a.json", [conversation("tell me", "so and so")]),
    ]
    for path in paths:
        (body,) = bodies(open_book(tmp_path, pin(file_case(path, load=CLOSED))), range(1))
        assert said(body).endswith(" tell me")


def test_the_key_is_in_the_head_and_not_on_disk(tmp_path: Path) -> None:
    book = open_book(tmp_path, pin(file_case(questions(tmp_path / "q.jsonl", 3), load=CLOSED)), key="sk-secret")
    assert b"Authorization: Bearer sk-secret\r\n" in book.take(0)[0]
    assert all(b"sk-secret" not in path.read_bytes() for path in (tmp_path / "spill-s").iterdir())


def test_a_file_that_changed_since_is_refused(tmp_path: Path) -> None:
    case = pin(file_case(questions(tmp_path / "q.jsonl", 3), load=CLOSED))
    questions(tmp_path / "q.jsonl", 4)
    with pytest.raises(UsageError, match="has changed since the run began"):
        open_book(tmp_path, case)


def test_more_than_fits_is_refused_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "MOST_BYTES", 20_000)
    path = jsonl(tmp_path / "q.jsonl", [{"prompt": "x" * 1000} for _ in range(100)])
    assert len(open_book(tmp_path, pin(file_case(path, load=CLOSED)))) == 15  # 1,300 B each
    with pytest.raises(UsageError, match="100 prompts would take"):
        open_book(tmp_path, pin(file_case(path, load=LoadSpec(kind="closed", batch_size=1, num_prompts=100))))


# --- traces ---------------------------------------------------------------------------------------------------------------


def ids_of(book: BookSource, count: int) -> list[list[int]]:
    return [body["prompt"] for body in bodies(book, range(count))]


def shared_tokens(one: list[int], two: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


BLOCKS = st.lists(
    st.tuples(st.integers(1, 2600), st.lists(st.integers(0, 5), max_size=6)), min_size=2, max_size=8
)  # few block names, so that many are shared


@given(BLOCKS, st.integers(0, 99))
def test_prompts_of_a_trace_share_what_their_blocks_say_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, list[int]]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    # a real trace names as many blocks as its prompt fills: the last block may be part full
    rows = [
        (max(1, min(tokens, 512 * len(blocks))) if blocks else tokens, blocks[: -(-tokens // 512)]) for tokens, blocks in rows
    ]
    path = mooncake(folder / "t.jsonl", [(i, tokens, 5, blocks) for i, (tokens, blocks) in enumerate(rows)])
    book = open_book(folder, pin(file_case(path, load=trace_load())), target=make_target("http://x", **IDS), salt=str(seed))
    prompts = ids_of(book, len(rows))
    assert [len(prompt) for prompt in prompts] == [tokens for tokens, _ in rows]
    for i, (tokens, blocks) in enumerate(rows):
        for j in range(i):
            same = next((n for n, (a, b) in enumerate(zip(blocks, rows[j][1], strict=False)) if a != b), None)
            same = min(len(blocks), len(rows[j][1])) if same is None else same
            expected = min(512 * same, tokens, rows[j][0])
            got = shared_tokens(prompts[i], prompts[j])
            assert expected <= got
            if expected < min(tokens, rows[j][0]) - 4:  # what comes next differs in its first four tokens
                assert got < expected + 4


def test_requests_of_a_trace_are_due_as_it_says_in_order_of_time(tmp_path: Path) -> None:
    path = azure(
        tmp_path / "t.csv",
        [
            ("2024-05-10 00:00:03", 30, 3),
            ("2024-05-10 00:00:01", 10, 1),
            ("2024-05-10 00:00:02", 20, 2),
            ("2024-05-10 00:00:02", 21, 4),
        ],
    )
    for speed in (1.0, 4.0):
        case = pin(file_case(path, load=replace(trace_load(), speed=speed)))
        book = open_book(tmp_path, case)
        due = book.due_s()
        assert due is not None
        assert np.allclose(due * speed, [0, 1, 1, 2])
        assert [book.take(n)[1:] for n in range(4)] == [(10, 1), (20, 2), (21, 4), (30, 3)]


def test_a_timed_trace_has_what_is_due_by_the_end_of_the_grace(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(1000 * i, 5, 5, []) for i in range(100)])
    case = pin(file_case(path, load=trace_load(whole_trace=False), warmup_s=2.0, duration_s=5.0, grace_s=3.0))
    assert len(open_book(tmp_path, case)) == 10


def test_a_trace_in_text_is_as_long_as_the_server_counts(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(0, 1300, 5, [1, 2, 3]), (1, 1400, 5, [1, 2, 4]), (2, 40, 5, [])])
    counts = Calibration(overhead_tokens=20, tokens_per_word=1.25)
    texts = [
        said(body).split(" ")
        for body in bodies(open_book(tmp_path, pin(file_case(path, load=trace_load())), calibration=counts), range(3))
    ]
    assert [len(text) for text in texts] == [counts.words(n) for n in (1300, 1400, 40)]
    blocks = 2 * counts.words_within(512)
    assert texts[0][:blocks] == texts[1][:blocks]
    assert texts[0][blocks : blocks + 4] != texts[1][blocks : blocks + 4]


def test_a_trace_as_data_for_another_load(tmp_path: Path) -> None:
    """Its lengths, without its arrivals: in the file's order, which prefixes depend on."""
    path = mooncake(tmp_path / "t.jsonl", [(i, 10 + i, i + 1, [i // 2]) for i in range(9)])
    book = open_book(tmp_path, pin(file_case(path, load=CLOSED)))
    assert book.due_s() is None
    assert [book.take(n)[1:] for n in range(9)] == [(10 + i, i + 1) for i in range(9)]


def test_salts_part_the_trials_of_a_trace(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(0, 1024, 5, [1, 2])])
    case = pin(file_case(path, load=trace_load()))
    one, two = (ids_of(open_book(tmp_path, case, target=make_target("http://x", **IDS), salt=salt), 1)[0] for salt in "ab")
    assert shared_tokens(one, two) < 4
