"""The report in a real Chromium: it asks for nothing, its tables sort, it fits a phone, it is dark where that is wished."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.reports.html import report_html
from tests.browser import Page, browser
from tests.reports.html.samples import sample_report
from tests.reports.html.test_page import hostile_report

pytestmark = pytest.mark.browser
DESKTOP: dict[str, Any] = {"width": 1280, "height": 900}
PHONE: dict[str, Any] = {"width": 390, "height": 844, "phone": True}
COLUMN = "[...document.querySelectorAll('.results tbody tr')].map(row => row.cells[{}].firstChild.textContent)"
HEAD = "document.querySelectorAll('.results thead th')[{}]"
ENERGY, MODEL = 10, 0


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report in both languages, and one all of whose texts are markup."""
    folder = tmp_path_factory.mktemp("reports")
    pages = {
        "en": report_html(sample_report()),
        "zh": report_html(sample_report(), "zh"),
        "hostile": report_html(hostile_report()),
    }
    for name, data in pages.items():
        (folder / f"{name}.html").write_bytes(data)
    return {name: folder / f"{name}.html" for name in pages}


@pytest.mark.parametrize("name", ["en", "zh", "hostile"])
def test_it_asks_for_nothing_and_complains_of_nothing(chromium: Page, files: dict[str, Path], name: str) -> None:
    chromium.look_like(**DESKTOP)
    chromium.visit(files[name])
    assert chromium.run("document.querySelectorAll('section').length") == 10
    assert chromium.requests == [files[name].as_uri()]
    assert chromium.complaints == []
    dialogs = [event for event in chromium.events if event["method"] == "Page.javascriptDialogOpening"]
    assert dialogs == []


def test_what_the_policy_stops_would_be_seen(chromium: Page, files: dict[str, Path]) -> None:
    chromium.visit(files["en"])
    chromium.run("document.body.append(Object.assign(new Image(), {src: 'https://example.invalid/x.png'}))")
    chromium.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))")
    assert chromium.run("window.ran === undefined")
    assert chromium.requests == [files["en"].as_uri(), "https://example.invalid/x.png"]
    assert chromium.blocked == ["csp"]
    assert any("Content Security Policy" in told for told in chromium.complaints)


def as_numbers(column: list[str]) -> list[float]:
    return [float(text) for text in column if text != "-"]


def test_a_click_sorts_a_column_both_ways_and_what_is_missing_stays_last(chromium: Page, files: dict[str, Path]) -> None:
    chromium.look_like(**DESKTOP)
    chromium.visit(files["en"])
    before = chromium.run(COLUMN.format(ENERGY))
    for order, backwards in (("ascending", False), ("descending", True)):
        chromium.run(f"{HEAD.format(ENERGY)}.querySelector('button').click()")
        column = chromium.run(COLUMN.format(ENERGY))
        assert chromium.run(f"{HEAD.format(ENERGY)}.getAttribute('aria-sort')") == order
        assert as_numbers(column) == sorted(as_numbers(before), reverse=backwards)
        missing = before.count("-")
        assert missing
        assert column[-missing:] == ["-"] * missing
    chromium.run(f"{HEAD.format(MODEL)}.querySelector('button').click()")
    assert chromium.run("document.querySelectorAll('.results [aria-sort]').length") == 1


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_keyboard_sorts_too(chromium: Page, files: dict[str, Path], key: str) -> None:
    chromium.visit(files["en"])
    chromium.run(f"{HEAD.format(ENERGY - 1)}.querySelector('button').focus()")
    chromium.press("Tab")
    assert chromium.run(f"document.activeElement === {HEAD.format(ENERGY)}.querySelector('button')")
    chromium.press(key)
    assert chromium.run(f"{HEAD.format(ENERGY)}.getAttribute('aria-sort')") == "ascending"
    column = as_numbers(chromium.run(COLUMN.format(ENERGY)))
    assert column == sorted(column)


@pytest.mark.parametrize("name", ["en", "zh", "hostile"])
@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_is_no_wider_than_the_window(chromium: Page, files: dict[str, Path], window: dict[str, Any], name: str) -> None:
    chromium.look_like(**window)
    chromium.visit(files[name])
    assert chromium.run("document.documentElement.scrollWidth") <= window["width"]


def test_on_a_phone_every_cell_says_what_it_is(chromium: Page, files: dict[str, Path]) -> None:
    chromium.look_like(**PHONE)
    chromium.visit(files["en"])
    label = "getComputedStyle(document.querySelector('#r0').cells[{}], '::before').content"
    assert chromium.run(label.format(5)) == '"Output, tok/s"'
    chromium.look_like(**DESKTOP)
    assert chromium.run(label.format(5)) == "none"


def test_it_is_dark_where_that_is_wished(chromium: Page, files: dict[str, Path]) -> None:
    seen = {}
    for dark in (False, True):
        chromium.look_like(**DESKTOP, dark=dark)
        chromium.visit(files["en"])
        colours = ("backgroundColor", "color")
        seen[dark] = [_light(chromium.run(f"getComputedStyle(document.body).{name}")) for name in colours]
        background, ink = seen[dark]
        assert abs(background - ink) > 150  # of 255: it can be read
    assert seen[False][0] > 200
    assert seen[True][0] < 60


def _light(colour: str) -> float:
    """Mean of `rgb(1, 2, 3)`."""
    return sum(map(float, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 3


def test_marks_lie_where_their_numbers_are(chromium: Page, files: dict[str, Path]) -> None:
    chromium.look_like(**DESKTOP)
    chromium.visit(files["en"])
    boxes = chromium.run(
        "[...document.querySelectorAll('#throughput .plot g use')].map(mark => mark.getBoundingClientRect()).map(b => [b.x, b.y])"
    )
    titles = chromium.run("[...document.querySelectorAll('#throughput .plot g title')].map(title => title.textContent)")
    numbers = [[float(part.split(" [")[0]) for part in title.split(": ")[1].split("; ")] for title in titles]
    for axis, side in ((0, 1), (1, -1)):
        order = sorted(range(len(boxes)), key=lambda at: side * boxes[at][axis])
        values = [numbers[at][axis] for at in order]
        assert all(later >= earlier * 0.97 for earlier, later in pairwise(values))


def test_it_can_be_printed(chromium: Page, files: dict[str, Path]) -> None:
    chromium.look_like(**DESKTOP, paper=True)
    chromium.visit(files["en"])
    assert chromium.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert chromium.pdf().startswith(b"%PDF")
