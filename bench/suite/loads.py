"""Types of `dataset` and `stages`: what each accepts, in words for the person who wrote it, and the same as JSON Schema."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import structs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, TypeAdapter, WithJsonSchema

from bench.records import DataSpec, Stage
from bench.suite.values import MOST_IN_FLIGHT, InFlight, PositiveSeconds, Text, TokenCount, require_text
from bench.suite.written import did_you_mean

_TYPES = ("synthetic", "sharegpt", "jsonl", "csv", "parquet", "mooncake", "azure")
_LOOKS_LIKE_A_FILE = r"[./\\]"
_FASTEST_RATE = 1_000_000
_LEVEL: TypeAdapter[int] = TypeAdapter(InFlight)
_SECONDS: TypeAdapter[float] = TypeAdapter(PositiveSeconds)


# --- dataset ------------------------------------------------------------------------------------------------------------


class DatasetSettings(BaseModel):
    """Where prompts come from. `path` is seen from the folder of the suite."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["synthetic", "sharegpt", "jsonl", "csv", "parquet", "mooncake", "azure"] | None = None
    path: Text | None = None
    prompt_column: Text | None = None
    output_tokens_column: Text | None = None
    min_input_tokens: TokenCount | None = None
    max_input_tokens: TokenCount | None = None
    min_output_tokens: TokenCount | None = None
    max_output_tokens: TokenCount | None = None
    shuffle: StrictBool = True
    salt: StrictBool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A checked `dataset`: its type (`file` where only the file can tell) and the rest."""

    kind: str
    data: DataSpec

    @property
    def is_file(self) -> bool:
        """Whether prompts are read, not made up."""
        return self.kind != "synthetic"

    def below(self, folder: str) -> Dataset:
        """The same with a relative path seen from `folder`."""
        path = self.data.path
        if path is None:
            return self
        seen = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118  keeps it relative
        return replace(self, data=structs.replace(self.data, path=seen))

    def __str__(self) -> str:
        """As part of a case's name."""
        return self.kind if self.data.path is None else os.path.basename(self.data.path)  # noqa: PTH119


def _dataset(value: Any) -> Any:
    value = require_text(value)
    if not isinstance(value, str):
        return value
    if value == "synthetic":
        return {"type": value}
    if value in _TYPES:
        raise ValueError(f"{value} needs a file: write {{type: {value}, path: FILE}}")
    if not re.search(_LOOKS_LIKE_A_FILE, value):
        raise ValueError(f"{value!r} is neither a data set nor a file{did_you_mean(value, _TYPES)}")
    return {"path": value}


def _checked(settings: DatasetSettings) -> Dataset:
    kind = settings.type or ("file" if settings.path else "synthetic")
    written = {name for name in settings.model_fields_set if getattr(settings, name) is not None}
    of_files = written - {"type", "salt"}
    if kind == "synthetic" and of_files:
        raise ValueError(f"{min(of_files)!r} is for data from a file: add a path or drop it")
    if kind != "synthetic" and settings.path is None:
        raise ValueError(f"type {kind} needs a file: add path: FILE")
    for what in ("input", "output"):
        least, most = getattr(settings, f"min_{what}_tokens"), getattr(settings, f"max_{what}_tokens")
        if least is not None and most is not None and least > most:
            raise ValueError(f"min_{what}_tokens is above max_{what}_tokens: no row lies between them")
    return Dataset(kind=kind, data=DataSpec(**settings.model_dump(exclude={"type"})))


DatasetChoice = Annotated[
    DatasetSettings,
    BeforeValidator(_dataset),
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "synthetic"},
                {"type": "string", "pattern": _LOOKS_LIKE_A_FILE},
                DatasetSettings.model_json_schema(),
            ]
        }
    ),
]


