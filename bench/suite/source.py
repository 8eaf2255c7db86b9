"""YAML text to `Written` values: keeps the line of every key, refuses what YAML would let slip (duplicate keys, alias bombs)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from bench.errors import SuiteError
from bench.suite.written import Place, Problems, Written

_LARGEST_FILE_B = 1 << 20
_MOST_NODES = 100_000
_DEEPEST = 16
_MERGE_TAG = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """The safe loader, without dates: `2026-01-31` stays text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_text(path: Path, shown_as: str) -> str:
    """The text of a suite file.

    Raises: SuiteError for a folder, a missing or unreadable file, one that is too large, or that is not UTF-8.
    """
    if path.is_dir():
        raise SuiteError(f"{shown_as}:1: is a folder, not a suite file", hint=f"name a file in it: {shown_as}/NAME.yaml")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE_B + 1)  # what never ends, such as /dev/zero, is not read to its end
    except OSError as error:
        raise SuiteError(f"{shown_as}:1: can't be read: {error.strerror}") from error
    if len(data) > _LARGEST_FILE_B:
        raise SuiteError(f"{shown_as}:1: is too large: a suite has at most {_LARGEST_FILE_B:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SuiteError(f"{shown_as}:{line}: byte 0x{data[error.start]:02x} is not UTF-8: save the file as UTF-8") from error


def parse(text: str, shown_as: str, problems: Problems) -> Written:
    """The document of a suite. Duplicate keys are added to `problems`; the first one written counts.

    Raises: SuiteError for text that is not YAML, a second document, too many nodes or levels.
    """
    node = _compose(text, shown_as)
    if node is None:
        return Written(value=None, place=Place(line=1, text=f"{shown_as}:1"))
    return _Reader(shown_as, problems).read(node, depth=0)


def _compose(text: str, shown_as: str) -> yaml.Node | None:
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise SuiteError(f"{shown_as}:{line}: {_explain(error)}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SuiteError(f"{shown_as}:{line}: character 0x{ord(text[error.position]):02x} is not allowed in YAML") from error
    except RecursionError as error:
        raise SuiteError(f"{shown_as}:1: nested deeper than {_DEEPEST} levels") from error
    finally:
        if loader is not None:
            loader.dispose()


def _explain(error: yaml.MarkedYAMLError) -> str:
    what = error.problem or "not YAML"
    if "'\\t'" in what:
        return "a tab: YAML is indented with spaces"
    if "another document" in what:
        return "a second document begins: write one suite a file"
    return f"not YAML: {what}" + (f" ({error.context})" if error.context else "")


class _Reader:
    """Walks the nodes once, counting them: aliases that multiply, or that hold themselves, end here."""

    def __init__(self, shown_as: str, problems: Problems) -> None:
        self._shown_as = shown_as
        self._problems = problems
        self._constructor = yaml.constructor.SafeConstructor()
        self._seen = 0

    def read(self, node: yaml.Node, depth: int, place: Place | None = None) -> Written:
        here = place or self._place(node)
        self._seen += 1
        if self._seen > _MOST_NODES:
            raise SuiteError(f"{here.text}: aliases expand to more than {_MOST_NODES:,} values")
        if depth > _DEEPEST:
            raise SuiteError(f"{here.text}: nested deeper than {_DEEPEST} levels")
        if isinstance(node, yaml.MappingNode):
            return Written(value=self._mapping(node, depth), place=here)
        if isinstance(node, yaml.SequenceNode):
            return Written(value=[self.read(item, depth + 1) for item in node.value], place=here)
        return Written(value=self._scalar(node, here), place=here)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Written]:
        entries: dict[str, Written] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if key_node.tag == _MERGE_TAG:
                self._problems.add(place, "merge keys ('<<') are not part of the format: put shared keys under 'defaults'")
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._problems.add(place, "a key must be a plain word")
                continue
            key = str(key_node.value)
            if key in entries:
                self._problems.add(place, f"key {key!r} is written twice, first in line {entries[key].place.line}")
                continue
            entries[key] = self.read(value_node, depth + 1, place)
        return entries

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        if not node.tag.startswith("tag:yaml.org,2002:"):
            self._problems.add(place, f"tag {node.tag!r} is not part of the format")
            return None
        try:
            value = self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            # `!!int x`, or an integer with more digits than Python parses (`sys.get_int_max_str_digits`)
            self._problems.add(place, f"{str(node.value)[:40]!r} can't be read as a YAML value: {str(error).splitlines()[0]}")
            return None
        if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            self._problems.add(place, f"{value[:40]!r} holds half a character (a lone surrogate)")
            return None
        if isinstance(value, int) and abs(value) > sys.maxsize:
            self._problems.add(place, f"{str(node.value)[:40]} is too large a number")
            return None
        return value

    def _place(self, node: yaml.Node) -> Place:
        line = node.start_mark.line + 1
        return Place(line=line, text=f"{self._shown_as}:{line}")
