"""What a row of a data set is, and how files are walked line by line with errors that name the line."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, NoReturn

import msgspec

from bench.errors import UsageError

LONGEST_LINE_B = 64 << 20
"""Memory stays bounded by this: longer lines, or entries of a JSON array, are refused."""
BYTES_PER_TOKEN = 4
"""UTF-8 bytes that a token of text is taken to have where nothing counts it: the same for every engine, so that each gets the
same prompts. English comes to a little over four, Chinese to between three and five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request as a data set describes it. `text` is None where only lengths are known, which are then exact; `blocks` name
    the parts of a prompt that other rows may share.
    """

    text: str | None
    input_tokens: int
    output_tokens: int | None
    stamp_s: float | None = None
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """A place in a file, for messages."""

    path: str
    line: int | None = None
    entry: int | None = None

    def refuse(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise UsageError with the place in front."""
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        entry = "" if self.entry is None else f"entry {self.entry} "
        raise UsageError(f"{place}: {entry}{message}", hint=hint)


def text_tokens(text: str) -> int:
    """Tokens that a text is taken to have; at least one."""
    size_b = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return max(1, -(-size_b // BYTES_PER_TOKEN))


def open_file(path: str) -> IO[bytes]:
    """A data file for reading. Raises: UsageError where it can't be."""
    file = Path(path)
    try:
        if file.is_dir():
            Here(path=path).refuse("is a folder, not a data file")
        if file.exists() and not file.is_file():
            # it is read to be checked and again for each trial; a pipe would also keep us waiting for its writer
            Here(path=path).refuse("is a pipe or a device, which can't be read twice", hint="write its content to a file")
        return file.open("rb")
    except FileNotFoundError:
        parent = file.parent
        names = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
        near = get_close_matches(file.name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "a path in a suite is seen from the suite's folder"
        raise UsageError(f"{path}: there is no such data file", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from error


def lines(path: str) -> Iterator[tuple[Here, bytes]]:
    """Every line that isn't blank, without its end. Raises: UsageError for one that is too long."""
    with open_file(path) as file:
        number = 0
        while raw := file.readline(LONGEST_LINE_B + 1):
            number += 1
            here = Here(path=path, line=number)
            if len(raw) > LONGEST_LINE_B:
                here.refuse(f"is longer than {LONGEST_LINE_B >> 20} MiB", hint="is it JSON Lines, one object a line?")
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if raw := raw.strip():
                yield here, raw


def objects(path: str) -> Iterator[tuple[Here, dict[str, Any]]]:
    """Every line as a JSON object. Raises: UsageError with the line."""
    for here, raw in lines(path):
        yield here, json_object(here, raw)


def json_object(here: Here, raw: bytes) -> dict[str, Any]:
    """One JSON object. Raises: UsageError."""
    try:
        value = msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        here.refuse(f"byte {error.start + 1} is not UTF-8: save the file as UTF-8")
    except msgspec.DecodeError as error:
        if not _is_utf8(raw):
            here.refuse("is not UTF-8: save the file as UTF-8")
        here.refuse(f"is not JSON: {error}")
    except RecursionError:
        here.refuse("is JSON nested too deeply")
    if not isinstance(value, dict):
        here.refuse("must be a JSON object, {...}")
    return value


def field_of(here: Here, row: dict[str, Any], name: str) -> Any:
    """A field by name. Raises: UsageError that names the nearest one there is."""
    if name not in row:
        refuse_column(here, name, list(row))
    return row[name]


def refuse_column(here: Here, name: str, known: list[str]) -> NoReturn:
    """Say that there is no such column, and which one may be meant."""
    spelled = {column.lower(): column for column in known}
    near = get_close_matches(name, known, n=1) or [spelled[k] for k in get_close_matches(name.lower(), spelled, n=1)]
    mend = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(map(repr, known[:20])) or 'none'}"
    here.refuse(f"there is no column {name!r}: {mend}")


def count_of(here: Here, name: str, value: Any, *, least: int = 1) -> int:
    """A number of tokens, also where a CSV has it as text. 0 counts as 1 where `least` is 0: no server takes a request of none.

    Raises: UsageError.
    """
    found = value
    if isinstance(value, str) and value.strip().isdecimal():
        found = int(value)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= 1_000_000_000:
        here.refuse(f"{name} must be a number of tokens, got {_shown(value)}")
    return max(1, found)


def prompt_of(here: Here, name: str, value: Any) -> str:
    """A prompt. Raises: UsageError where it is no text, or an empty one."""
    if not isinstance(value, str) or not value.strip():
        here.refuse(f"{name} must be text that is not empty, got {_shown(value)}")
    return value


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
