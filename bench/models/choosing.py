"""Which of the catalogue's sources of a model serves a precision, in an engine that reads certain formats. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bench.catalog.models import CatalogModel
from bench.errors import UsageError
from bench.models.source import Source, conversion, parse
from bench.precision import spelled

_PLAIN = ("bf16", "fp16")
"""Engines cast between the two as they load, so one set of files serves both."""
OF_PLAIN = frozenset({*_PLAIN, "fp32", "tf32", "fp8", "int8", "nvfp4"})
"""What engines that read safetensors make of plain 16-bit weights as they load, or refuse by themselves."""


def choose_source(model: CatalogModel, precision: str | None, formats: Sequence[str]) -> Source:
    """The model's source for `precision` (the first one if None) in one of `formats` (any if empty), or what can be made of
    another one.

    Raises: UsageError with what the catalogue has.
    """
    known = {word: parse(entry.source) for word, entry in model.sources.items()}
    word = None if precision is None else spelled(precision)
    for stored in known if word is None else (word, *_stored_as(word, formats)):
        if stored in known and (not formats or _format_of(known[stored]) in formats):
            return known[stored]
    gguf = next((source for source in known.values() if _format_of(source) == "gguf"), None)
    to = None if word is None else _made_for(word, formats)
    if gguf is not None and to is not None:
        return conversion(to, gguf)
    raise _nothing_fits(model.name, known, word, formats, can_convert=gguf is not None)


def _stored_as(precision: str, formats: Sequence[str]) -> tuple[str, ...]:
    """Other precisions whose files serve this one."""
    serves = OF_PLAIN if "safetensors" in formats else frozenset() if formats else frozenset(_PLAIN)
    return _PLAIN if precision in serves else ()


def _made_for(precision: str, formats: Sequence[str]) -> Literal["safetensors", "gguf"] | None:
    """The format in which converted weights serve `precision` in an engine that reads `formats`."""
    if "safetensors" in formats and precision in OF_PLAIN:
        return "safetensors"
    return "gguf" if "gguf" in formats and precision == "bf16" else None


def _format_of(source: Source) -> str:
    """The format of a catalogue's source: a whole repository holds safetensors."""
    return source.format or "safetensors"


def _nothing_fits(
    name: str, known: dict[str, Source], precision: str | None, formats: Sequence[str], *, can_convert: bool
) -> UsageError:
    has = ", ".join(f"{word} ({_format_of(source)})" for word, source in known.items())
    where = f" in the format {' or '.join(formats)}" if formats else ""
    make = "write precision: bf16" if formats else f"run `bench models convert {name} --to safetensors`"
    what = f"it has {has}; {f'{make} for what can be made of them, or ' if can_convert else ''}"
    return UsageError(
        f"the catalogue has no {f'{precision} ' if precision else ''}weights of {name}{where}",
        hint=f"{what}name other weights by their source, such as hf:ORG/REPO@REVISION",
    )
