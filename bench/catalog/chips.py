"""Accelerators: dense peaks, bandwidth, memory and rated power, and which of them a device is. The data is `chips.yaml` beside
this file; no network is touched.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from bench.records import DeviceInfo
from bench.units import BYTES_PER_GIB

_FILE = Path(__file__).with_name("chips.yaml")
Confidence = Literal["datasheet", "press", "estimate"]
Format = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp6", "fp4"]
Figure = Literal["memory_gb", "bandwidth_tb_s", "tflops", "tdp_w", "limit_w", "link_gb_s"]
_Positive = Annotated[float, msgspec.Meta(gt=0)]

LIMIT_SLACK = 0.01
"""Power limits within this share of a rating are that rating."""
_MEMORY_LOW_B, _MEMORY_HIGH_B = 0.88e9, 1.02 * BYTES_PER_GIB
"""What a driver may tell of a `GB` that is sold: decimal ones less what ECC and firmware keep, up to binary ones."""
_VENDOR_WORDS = frozenset(
    ("nvidia", "amd", "instinct", "intel", "huawei", "google", "cambricon", "metax", "enflame", "biren", "iluvatar", "apple")
)


_SIZE = re.compile(r"(\d+)gb")
_NUMBERED = re.compile(r"\d")
_FORM = re.compile(r"-(sxm|pcie|nvl)")


class Chip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator as its driver shows it. `tflops`: dense TFLOP/s by format (int8: TOP/s); `memory_gb`: sizes sold under the
    name; `tdp_w`: rated power; `limit_w`: the highest power limit that boards of it come with, where that is above the rating.
    `less_sure` holds the figures whose confidence is below `confidence`. None: not known.
    """

    name: str
    vendor: str
    names: tuple[str, ...] = ()
    memory_gb: Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)]
    bandwidth_tb_s: _Positive | None = None
    tflops: dict[Format, _Positive] = {}
    tdp_w: _Positive | None = None
    limit_w: _Positive | None = None
    link_gb_s: _Positive | None = None
    confidence: Confidence
    less_sure: dict[Figure, Confidence] = {}
    source: str
    checked: tuple[str, ...] = ()

    def confidence_of(self, figure: Figure) -> Confidence:
        """How sure one figure is."""
        return self.less_sure.get(figure, self.confidence)

    @property
    def most_w(self) -> float | None:
        """The most that a board of it may be set to draw [W]; None where not even its rating is known."""
        return None if self.tdp_w is None else max(self.tdp_w, self.limit_w or 0.0)

    def board_w(self, limit_w: float | None) -> float | None:
        """What a board is rated at that tells this power limit [W]: a limit can be set below the rating, but none above it that
        its maker did not mean. A limit above both figures is another one's, such as that of a card of two dies.
        """
        if self.tdp_w is None or limit_w is None or self.most_w is None:
            return self.tdp_w
        return limit_w if self.tdp_w < limit_w <= self.most_w * (1 + LIMIT_SLACK) else self.tdp_w

    @property
    def most_memory_b(self) -> float:
        """The largest of its sizes with every `GB` a binary one, as HBM is made; a board has this much or a little less."""
        return max(self.memory_gb) * BYTES_PER_GIB

    def calls_itself(self, name: str) -> bool:
        """Whether its driver may tell this name."""
        return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in self.names)

    def may_have(self, memory_b: int) -> bool:
        """Whether one of its sizes is what a driver calls `memory_b`."""
        return any(size * _MEMORY_LOW_B <= memory_b <= size * _MEMORY_HIGH_B for size in self.memory_gb)


