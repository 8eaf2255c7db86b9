from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.errors import SuiteError
from bench.suite.build import load, load_text

GOOD = "cases:\n  - model: m\n"


def refusal(text: str) -> str:
    with pytest.raises(SuiteError) as caught:
        load_text(text, "s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "is empty"),
        ("# only a comment\n", 1, "is empty"),
        ("---\n...\n", 2, "is empty"),
        ("cases:\n\t- model: m\n", 2, "a tab"),
        ("cases:\n  - model: m\n\tseed: 1\n", 3, "a tab"),
        ("cases:\n  - model: [m\n", 3, "not YAML"),
        ("a: 1\n---\nb: 1\n", 2, "a second document"),
        ("- model: m\n", 1, "a suite is a mapping"),
        ("hello\n", 1, "a suite is a mapping"),
        ("name: x\nname: y\n" + GOOD, 2, "key 'name' is written twice, first in line 1"),
        ("cases:\n  - model: m\n    seed: 1\n    seed: 2\n", 4, "key 'seed' is written twice, first in line 3"),
        ("cases:\n  - model: m\n    input_tokens:\n      mean: 1\n      mean: 2\n", 5, "key 'mean' is written twice"),
        ("x: &x {seed: 1}\ncases:\n  - <<: *x\n    model: m\n", 3, "merge keys"),
        ("cases:\n  - ? [a, b]\n    : 1\n", 2, "a key must be a plain word"),
        ("cases:\n  - model: !!python/object:os.system x\n", 2, "can't be read as a YAML value"),
        ("cases:\n  - model: !mine x\n", 2, "tag '!mine' is not part of the format"),
        ("cases:\n  - seed: !!int x\n", 2, "can't be read as a YAML value"),
        (f"cases:\n  - seed: {'9' * 5000}\n", 2, "can't be read as a YAML value"),
        ('cases:\n  - engine_args: {a: "\\ud800"}\n', 2, "half a character"),
        ("cases:\n  - seed: 99999999999999999999\n", 2, "is too large a number"),
        ("cases:\n  - model: a\x07b\n", 2, "character 0x07 is not allowed"),
        ("cases: " + "[" * 5000, 1, "nested deeper than 16 levels"),
        ("cases: " + "[" * 40 + "]" * 40, 1, "nested deeper than 16 levels"),
        ("cases: &a [*a]\n", 1, "nested deeper than 16 levels"),
        ("cases: *nobody\n", 1, "not YAML"),
    ],
)
def test_what_is_not_a_suite_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    message = refusal(text)
    assert any(part.startswith(f"s.yaml:{line}: ") and said in part for part in message.splitlines()), message


def test_aliases_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert "aliases expand to more than 100,000 values" in refusal("\n".join(lines))


def test_a_plain_alias_is_fine() -> None:
    suite = load_text("defaults: {input_tokens: &n 64, output_tokens: *n}\n" + GOOD, "s.yaml")
    assert suite.cases[0].input_tokens == suite.cases[0].output_tokens


def test_dates_stay_text() -> None:
    assert load_text("cases:\n  - model: 2026-01-31\n", "s.yaml").cases[0].model == "2026-01-31"


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: x\ndescription: caf\xe9\n" + GOOD.encode())
    with pytest.raises(SuiteError, match=r"latin.yaml:2: byte 0xe9 is not UTF-8"):
        load(str(path))


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(str(path)).name == "bom"


@pytest.mark.parametrize("size_b", [1 << 21, 1 << 42], ids=["fits into memory", "does not"])
def test_a_huge_file_is_refused(tmp_path: Path, size_b: int) -> None:
    path = tmp_path / "huge.yaml"
    path.write_text(GOOD)
    os.truncate(path, size_b)
    with pytest.raises(SuiteError, match="at most 1,048,576"):
        load(str(path))


def test_windows_line_ends_keep_the_line_numbers() -> None:
    assert "s.yaml:3: unknown key 'sed'" in refusal("cases:\r\n  - model: m\r\n    sed: 1\r\n")
