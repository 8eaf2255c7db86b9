"""Rows out of ShareGPT files: the first human turn is the prompt, the length of the answer to it is that of the reply."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from bench.load.data.rows import LONGEST_LINE_B, Here, Row, objects, open_file, text_tokens

_PIECE_B = 1 << 20
_HUMAN, _ANSWER = frozenset({"human", "user"}), frozenset({"gpt", "assistant", "chatgpt", "bing", "bard"})
_SPACE = " \t\n\r"


def sharegpt_rows(path: str) -> Iterator[Row]:
    """Conversations of a JSON array, or one a line. Those that don't begin with a question and its answer are left out.

    Raises: UsageError with the line.
    """
    records = array_entries(path) if begins_with(path, b"[") else objects(path)
    for here, record in records:
        turns = record.get("conversations", record.get("messages"))
        if not isinstance(turns, list):
            here.refuse("has no 'conversations': is this a ShareGPT file?")
        pair = _first_pair(here, turns)
        if pair is not None:
            yield Row(text=pair[0], input_tokens=text_tokens(pair[0]), output_tokens=text_tokens(pair[1]))


def begins_with(path: str, sign: bytes) -> bool:
    """Whether `sign` is the first thing in a file beside space."""
    with open_file(path) as file:
        return file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip().startswith(sign)


def _first_pair(here: Here, turns: list[Any]) -> tuple[str, str] | None:
    """Question and answer; a system turn may stand before them."""
    said: list[tuple[str, str]] = []
    for turn in turns[:3]:
        if not isinstance(turn, dict):
            here.refuse("a turn must be a JSON object")
        who, what = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if isinstance(who, str) and isinstance(what, str) and who != "system":
            said.append((who, what))
    if len(said) < 2 or said[0][0] not in _HUMAN or said[1][0] not in _ANSWER:
        return None
    question, answer = (_whole(text) for text in (said[0][1], said[1][1]))
    return (question, answer) if question.strip() and answer else None


def _whole(text: str) -> str:
    """`text` with halves of characters (lone surrogates, which JSON can spell) replaced: they can't be sent."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def array_entries(path: str) -> Iterator[tuple[Here, dict[str, Any]]]:
    """The objects of a JSON array, of which only one at a time is held. Raises: UsageError with line and entry."""
    reader = _Pieces(path)
    decoder = json.JSONDecoder()
    number = 0
    reader.skip("[")
    while not reader.at("]"):
        number += 1
        here = Here(path=path, line=reader.line, entry=number)
        record = reader.value(decoder, here)
        if not isinstance(record, dict):
            here.refuse("must be a JSON object, {...}")
        yield here, record
        if not reader.at("]"):
            reader.skip(",")


class _Pieces:
    """A text that is read piece by piece. `line` is that of the next character."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = open_file(path)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._next, self.line = "", 0, 1
        self._ended = False

    def at(self, sign: str) -> bool:
        """Whether `sign` comes next, after space."""
        self._pass_space()
        return self._text.startswith(sign, self._next)

    def skip(self, sign: str) -> None:
        """Pass over `sign`. Raises: UsageError where it doesn't come."""
        if not self.at(sign):
            found = self._text[self._next : self._next + 20]
            what = f"{found!r}" if found else "the end of the file: is it cut off?"
            Here(path=self._path, line=self.line).refuse(f"is not JSON: expected {sign!r}, found {what}")
        self._next += 1

    def value(self, decoder: json.JSONDecoder, here: Here) -> Any:
        """The next value. Raises: UsageError."""
        self._pass_space()
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._next)
            except (json.JSONDecodeError, RecursionError) as error:
                if self._ended or isinstance(error, RecursionError):
                    here.refuse(f"is not JSON: {error.args[0] if error.args else error}")
                if len(self._text) - self._next > LONGEST_LINE_B:
                    here.refuse(f"is longer than {LONGEST_LINE_B >> 20} MiB, or not JSON")
                self._more(len(self._text) - self._next)  # twice as much each time, so that a long entry isn't parsed too often
                continue
            self._pass_to(end)
            return value

    def _pass_space(self) -> None:
        while True:
            end = self._next
            while end < len(self._text) and self._text[end] in _SPACE:
                end += 1
            self._pass_to(end)
            if end < len(self._text) or self._ended:
                return
            self._more()

    def _pass_to(self, end: int) -> None:
        self.line += self._text.count("\n", self._next, end)
        self._next = end

    def _more(self, at_least: int = 0) -> None:
        data = self._file.read(max(_PIECE_B, at_least))
        self._ended = not data
        try:
            piece = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            line = self.line + self._text.count("\n", self._next) + data.count(b"\n", 0, error.start)
            Here(path=self._path, line=line).refuse("is not UTF-8: save the file as UTF-8")
        self._text, self._next = self._text[self._next :] + piece, 0
        if self._ended:
            self._file.close()
