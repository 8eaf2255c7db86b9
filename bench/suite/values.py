"""Types of one value: what each accepts, in words for the person who wrote it, and the same as JSON Schema."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from bench.image_name import check_pinned
from bench.records import LengthSpec, Search, Slo
from bench.units import parse_duration_s

_DURATION_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*([mM][sS]|[sS]|[sS][eE][cC]|[mM]|[mM][iI][nN]|[hH])?\s*$"
_ZERO_PATTERN = r"^\s*0+(\.0+)?\s*[a-zA-Z]*\s*$"
SloName = Literal["ttft", "tpot", "e2e"]
_FASTEST_RATE = 1_000_000
MOST_REPEATS = 10_000
_LONGEST_TOKENS = 10_000_000
MOST_IN_FLIGHT = 100_000
"""Each is a connection of its own, beyond what one machine's ports allow to one address."""
_SLO = r"(ttft|tpot|e2e):([0-9]+(?:\.[0-9]+)?)"
_WORD = r"[^\x00-\x20\x7f]"
TEXT_PATTERN = rf"^{_WORD}([^\x00-\x1f\x7f]*{_WORD})?$"
"""Text on one line, without control characters and without spaces around it."""


def require_text(value: Any) -> Any:
    """Refuse what YAML read as a number or a truth value, with the mend. Raises: ValueError."""
    if isinstance(value, int | float):
        raise ValueError("must be text: quote it")
    return value


def _whole(value: Any) -> Any:
    """4.0 is 4; "4" and true are not numbers."""
    if isinstance(value, float) and value.is_integer() and abs(value) < sys.maxsize:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"must be a whole number{_number_hint(value)}")


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < sys.maxsize:
        raise ValueError(f"must be a number{_number_hint(value)}")
    return float(value) + 0.0  # no negative zero


def _number_hint(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", value.strip(), re.IGNORECASE):
        return ": write it plainly, without quotes or exponent"
    return ""


def _rate(value: Any) -> Any:
    if value in ("inf", math.inf):
        return math.inf
    rate = _number(value)
    if rate > _FASTEST_RATE:
        raise ValueError(f"must be at most {_FASTEST_RATE:,} a second, or inf for all at once")
    return rate


def _duration(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a duration: write 300s, 5m or 1h")
    if isinstance(value, int):
        value = min(value, sys.maxsize)
    return parse_duration_s(value) + 0.0  # no negative zero


def _length(value: Any) -> Any:
    return value if isinstance(value, dict) else {"mean": value}


def _devices(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
    return [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in items]


def _spread_lengths(lengths: Lengths) -> LengthSpec:
    if lengths.dist == "fixed" and lengths.spread > 0:
        raise ValueError("a spread needs a dist: add dist: uniform, normal or lognormal")
    if lengths.dist == "uniform" and lengths.spread > 1:
        raise ValueError("a uniform spread is at most 1 (mean +- 100%)")
    if lengths.dist != "fixed" and lengths.spread == 0:
        raise ValueError(f"dist {lengths.dist} needs a spread: add spread: 0.5, or write the mean alone")
    return LengthSpec(dist=lengths.dist, mean=lengths.mean, spread=lengths.spread)


def _unlike_devices(devices: list[str]) -> tuple[str, ...]:
    twice = [name for name, count in Counter(devices).items() if count > 1]
    if twice:
        raise ValueError(f"lists {twice[0]!r} twice")
    return tuple(devices)


def _limits(value: list[tuple[SloName, float]] | dict[SloName, float]) -> tuple[Slo, ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"limits {twice[0]} twice")
    return tuple(Slo(metric=metric, limit_ms=limit_ms) for metric, limit_ms in sorted(pairs))


def _slo(value: Any) -> Any:
    found = re.fullmatch(_SLO, value.strip()) if isinstance(value, str) else None
    if found is None or float(found[2]) == 0:
        raise ValueError(f"{value!r} is not a limit: write ttft:200, tpot:50 or e2e:5000 (in ms)")
    return (found[1], float(found[2]))


def _slo_shape(value: Any) -> str:
    return "mapping" if isinstance(value, dict) else "list"


def _argument(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be text, a finite number, true or false")
    if not isinstance(value, str | int | float):
        raise ValueError("must be text, a number, true or false")
    return value


def _pinned(value: str) -> str:
    check_pinned(value)
    return value


Text = Annotated[str, Field(pattern=TEXT_PATTERN, max_length=400), BeforeValidator(require_text)]
CaseName = Annotated[str, Field(pattern=TEXT_PATTERN, max_length=100), BeforeValidator(require_text)]
Image = Annotated[str, Field(max_length=400), BeforeValidator(require_text), AfterValidator(_pinned)]
Url = Annotated[
    str,
    Field(pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?|unix:(//)?/[^\s?#:]+(:/[^\s?#]*)?)$", max_length=400),
    BeforeValidator(require_text),
    AfterValidator(lambda url: url.rstrip("/")),
]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
Count = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_whole)]
InFlight = Annotated[int, Field(ge=1, le=MOST_IN_FLIGHT), BeforeValidator(_whole)]
RequestCount = Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(_whole)]
TokenCount = Annotated[int, Field(ge=1, le=_LONGEST_TOKENS), BeforeValidator(_whole)]
PrefixTokens = Annotated[int, Field(ge=0, le=_LONGEST_TOKENS), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, le=sys.maxsize), BeforeValidator(_whole)]
Repeats = Annotated[int, Field(ge=1, le=MOST_REPEATS), BeforeValidator(_whole)]
Ranks = Annotated[int, Field(ge=1, le=4096), BeforeValidator(_whole)]
Workers = Annotated[int, Field(ge=1, le=256), BeforeValidator(_whole)]
PointCount = Annotated[int, Field(ge=4, le=1000), BeforeValidator(_whole)]
LoadBound = Annotated[float, Field(gt=0, le=_FASTEST_RATE), BeforeValidator(_number)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(_number)]
Burstiness = Annotated[float, Field(ge=0.01, le=1_000_000), BeforeValidator(_number)]
Speed = Annotated[float, Field(ge=0.000_001, le=1_000_000), BeforeValidator(_number)]
Temperature = Annotated[float, Field(ge=0, le=100), BeforeValidator(_number)]
Mass = Annotated[float, Field(gt=0, le=1), BeforeValidator(_number)]
Spread = Annotated[float, Field(ge=0, le=10), BeforeValidator(_number)]
Seconds = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _DURATION_PATTERN}]}),
]
PositiveSeconds = Annotated[
    float,
    BeforeValidator(_duration),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": _DURATION_PATTERN, "not": {"pattern": _ZERO_PATTERN}},
            ]
        }
    ),
]
Rate = Annotated[
    float,
    BeforeValidator(_rate),
    Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}),
]
Argument = Annotated[
    Any,
    BeforeValidator(_argument),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]


