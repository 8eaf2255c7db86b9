"""A page taken apart with the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_ALONE = {"meta", "br", "line", "circle", "rect", "use", "path"}


@dataclass
class Element:
    """An element with its attributes, its own and its children's text."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def all(self, name: str, **attributes: str) -> list[Element]:
        """Every element below of that name whose attributes are these; `class_` is `class`."""
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        here = [self] if self.name == name and wanted.items() <= self.attributes.items() else []
        return here + [found for child in self.children for found in child.all(name, **attributes)]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, {key: value or "" for key, value in attrs})
        self.open[-1].children.append(made)
        if tag not in _ALONE:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _ALONE:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> ends a <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)


def parsed(page: bytes) -> Element:
    """The document; an element that is not closed fails."""
    builder = _Builder()
    builder.feed(page.decode())
    assert [element.name for element in builder.open] == ["document"]
    return builder.root
