"""A claim as people write it, taken apart: `4x H100 SXM, 142 QPS, 3.2 J/token, 78% memory`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from bench.analysis.claims import Claim, Figure, Scope
from bench.catalog import chips, models
from bench.catalog.chips import Chip
from bench.catalog.models import CatalogModel
from bench.errors import UsageError
from bench.precision import NAMES, nearest, spelled

EXAMPLE = '"4x H100 SXM, 142 QPS, 3.2 J/token, 78% memory"'
MOST_CHIPS = 100_000
_NUMBER = r"(?P<number>\d[\d,]*(?:\.\d+)?)"
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")
_TOKENS = r"(?:output[ -])?tok(?:en)?s?"
_PER = r"\s*(?:/|per|an?)\s*"
_QUERY = r"(?:query|queries|request|answer|prompt)"
_END = r"(?![\w/])"
_KILO = r"(?:\s*(?P<kilo>k))?"
_FIGURES = {
    "qps": rf"{_NUMBER}{_KILO}\s*(?:qps|rps|(?:quer(?:y|ies)|req(?:uests?)?){_PER}s(?:ec(?:ond)?)?){_END}",
    "tok_per_s": rf"{_NUMBER}{_KILO}\s*{_TOKENS}{_PER}s(?:ec(?:ond)?)?{_END}",
    "tokens": rf"{_NUMBER}\s*{_TOKENS}{_PER}{_QUERY}{_END}",
    "j_per_token": rf"{_NUMBER}\s*(?P<unit>m?J|joules?)(?:{_PER}{_TOKENS})?{_END}",
    "power_w": rf"{_NUMBER}\s*(?P<unit>k?W|watts?){_END}(?P<each>\s+(?:each|a chip|per (?:chip|gpu|device|card)))?",
    "memory": rf"{_NUMBER}\s*%(?:\s*(?:of\s+)?(?:gpu\s+)?(?:memory|mem|vram)(?:\s+us(?:ed?|age))?)?",
}
_SERVER = r"(?:server|node|system|machine)"
_SCOPES: dict[Scope, str] = {
    "devices": rf"(?:gpus?|chips?|devices?|boards?|accelerators?)(?:[ -](?:only|alone)){_END}",
    "server": rf"(?:the\s+)?(?:wall|(?:(?:whole|entire|full)\s+)?{_SERVER})(?:[ -](?:power|only))?{_END}",
}
"""Whose power and joules are meant: `GPUs only`, `at the wall`, `of the whole server`."""
_BATCH = re.compile(r"batch(?:[ _-]?size)?\s*[=:]?\s*(\d+)(?![\d.])", re.IGNORECASE)
_SECONDS = re.compile(r"\d+(?:\.\d+)?\s*(?:s|sec|seconds|min)\b", re.IGNORECASE)
_COUNT = re.compile(r"(\d+)\s*(?:[x*\u00d7]\s*|\s)(?=[A-Za-z])", re.IGNORECASE)
_FILLERS = r"(?:and|with|at|on|of)\b|(?:gpus?|chips?|cards?|accelerators?)\b(?![ -](?:only|alone))"
_BETWEEN = re.compile(rf"(?:[\s,;:+|()]|{_FILLERS})+", re.IGNORECASE)
_WORD = re.compile(r"[^\s,;:+|]+")
_WHERE_CHIPS_ARE = re.compile(rf"(?:\s+(?:gpus?|chips?|cards?))?\s+{_SERVER}s?{_END}(?!\s+(?:power|only))", re.IGNORECASE)
"""`4x H100 SXM node`: no word on whose joules they are."""
_MOST_SHOWN = 40
_LONGEST_NAME = 6
"""Words of the longest name of a chip or a model."""
_NAME = re.compile(r"[a-z]+-?\d[\w.-]*", re.IGNORECASE)
"""What reads like the name of a chip, a model or a precision."""
_VERSIONED = re.compile(r"[^\s,;:+|]+(?:\s+v?\d[\d.]*[bm]?(?![^\s,;:+|]))*", re.IGNORECASE)
"""`Llama 3.1 405B`."""


@dataclass(slots=True, kw_only=True)
class Said:
    """What has been understood so far; the flags of a command set fields of it too."""

    chips: list[Chip] = field(default_factory=list)
    figures: dict[str, Figure] = field(default_factory=dict)
    scope: Scope | None = None
    batch: int | None = None
    model: CatalogModel | None = None
    precision: str | None = None
    assumed: list[str] = field(default_factory=list)
    each_w: Figure | None = None

    def claim(self) -> Claim:
        """All of it. Raises: UsageError where no chip was named."""
        if not self.chips:
            raise UsageError("the claim names no chip", hint=f"for example: bench check-claim {EXAMPLE}")
        figures = dict(self.figures)
        if self.each_w is not None:
            figures["power_w"] = _scaled(self.each_w, len(self.chips))
        return Claim(
            chips=tuple(self.chips),
            scope=self.scope,
            batch=self.batch,
            model=self.model,
            precision=self.precision,
            assumed=tuple(self.assumed),
            **figures,
        )

    def replace(self, name: str, text: str) -> None:
        """Set what a flag says in place of what the text says. Raises: UsageError."""
        if name == "batch":
            self.batch = positive_count(text, "--batch-size")
        elif name == "model":
            self.model = known_model(text)
        elif name == "precision":
            self.precision = known_precision(text)
        else:
            thousands = name in ("qps", "tok_per_s") and text.lower().endswith("k")
            factor = 0.01 if name == "memory" else 1e3 if thousands else 1.0
            self.figures[name] = _scaled(figure(text[:-1] if thousands else text.removesuffix("%"), name), factor)
            self.each_w = None if name == "power_w" else self.each_w

    def add_chips(self, name: str, count: int) -> None:
        """`count` of the chip that a person calls `name`. Raises: UsageError (none is called so, or nobody has so many)."""
        found = chips.spoken(name)
        if not found:
            raise _no_chip(name)
        if not 0 < count <= MOST_CHIPS - len(self.chips):
            raise UsageError(f"{count} is no number of chips", hint=f"1 to {MOST_CHIPS}")
        chip = max(found, key=lambda one: (one.tdp_w or 0.0, one.bandwidth_tb_s or 0.0))
        if len(found) > 1:
            self.assumed.append(f"{name} is read as {chip.name}, which allows more than {_others(found, chip)}")
        self.chips += [chip] * count


def _others(found: Iterable[Chip], chosen: Chip) -> str:
    return " and ".join(chip.name for chip in found if chip is not chosen)


def read(text: str) -> Said:
    """Take a claim apart. Raises: UsageError that names the first words which say nothing."""
    said, place = Said(), 0
    while place < len(text):
        between = _BETWEEN.match(text, place)
        after = between.end() if between else _one(text, place, said)
        if after == place:
            raise _unread(text, place)
        place = after
    return said


def _unread(text: str, place: int) -> UsageError:
    """The words at `place` that say nothing: a model or a chip that the catalogue lacks, where they read like one."""
    word, counted = _WORD.match(text, place), _COUNT.match(text, place)
    what = word.group() if word else text[place:]
    counts = _WORD.match(text, counted.end()) if counted else None
    if (named := _VERSIONED.match(text, place)) and what.lower().startswith(models.families()):
        return _no_model(named.group())
    if counts and _NAME.fullmatch(counts.group()):
        return _no_chip(counts.group())
    if _NAME.fullmatch(what):
        near = nearest(what) or chips.nearest(what) or models.nearest(what)
        hint = f"did you mean {near!r}?" if near else f"as in: {EXAMPLE}"
        return UsageError(f"{what[:_MOST_SHOWN]!r} is no chip, model or precision of the catalogue", hint=hint)
    return UsageError(f"{what!r} in the claim says nothing that can be checked", hint=f"as in: {EXAMPLE}")


def _no_chip(name: str) -> UsageError:
    near = chips.nearest(name)
    hint = f"did you mean {near!r}?" if near else f"as in: {EXAMPLE}"
    return UsageError(f"the catalogue has no chip {name[:_MOST_SHOWN]!r}", hint=hint)


def _no_model(name: str) -> UsageError:
    near = models.nearest(name)
    return UsageError(f"the catalogue has no model {name!r}", hint=f"did you mean {near!r}?" if near else "bench models list")


def _one(text: str, place: int, said: Said) -> int:
    """Read one figure or name at `place`; where it ends, or `place` where there is none."""
    for name, pattern in _FIGURES.items():
        if found := re.compile(pattern, re.IGNORECASE).match(text, place):
            _take(name, found, said)
            return found.end()
    if found := _BATCH.match(text, place):
        _once(said.batch, found.group())
        said.batch = positive_count(found[1], "batch")
        return found.end()
    for scope, pattern in _SCOPES.items():
        if found := re.compile(pattern, re.IGNORECASE).match(text, place):
            if said.scope not in (None, scope):
                raise UsageError("the claim is about the devices alone and about the server", hint="check one claim at a time")
            said.scope = scope
            return found.end()
    if found := _SECONDS.match(text, place):  # how long it took says nothing of what is checked here
        return found.end()
    counted = _COUNT.match(text, place)
    for start, count in ((counted.end(), int(counted[1][:16])),) if counted else ((place, 1),):
        if end := _chip(text, start, count, said):
            where = _WHERE_CHIPS_ARE.match(text, end)
            return where.end() if where else end
    return _model_or_precision(text, place, said)


def _take(name: str, found: re.Match[str], said: Said) -> None:
    groups = found.groupdict()
    value, unit = figure(groups["number"], name), (groups.get("unit") or "").lower()
    factor = 1e3 if unit == "kw" or groups.get("kilo") else 1e-3 if unit == "mj" else 0.01 if name == "memory" else 1.0
    _once(said.figures.get(name) or (said.each_w if name == "power_w" else None), found.group())
    if groups.get("each"):
        said.each_w = _scaled(value, factor)
    else:
        said.figures[name] = _scaled(value, factor)


def _once(known: object, text: str) -> None:
    """Refuses a second figure or name of one kind."""
    if known is not None:
        raise UsageError(f"{text.strip()[:_MOST_SHOWN]!r}: the claim gives that figure twice", hint="check one claim at a time")


def _chip(text: str, place: int, count: int, said: Said) -> int | None:
    """The longest name of a chip at `place`: where it ends."""
    for name in _names(text, place):
        for spelling in (name, name.removesuffix("s")):
            if chips.spoken(spelling):
                said.add_chips(spelling, count)
                return place + len(name)
    return None


def _model_or_precision(text: str, place: int, said: Said) -> int:
    word = _WORD.match(text, place)
    if word is not None and spelled(word.group()) in NAMES:
        _once(said.precision, word.group())
        said.precision = spelled(word.group())
        return word.end()
    for name in _names(text, place):
        if (model := named_model(name)) is not None:
            _once(said.model, name)
            said.model = model
            return place + len(name)
    return place


def _names(text: str, place: int) -> Iterator[str]:
    """What may be a name at `place`, the longest first: words with only blanks between them."""
    ends = [word.end() for word in _WORD.finditer(text, place, min(len(text), place + 80))][:_LONGEST_NAME]
    names = [text[place:end] for end in reversed(ends)]
    yield from (name for name in names if not any(mark in name for mark in ",;:+|"))


# --- what flags and text share ------------------------------------------------------------------------------------------


def figure(text: str, what: str) -> Figure:
    """A number as written, and what may be written so: half of its last digit either way. Raises: UsageError."""
    if "," in text and not _THOUSANDS.fullmatch(text.strip()):
        raise UsageError(f"{what} {text[:_MOST_SHOWN]!r} has a comma that parts no thousands", hint="write 3.2 and 10,401")
    try:
        number = Decimal(text.replace(",", ""))
    except InvalidOperation:
        raise UsageError(f"{what} {text!r} is no number", hint="such as 142 or 3.2") from None
    exponent = number.as_tuple().exponent
    if not number.is_finite() or number <= 0 or not isinstance(exponent, int) or not 1 <= number * 10**15 <= 10**30:
        raise UsageError(f"{what} {text[:_MOST_SHOWN]!r} is no number above zero, from 1e-15 to 1e15", hint="such as 142 or 3.2")
    half = float(Decimal(5).scaleb(exponent - 1))
    return Figure(value=float(number), low=float(number) - half, high=float(number) + half)


def positive_count(text: str, what: str) -> int:
    """A whole number above zero. Raises: UsageError."""
    if not text.isdecimal() or len(text) > 16 or not 0 < int(text) < 10**9:
        raise UsageError(f"{what} {text[:_MOST_SHOWN]!r} is no whole number above zero", hint="such as 8")
    return int(text)


def known_model(name: str) -> CatalogModel:
    """A model of the catalogue. Raises: UsageError."""
    model = named_model(name)
    if model is None:
        raise _no_model(name)
    return model


def named_model(name: str) -> CatalogModel | None:
    """A model by its name, whatever its case and hyphens: `LLaMA2-13B`, `llama-2-13b`."""
    bare = re.sub(r"[^a-z0-9.]", "", name.lower())
    return next((model for model in models.all_models() if re.sub(r"[^a-z0-9.]", "", model.name) == bare), None)


def known_precision(name: str) -> str:
    """A precision of the vocabulary. Raises: UsageError."""
    word = spelled(name)
    if word not in NAMES:
        near = nearest(name)
        raise UsageError(f"{name!r} is no precision", hint=f"did you mean {near!r}?" if near else f"one of: {', '.join(NAMES)}")
    return word


def _scaled(one: Figure, factor: float) -> Figure:
    return Figure(value=one.value * factor, low=one.low * factor, high=one.high * factor)