class _Unknown(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: str
    why: str


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    chips: tuple[Chip, ...]
    unknown: tuple[_Unknown, ...]


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """The chip that a device is, or why that can't be told."""

    chip: Chip | None = None
    reason: str | None = None


@cache
def _file() -> _File:
    import yaml  # slow to import, and most commands ask for no chip

    return msgspec.convert(yaml.safe_load(_FILE.read_text(encoding="utf-8")), _File)


def all_chips() -> tuple[Chip, ...]:
    """Every chip, in the order of the file."""
    return _file().chips


def why_unknown(name: str) -> str | None:
    """Why a device of this name is in no chip's place on purpose; None where nobody thought of it."""
    return next((one.why for one in _file().unknown if re.fullmatch(one.names, name, re.IGNORECASE)), None)


def identify(device: DeviceInfo) -> Identified:
    """Which chip a device is, by its name; by its memory and power limit where several chips have that name.

    A slice of a board, or one shared with others, is not the whole chip and gets a reason.
    """
    if device.shared is not None:
        return Identified(reason=f"{device.name} is not the whole chip: {device.shared}")
    named = [chip for chip in all_chips() if chip.calls_itself(device.name)]
    if not named:
        return Identified(reason=f"{device.name}: {why_unknown(device.name) or 'the catalogue has no such chip'}")
    total_b = device.memory_total_b
    left = named if total_b is None else [chip for chip in named if chip.may_have(total_b)]
    if not left:
        sizes = " or ".join(f"{size:g}" for chip in named for size in chip.memory_gb)
        return Identified(reason=f"{device.name} tells {(total_b or 0) / 1e9:.1f} GB of memory, in the catalogue it has {sizes}")
    if len(left) > 1 and device.power_limit_w is not None:
        left = _by_limit(left, device.power_limit_w)
    if len(left) > 1:
        names = " or ".join(chip.name for chip in left)
        return Identified(reason=f"{device.name} may be {names}: neither memory nor power limit tells")
    return Identified(chip=left[0])


def _by_limit(chips: list[Chip], limit_w: float) -> list[Chip]:
    """The chip whose rating is the limit; else those that can be set to it: no higher than boards of it come with."""
    exact = [chip for chip in chips if chip.tdp_w and abs(chip.tdp_w - limit_w) <= LIMIT_SLACK * chip.tdp_w]
    if len(exact) == 1:
        return exact
    able = [chip for chip in chips if chip.most_w is None or chip.most_w >= limit_w]
    return able or chips


# --- by the names that people use ---------------------------------------------------------------------------------------


def spoken(name: str) -> tuple[Chip, ...]:
    """The chips that a person may mean: `H100 SXM` is one, `H100` three, `910B` all that begin so; a driver's name is one too.
    None of them where the catalogue has no such chip, and of a part of a name that has no number.
    """
    exact = tuple(chip for chip in all_chips() if chip.calls_itself(name.strip()))
    if exact:
        return exact
    words = [word for word in _words(name) if word not in _VENDOR_WORDS]
    sizes = [float(found[1]) for word in words if (found := _SIZE.fullmatch(word))]
    wanted = [word for word in words if not _SIZE.fullmatch(word)]
    able = [chip for chip in all_chips() if wanted and all(size in chip.memory_gb for size in sizes)]
    if not any(map(_NUMBERED.search, wanted)):  # `Rubin` is a whole name; `GPU`, `Max` and `SXM` are words of many
        return tuple(chip for chip in able if _words(chip.name) == wanted)
    whole = tuple(chip for chip in able if set(wanted) <= set(_words(chip.name)))
    return whole or tuple(chip for chip in able if all(any(own.startswith(word) for own in _words(chip.name)) for word in wanted))


def _words(name: str) -> list[str]:
    return _FORM.sub(r" \1", name.lower()).split()


def nearest(name: str) -> str | None:
    """The catalogue's name most like `name`, or the part of one that `spoken` takes (`H100`); None if none is close."""
    names = [chip.name for chip in all_chips()]
    parts = [name.split()[0] for name in names]
    by_lower = {one.lower(): one for one in (*(part for part in parts if _NUMBERED.search(part)), *names)}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[near[0]] if near else None
