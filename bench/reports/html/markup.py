"""HTML and SVG as text in which every name, label and message is escaped. Pure."""

from __future__ import annotations

from html import escape

from bench.printable import printable

_VOID = frozenset({"meta", "br", "line", "circle", "rect", "use", "path"})


class Html(str):
    """Markup that is safe to put into a page as it is. Whatever is only a `str` is text from outside."""

    __slots__ = ()


Child = str | int | float | None
"""Text, or `Html`. None and "" leave nothing."""


def text(value: str | int | float) -> Html:
    """Text as a page shows it: markup in it is written out, and so is what would turn the direction of what follows."""
    return value if isinstance(value, Html) else Html(escape(printable(str(value))))


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """An element. `class_` is `class`, `_` in other names is `-`; False and None leave an attribute out."""
    inside = "".join(text(child) for child in children if child is not None)
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}"
    return Html(f"{opening}/>" if name in _VOID and not inside else f"{opening}>{inside}</{name}>")


def joined(*parts: Child) -> Html:
    """Pieces of a page, one after the other."""
    return Html("".join(text(part) for part in parts if part is not None))


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(value if isinstance(value, str) else f"{value:.6g}")}"'
