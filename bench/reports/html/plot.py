"""Charts as SVG that is as wide as the page: places are percentages and text keeps its size, so one drawing serves a phone, a
desktop and paper. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.scale import Scale, tick_text

COLOURS = 7
"""Colours of the style sheet (`.s0` to `.s6`), told apart with any kind of colour vision (Okabe and Ito 2008)."""
_PLANE = 1000
_SHAPES = (
    "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0z",
    "M-3.5,-3.5h7v7h-7z",
    "M0,-4.6L4.4,3.4H-4.4z",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,4.6L4.4,-3.4H-4.4z",
    "M-1.5,-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
)


def symbols() -> Html:
    """The marks that charts refer to, once a page."""
    return tag(
        "svg", *(tag("path", id=f"m{at}", d=shape) for at, shape in enumerate(_SHAPES)), class_="symbols", aria_hidden="true"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How the marks of one thing look, in every chart alike."""

    colour: int
    shape: int


def style_at(place: int) -> Style:
    """Forty-two that differ."""
    return Style(colour=place % COLOURS, shape=place % len(_SHAPES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The plane of a chart."""

    x: Scale
    y: Scale

    def mark(self, x: float, y: float, style: Style, *, title: str, weak: bool = False) -> Html:
        """A point that says `title` under the pointer; `weak` ones are hollow."""
        use = tag("use", href=f"#m{style.shape}", x=self.px(x), y=self.py(y))
        return tag("g", tag("title", title), use, class_=f"s{style.colour}{' w' if weak else ''}")

    def segment(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> Html:
        """A straight line."""
        return tag("line", x1=self.px(x1), y1=self.py(y1), x2=self.px(x2), y2=self.py(y2), class_=class_)

    def label(self, x: float, y: float, words: str, *, class_: str, dx: float = 0, dy: float = 0, end: bool = False) -> Html:
        """Text beside a place."""
        anchor = "end" if end else None
        return tag("text", words, x=self.px(x), y=self.py(y), dx=dx, dy=dy, class_=class_, text_anchor=anchor)

    def path(self, steps: Iterable[str], class_: str) -> Html | None:
        """Lines through places made by `to`; nothing for none. They go into a `plane`."""
        drawn = "".join(steps)
        return tag("path", d=drawn, class_=class_) if drawn else None

    def to(self, command: str, x: float, y: float) -> str:
        """A step of a path: `M` goes there, `L` draws a line there, `H` one to that x, `V` one to that y."""
        across, down = f"{_PLANE * self.x.share(x):.1f}", f"{_PLANE * (1.0 - self.y.share(y)):.1f}"
        return command + {"H": across, "V": down}.get(command, f"{across} {down}")

    def px(self, x: float) -> str:
        return percent(self.x.share(x))

    def py(self, y: float) -> str:
        return percent(1.0 - self.y.share(y))


def plane(*paths: Html | None) -> Html:
    """Paths over the whole chart, whatever its size."""
    box = f"0 0 {_PLANE} {_PLANE}"
    return tag("svg", *paths, viewBox=box, preserveAspectRatio="none", width="100%", height="100%")


def percent(share: float) -> str:
    """`43.2%`."""
    return f"{100.0 * share:.2f}".rstrip("0").rstrip(".") + "%"


def plot(
    axes: Axes, marks: Iterable[Html], *, x_title: str, y_title: str, says: str, x_text: Callable[[float], str] = tick_text
) -> Html:
    """A chart with its axes. `says`: what it shows, for who can't see it."""
    return tag(
        "div",
        tag("svg", _grid(axes, x_text), *marks, role="img", aria_label=says),
        tag("p", y_title, class_="yt", aria_hidden="true"),
        tag("p", x_title, class_="xt", aria_hidden="true"),
        class_="plot",
    )


def figure(title: str, *parts: Html, note: str = "", class_: str = "chart") -> Html:
    """A chart under its title, with a note below it."""
    return tag("figure", tag("figcaption", title), *parts, tag("p", note, class_="note") if note else None, class_=class_)


def key(entries: Iterable[tuple[Style, str]], weak: str | None = None) -> Html:
    """What each mark stands for; that of `weak` is hollow."""
    made = (
        tag("li", tag("svg", tag("use", href=f"#m{style.shape}"), class_=_key_class(style, words == weak)), words)
        for style, words in entries
    )
    return tag("ul", *made, class_="key")


def _key_class(style: Style, weak: bool) -> str:
    return f"k s{style.colour}{' w' if weak else ''}"


def _grid(axes: Axes, x_text: Callable[[float], str]) -> Html:
    across = (
        joined(
            tag("line", x1="0", x2="100%", y1=axes.py(y), y2=axes.py(y), class_="g"),
            tag("text", tick_text(y), x="-8", y=axes.py(y), dy="4", text_anchor="end"),
        )
        for y in axes.y.ticks
    )
    up = (
        joined(
            tag("line", y1="0", y2="100%", x1=axes.px(x), x2=axes.px(x), class_="g"),
            tag("text", x_text(x), x=axes.px(x), y="100%", dy="17", text_anchor="middle"),
        )
        for x in axes.x.ticks
    )
    return tag("g", *across, *up, aria_hidden="true")