# --- stages -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Checked stages, all of requests/s (open loop) or all of requests in flight (closed loop)."""

    kind: Literal["open", "closed"]
    stages: tuple[Stage, ...]

    @property
    def duration_s(self) -> float:
        """How long they last together [s]."""
        return sum(stage.duration_s for stage in self.stages)

    @property
    def highest(self) -> float:
        """The most that is asked for at any moment."""
        return max(max(stage.start, stage.end) for stage in self.stages)


_UNITS: dict[str, Literal["open", "closed"]] = {"rate": "open", "batch_size": "closed"}
_KEYS = ("rate", "batch_size", "from", "to", "duration")
_Part = tuple[Literal["open", "closed"] | None, Stage]


def _stage(value: Any) -> _Part:
    """One stage with the unit that it names."""
    if not isinstance(value, dict):
        raise ValueError("must be mappings as in {rate: 5, duration: 30s}")
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in a stage{did_you_mean(unknown[0], _KEYS)}")
    if value.get("duration") is None:
        raise ValueError("a stage needs a duration, as in {rate: 5, duration: 30s}")
    try:
        duration_s = _SECONDS.validate_python(value["duration"])
    except ValueError:
        raise ValueError(f"{value['duration']!r} is not a duration above 0: write 30s, 5m or 1h") from None
    named = [key for key in _UNITS if value.get(key) is not None]
    ends = {key: value[key] for key in ("from", "to") if value.get(key) is not None}
    if len(named) + bool(ends) != 1:
        raise ValueError("a stage has one load: rate, batch_size, or from and to")
    load = ends or value[named[0]]
    start, end = (_end(load, "from"), _end(load, "to")) if isinstance(load, dict) else (_number(load),) * 2
    return _UNITS[named[0]] if named else None, Stage(start=start, end=end, duration_s=duration_s)


def _end(load: dict[str, Any], which: str) -> float:
    if set(load) != {"from", "to"}:
        raise ValueError("a ramp needs both ends, as in {from: 1, to: 10, duration: 60s}")
    return _number(load[which])


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _FASTEST_RATE:
        raise ValueError(f"{value!r} is not a load: write a number of requests from 0 to {_FASTEST_RATE:,}")
    return float(value)


def _one_unit(parts: list[_Part]) -> Stages:
    units = {unit for unit, _ in parts if unit is not None}
    if len(units) > 1:
        raise ValueError("some stages have a rate and others a batch_size: a load is open or closed")
    kind = units.pop() if units else "open"
    stages = tuple(stage for _, stage in parts)
    found = Stages(kind=kind, stages=stages)
    if found.highest == 0:
        raise ValueError("no stage has a load above 0")
    if kind == "closed":
        for level in (level for stage in stages for level in (stage.start, stage.end)):
            try:
                _LEVEL.validate_python(level)
            except ValueError:
                raise ValueError(f"{level:g} is not a batch_size: write whole numbers from 1 to {MOST_IN_FLIGHT:,}") from None
    return found


_LOAD_SCHEMA: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": _FASTEST_RATE}
_RAMP_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["from", "to"],
    "properties": {"from": _LOAD_SCHEMA, "to": _LOAD_SCHEMA},
}
_NONE = {"type": "null"}
StageList = Annotated[
    list[Annotated[Any, BeforeValidator(_stage)]],
    Field(min_length=1, max_length=1000),
    AfterValidator(_one_unit),
    WithJsonSchema(
        {
            "type": "array",
            "minItems": 1,
            "maxItems": 1000,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["duration"],
                "properties": {
                    "rate": {"anyOf": [_LOAD_SCHEMA, _RAMP_SCHEMA, _NONE]},
                    "batch_size": {"anyOf": [_LOAD_SCHEMA, _RAMP_SCHEMA, _NONE]},
                    "from": {"anyOf": [_LOAD_SCHEMA, _NONE]},
                    "to": {"anyOf": [_LOAD_SCHEMA, _NONE]},
                    "duration": _SECONDS.json_schema(),
                },
            },
        }
    ),
]
