"""The Chinese report: every text of ours is there, and what others say is translated where there are words for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import bench.reports.html
from bench.analysis.gate import RULES as GATED
from bench.records import Status
from bench.reports.gate import STATE_WORDS
from bench.reports.html import report_html
from bench.reports.html.markup import text
from bench.reports.html.words import Words
from bench.reports.html.zh import MESSAGES, PAGE
from bench.reports.numbers import COLUMNS
from bench.timing.spec import SPECS
from bench.timing.validity import RULES
from tests.reports.html.parsed import parsed
from tests.reports.html.samples import NOT_STEADY, THERMAL, sample_report

ZH = Words(language="zh")
SOURCES = sorted(Path(bench.reports.html.__file__).parent.glob("*.py"))
CHINESE = re.compile(r"[\u4e00-\u9fff]")
SAME_EVERYWHERE = {"TTFT", "TPOT", "E2E", "QPS", "TTFT p50", "TTFT p99", "TPOT p50", "n", ""}


def literals() -> set[str]:
    """Every text in the code of the report."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES if path.name != "zh.py"]
    return {
        node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def asked_for() -> set[str]:
    """Texts that are handed to `words(...)` as they stand."""
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "words" and node.args:
                parts = (part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))
                found |= {part for part in parts if isinstance(part, str)}
    return found


def test_every_text_of_the_page_has_a_translation_and_none_is_left_over() -> None:
    assert asked_for() - PAGE.keys() == set()
    assert PAGE.keys() - literals() == set()


@pytest.mark.parametrize("dictionary", [PAGE, MESSAGES], ids=["page", "messages"])
def test_translations_are_chinese_and_fill_the_same_holes(dictionary: dict[str, str]) -> None:
    for english, chinese in dictionary.items():
        holes = english.count("{}")
        assert chinese.format(*("x" * holes)).count("x") >= holes, english
        assert len(re.findall(r"\{\d?\}", chinese)) == holes, english
        assert CHINESE.search(chinese) or "{}" in chinese, english


WORDED = [
    *(rule.meaning for rule in RULES.values()),
    *STATE_WORDS.values(),
    *(status.value for status in Status),
    *("all", "throughput", "latency", "energy", "memory", "missing", "warning"),
    *(SPECS[column.metric].definition for column in COLUMNS),
    *(NOT_STEADY.message, THERMAL.message),
    "only 2 of 3 repeats (40 samples are too few for a p99)",
    "the accelerator's power is simulated, not measured",
    "not comparable: other model: a and b",
    "differs: 3.1% (2.2 to 4.0) lower, worse",
]


@pytest.mark.parametrize("message", WORDED)
def test_what_others_say_is_translated(message: str) -> None:
    assert CHINESE.search(ZH.said(message))
    assert Words(language="en").said(message) == message


def test_what_there_are_no_words_for_is_marked_as_english() -> None:
    assert ZH.quoted("CUDA error <719>") == '<span lang="en">CUDA error &lt;719&gt;</span>'
    assert Words(language="en").quoted("CUDA error <719>") == text("CUDA error <719>")


def test_a_long_message_takes_no_time() -> None:
    hostile = "window of " + "s, at least " * 20_000
    assert ZH.said(hostile) == hostile


def test_no_heading_or_label_is_left_in_english() -> None:
    english, chinese = (parsed(report_html(sample_report(), language)) for language in ("en", "zh"))
    for name in ("h2", "th", "dt", "caption", "button", "p"):
        own = [e for e in english.all(name) if "scope" not in e.attributes or e.attributes["scope"] == "col"]
        other = [e for e in chinese.all(name) if "scope" not in e.attributes or e.attributes["scope"] == "col"]
        assert len(own) == len(other)
        for one, two in zip(own, other, strict=True):
            told = re.sub(r"(1/s|tok/s|ms|GiB|J/token|tok|p50 / p90 / p99 \[ms\])[\d,. ]*$", "", one.text)
            assert one.text != two.text or told.strip() in SAME_EVERYWHERE or not re.search("[a-z]{3}", told) or _is_metric(told)
    assert chinese.all("html")[0].attributes["lang"] == "zh-Hans"


def _is_metric(told: str) -> bool:
    """Names of metrics with their units are the same in every language."""
    return any(told.startswith(name.removesuffix("_ms")) for name in GATED)
