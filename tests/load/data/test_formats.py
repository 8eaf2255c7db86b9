"""Files to rows, and what is said of files that can't be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.load.data import rows as rows_module
from bench.load.data.formats import format_of, read_rows
from bench.load.data.rows import Row, text_tokens
from bench.load.data.sharegpt import array_entries
from bench.records import DataSpec
from tests.load.data.samples import azure, conversation, jsonl, mooncake, parquet, sharegpt, table

PLAIN = DataSpec()


def read(path: str, data: DataSpec = PLAIN, kind: str | None = None) -> list[Row]:
    return list(read_rows(kind or format_of(path), path, data))


def refusal(path: str, data: DataSpec = PLAIN, kind: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        read(path, data, kind)
    return str(caught.value)


def test_columns_of_json_lines(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"q": "one two", "n": 7}, {"q": "drei vier fünf", "n": 8}])
    found = read(path, DataSpec(prompt_column="q", output_tokens_column="n"))
    assert [(row.text, row.output_tokens) for row in found] == [("one two", 7), ("drei vier fünf", 8)]
    assert [row.output_tokens for row in read(path, DataSpec(prompt_column="q"))] == [None, None]


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b"}')
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfprompt\r\na\r\nb\r\n")
    for name in ("a.jsonl", "a.csv"):
        assert [row.text for row in read(str(tmp_path / name))] == ["a", "b"]


def test_columns_of_csv_with_line_ends_inside(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ["prompt", "n"], [["line one\nline two, and so on", 3], ['with "quotes"', 4]])
    found = read(path, DataSpec(output_tokens_column="n"))
    assert [(row.text, row.output_tokens) for row in found] == [("line one\nline two, and so on", 3), ('with "quotes"', 4)]


def test_columns_of_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", "'say ' || i as \"the prompt\", i + 1 as n, 'x' as other")
    found = read(path, DataSpec(prompt_column="the prompt", output_tokens_column="n"))
    assert [(row.text, row.output_tokens) for row in found] == [(f"say {i}", i + 1) for i in range(20)]
    assert "there is no column 'promt': did you mean 'the prompt'" in refusal(path, DataSpec(prompt_column="promt"))


def test_sharegpt_takes_the_first_question_and_its_answer(tmp_path: Path) -> None:
    entries = [
        conversation("Why?", "Because of " + "x" * 40),
        {"conversations": [{"from": "system", "value": "be short"}, *conversation("How?", "So.")["conversations"]]},
        {"messages": [{"role": "user", "content": "What?"}, {"role": "assistant", "content": "That."}]},
        {"conversations": [{"from": "gpt", "value": "I begin"}, {"from": "human", "value": "no"}]},
        {"conversations": [{"from": "human", "value": "nobody answers"}]},
        {"conversations": []},
        conversation("  ", "to nothing"),
        conversation("to nothing", ""),
    ]
    for indent in (None, 2):
        found = read(sharegpt(tmp_path / "s.json", entries, indent=indent))
        assert [(row.text, row.output_tokens) for row in found] == [("Why?", 13), ("How?", 1), ("What?", 2)]
    assert [row.text for row in read(jsonl(tmp_path / "s.jsonl", entries))] == ["Why?", "How?", "What?"]


def test_half_a_character_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(
        '[{"conversations": [{"from": "human", "value": "a\\ud83d b"}, {"from": "gpt", "value": "ok"}]}]'
    )
    (row,) = read(str(tmp_path / "s.json"))
    assert row.text == "a\ufffd b"


def test_mooncake(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(0, 6755, 500, [0, 1]), (3000, 0, 0, [])])
    first, second = read(path)
    assert (first.text, first.input_tokens, first.output_tokens, first.stamp_s, first.blocks) == (None, 6755, 500, 0.0, (0, 1))
    assert (second.input_tokens, second.output_tokens, second.stamp_s) == (1, 1, 3.0)  # no server takes a request of nothing


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_azure(tmp_path: Path, name: str) -> None:
    path = azure(tmp_path / name, [("2023-11-16 18:17:03.9799600", 374, 44), ("2023-11-16 18:17:04.0319600", 396, 109)])
    first, second = read(path)
    assert (first.input_tokens, first.output_tokens, second.input_tokens) == (374, 44, 396)
    assert first.stamp_s is not None
    assert second.stamp_s is not None
    assert second.stamp_s - first.stamp_s == pytest.approx(0.052, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.jsonl", '{"prompt": "x"}\n', "jsonl"),
        ("a.ndjson", '{"prompt": "x"}\n', "jsonl"),
        ("a.json", '{"prompt": "x"}\n', "jsonl"),
        ("a.json", ' \n[{"conversations": []}]', "sharegpt"),
        ("a.jsonl", '{"conversations": []}', "sharegpt"),
        ("a.csv", "prompt,n\nx,1\n", "csv"),
        ("a.CSV", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "azure"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": []}', "mooncake"),
        ("a.jsonl", '{"TIMESTAMP": 1, "ContextTokens": 2, "GeneratedTokens": 3}', "azure"),
        ("a.parquet", "", "parquet"),
    ],
)
def test_the_format_shows_in_the_name_and_the_first_line(tmp_path: Path, name: str, text: str, kind: str) -> None:
    (tmp_path / name).write_text(text)
    assert format_of(str(tmp_path / name)) == kind


BAD_LINES: list[tuple[str, str, str]] = [
    ("a.jsonl", '{"prompt": "x"}\n{"prompt": ', "a.jsonl:2: is not JSON"),
    ("a.jsonl", '{"prompt": "x"}\n\n[1]\n', "a.jsonl:3: must be a JSON object"),
    ("a.jsonl", '{"prompt": "x"}\n{"promt": "y"}', "a.jsonl:2: there is no column 'prompt': did you mean 'promt'?"),
    ("a.jsonl", '{"prompt": "x"}\n{"prompt": 4}', "a.jsonl:2: prompt must be text that is not empty, got 4"),
    ("a.jsonl", '{"prompt": " "}', "a.jsonl:1: prompt must be text"),
    ("a.csv", "prompt,n\nx,1\ny\n", "a.csv:3: has another number of fields"),
    ("a.csv", "prompt,n\nx,1\ny,2,3\n", "a.csv:3: has another number of fields"),
    ("a.csv", 'prompt\n"x\n', "is not CSV"),
    ("a.csv", "Prompt\nx\n", "a.csv:2: there is no column 'prompt': did you mean 'Prompt'?"),
    ("s.json", '[{"conversations": []}, {"conversation": []}]', "s.json:1: entry 2 has no 'conversations'"),
    ("s.json", '[\n{"conversations": []},\n{"conversations": [}\n]', "s.json:3: entry 2 is not JSON"),
    ("s.json", '[{"conversations": []}', "s.json:1: is not JSON: expected ',', found the end of the file: is it cut off?"),
    ("s.json", '[{"conversations": []} {"a": 1}]', "s.json:1: is not JSON: expected ','"),
    ("s.json", '[\n7]', "s.json:2: entry 1 must be a JSON object"),
    ("s.json", '[{"conversations": ["a"]}]', "entry 1 a turn must be a JSON object"),
    ("a.jsonl", '{"prompt": "x", "tree": ' + "[" * 5000 + "]" * 5000 + "}", "a.jsonl:1: is JSON nested too deeply"),
    ("a.jsonl", "[" * 100_000, "a.jsonl:1: is JSON nested too deeply"),
    ("s.json", "[" * 100_000, "s.json:1: entry 1 is not JSON"),
    ("t.jsonl", '{"timestamp": -1, "input_length": 5, "output_length": 5}',
     "t.jsonl:1: timestamp must be milliseconds, got -1"),
    ("t.jsonl", '{"timestamp": 0, "input_length": -5, "output_length": 5}', "t.jsonl:1: input_length must be a number of tokens"),
    ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": true}', "output_length must be a number of tokens, got"),
    ("t.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [1.5]}', "hash_ids must be"),
    ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "t.csv:2: TIMESTAMP must be a date"),
    ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,x,2\n", "t.csv:2: ContextTokens must be"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), BAD_LINES)
def test_a_bad_line_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    assert words in refusal(str(tmp_path / name))


@pytest.mark.parametrize(("name", "good"), [("a.jsonl", b'{"prompt": "x"}\n'), ("a.csv", b"prompt\nx\n"), ("a.json", b"[\n\n")])
def test_what_is_not_utf8_is_said_with_its_line(tmp_path: Path, name: str, good: bytes) -> None:
    bad = b'{"prompt": "\xff"}\n' if name != "a.csv" else b"\xff\n"
    (tmp_path / name).write_bytes(good + bad)
    said = refusal(str(tmp_path / name))
    assert "is not UTF-8" in said
    assert f"{name}:{good.count(10) + 1}:" in said or name == "a.csv"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    jsonl(tmp_path / "prompts.jsonl", [])
    with pytest.raises(UsageError, match="there is no such data file") as caught:
        format_of(str(tmp_path / "prompt.jsonl"))
    assert caught.value.hint == "did you mean 'prompts.jsonl'?"
    with pytest.raises(UsageError, match="is a folder"):
        format_of(str(tmp_path) + "/.")
    with pytest.raises(UsageError, match=r"the ending '\.txt' doesn't say"):
        format_of(jsonl(tmp_path / "a.txt", []))
    with pytest.raises(UsageError, match=r"a\.parquet: can't be read as Parquet"):
        read(jsonl(tmp_path / "a.parquet", [{"prompt": "x"}]))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LONGEST_LINE_B", 1000)
    monkeypatch.setattr("bench.load.data.sharegpt.LONGEST_LINE_B", 1000)
    monkeypatch.setattr("bench.load.data.sharegpt._PIECE_B", 100)
    (tmp_path / "a.jsonl").write_text('{"prompt": "' + "x" * 2000 + '"}')
    (tmp_path / "s.json").write_text('[{"conversations": [{"from": "human", "value": "' + "x" * 5000)
    assert "a.jsonl:1: is longer than" in refusal(str(tmp_path / "a.jsonl"), kind="jsonl")
    assert "entry 1 is longer than" in refusal(str(tmp_path / "s.json"), kind="sharegpt")


def test_limits_leave_rows_out(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"prompt": "x" * 4 * size, "n": size} for size in range(1, 11)])

    def kept(**limits: int) -> list[int]:
        return [row.input_tokens for row in read(path, DataSpec(output_tokens_column="n", **limits))]  # type: ignore[arg-type]

    assert kept() == list(range(1, 11))
    assert kept(min_input_tokens=4, max_input_tokens=8) == [4, 5, 6, 7, 8]
    assert kept(min_output_tokens=9) == [9, 10]
    assert kept(max_output_tokens=2, min_input_tokens=2) == [2]


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=3), max_size=20), st.integers(1, 60),
       st.sampled_from([None, 0, 3]))  # fmt: skip
def test_an_array_read_in_pieces_is_the_array(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, str]], piece_b: int, indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("array") / "s.json"
    text = json.dumps(entries, ensure_ascii=False, indent=indent)
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.load.data.sharegpt._PIECE_B", piece_b)
        found: list[tuple[int, dict[str, Any]]] = [(here.line or 0, record) for here, record in array_entries(str(path))]
    assert [record for _, record in found] == entries
    assert [line for line, _ in found] == sorted(line for line, _ in found)


@given(st.text(min_size=1, max_size=200))
def test_tokens_of_a_text_go_by_its_bytes(text: str) -> None:
    assert text_tokens(text) >= 1
    assert abs(text_tokens(text) - len(text.encode("utf-8", "surrogatepass")) / 4) < 1