def _like(pattern: str, wanted: str) -> tuple[AfterValidator, WithJsonSchema]:
    """Text that matches `pattern`; what else it must be is said in words."""

    def check(value: str) -> str:
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"must be {wanted}")
        return value

    return AfterValidator(check), WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


_SIZE, _USER = (
    _like(r"[1-9][0-9]*[bkmg]?", "a size as in 16g"),
    _like(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?", "a user as in '1000:1000'"),
)
ShmSize = Annotated[str, BeforeValidator(require_text), *_SIZE]
ContainerUser = Annotated[str, BeforeValidator(require_text), *_USER]


class ContainerSettings(BaseModel):
    """How a container is set up."""

    model_config = ConfigDict(extra="forbid")

    network: Literal["host", "bridge"] = Field(
        default="host",
        description="`host`: the engine listens on the host's own loopback. `bridge`: its port is published there.",
    )
    shm_size: ShmSize = Field(default="32g", description="The size of /dev/shm, over which ranks exchange.")
    user: ContainerUser | None = Field(default=None, description="As whom the engine runs, as in `'1000:1000'`.")


class Lengths(BaseModel):
    """A distribution of token counts: `fixed` at `mean`, or spread around it."""

    model_config = ConfigDict(extra="forbid")

    mean: TokenCount
    dist: Literal["fixed", "uniform", "normal", "lognormal"] = "fixed"
    spread: Spread = 0.0


Length = Annotated[
    Lengths,
    BeforeValidator(_length),
    AfterValidator(_spread_lengths),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _LONGEST_TOKENS}, Lengths.model_json_schema()]}),
]


class SweepSettings(BaseModel):
    """What is searched for, and among which loads."""

    model_config = ConfigDict(extra="forbid")

    find: Literal["knee", "max-goodput"] = Field(
        description="`knee`: where throughput stops growing. `max-goodput`: the most load within `goodput`."
    )
    over: Literal["batch_size", "request_rate"] = Field(default="batch_size", description="The load that is searched over.")
    low: LoadBound = Field(default=1.0, description="The lowest load.")
    high: LoadBound = Field(default=256.0, description="The highest load; the engine is sized for it.")
    points: PointCount = Field(default=12, description="The most loads that are measured.")
    attainment: Mass | None = Field(
        default=None, description="`max-goodput`: share of requests that must meet every limit. Default: 0.99."
    )
    gain: Mass | None = Field(
        default=None, description="`knee`: growth of throughput for twice the load that is too little. Default: 0.1."
    )


def _search(settings: SweepSettings) -> Search:
    written = settings.model_dump(exclude_none=True)
    return Search(**written)


Sweeping = Annotated[SweepSettings, AfterValidator(_search), WithJsonSchema(SweepSettings.model_json_schema())]
_ITEM = r"[^\x00-\x20\x7f,]([^\x00-\x1f\x7f,]*[^\x00-\x20\x7f,])?"
DeviceList = Annotated[
    list[Text],
    Field(min_length=1),
    BeforeValidator(_devices),
    AfterValidator(_unlike_devices),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer"},
                {"type": "string", "pattern": rf"^{_ITEM}(,{_ITEM})*$"},
                {"type": "array", "minItems": 1, "items": {"type": ["integer", "string"], "pattern": TEXT_PATTERN}},
            ]
        }
    ),
]
_SloItem = Annotated[tuple[SloName, float], BeforeValidator(_slo)]
_SLO_ITEM_SCHEMA = {"type": "string", "pattern": rf"^\s*{_SLO}\s*$"}
Goodput = Annotated[
    Annotated[list[_SloItem], Tag("list"), Field(min_length=1)]
    | Annotated[dict[SloName, Positive], Tag("mapping"), Field(min_length=1)],
    Discriminator(_slo_shape),
    BeforeValidator(lambda value: value.split() if isinstance(value, str) else value),
    AfterValidator(_limits),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"^\s*{_SLO}(\s+{_SLO})*\s*$"},
                {"type": "array", "minItems": 1, "items": _SLO_ITEM_SCHEMA},
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": False,
                    "properties": {name: {"type": "number", "exclusiveMinimum": 0} for name in ("ttft", "tpot", "e2e")},
                },
            ]
        }
    ),
]
