"""Named models: their shape, licence and sources. The data is `models.yaml` beside this file; no network is touched."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from bench.errors import UsageError
from bench.records import ModelShape

_FILE = Path(__file__).with_name("models.yaml")
_RESERVED = frozenset({"mock"})
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_FAMILY = re.compile(r"[a-z]+")
_Count = Annotated[int, msgspec.Meta(ge=1)]


class CatalogSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one precision of a model comes from; `sha256` and `size_b` [bytes] are those of the file that is kept."""

    source: Annotated[str, msgspec.Meta(pattern=r"^(pypi|hf|modelscope):\S+$")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")] | None = None
    size_b: _Count | None = None


class _Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    parameters: _Count | None = None
    layers: _Count | None = None
    heads: _Count | None = None
    kv_heads: _Count | None = None
    head_dim: _Count | None = None
    hidden: _Count | None = None
    vocab: _Count | None = None
    experts: _Count | None = None
    experts_used: _Count | None = None
    active_parameters: _Count | None = None
    kv_width: _Count | None = None


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    licence: str | None = None
    gated: bool = False
    shape: _Shape = _Shape()
    ffn: _Count | None = None
    sources: Annotated[dict[str, CatalogSource], msgspec.Meta(min_length=1)]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    models: list[_Row]


class CatalogModel(msgspec.Struct, frozen=True, kw_only=True):
    """One named model. `sources` maps a precision to where it comes from, the default first; `ffn` is the width of the
    feed-forward layer; `gated` models ask for a licence to be accepted before they can be fetched.
    """

    name: str
    licence: str | None
    gated: bool
    shape: ModelShape
    ffn: int | None
    sources: dict[str, CatalogSource]


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice: PyYAML would silently keep the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        twice = sorted({k for k in keys if keys.count(k) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def parse(text: str, file_name: str) -> dict[str, CatalogModel]:
    """Models by name from the text of a catalogue file.

    Raises: UsageError that names the file and the wrong place.
    """
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506  (a SafeLoader)
        rows = msgspec.convert(data, type=_File).models
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{file_name}: {error}", hint="compare with the entries that ship with bench") from error
    found: dict[str, CatalogModel] = {}
    for row in rows:
        if not _NAME.fullmatch(row.name) or row.name in _RESERVED or row.name in found:
            raise UsageError(
                f"{file_name}: {row.name!r} can't be the name of a model",
                hint="names are unique, lower case (a-z 0-9 . _ -), and none of " + ", ".join(sorted(_RESERVED)),
            )
        loose = [p for p, s in row.sources.items() if (s.sha256 or s.size_b) and "#" not in s.source]
        if loose:
            raise UsageError(
                f"{file_name}: {row.name} {loose[0]} gives a hash or size to a whole repository",
                hint="those belong to sources that name one file (#FILE)",
            )
        shape = ModelShape(**msgspec.structs.asdict(row.shape))
        found[row.name] = CatalogModel(
            name=row.name, licence=row.licence, gated=row.gated, shape=shape, ffn=row.ffn, sources=dict(row.sources)
        )
    return found


@cache
def _models() -> dict[str, CatalogModel]:
    return parse(_FILE.read_text(encoding="utf-8"), _FILE.name)


def lookup(name: str) -> CatalogModel | None:
    """The model called `name` (case does not matter), None if there is none."""
    return _models().get(name.lower())


def names() -> tuple[str, ...]:
    """Every name, in the order of the file."""
    return tuple(_models())


def all_models() -> tuple[CatalogModel, ...]:
    """Every model, in the order of the file."""
    return tuple(_models().values())


def by_source(source: str) -> tuple[CatalogModel, str] | None:
    """The model and precision whose source is exactly `source`."""
    for model in _models().values():
        for precision, entry in model.sources.items():
            if entry.source == source:
                return model, precision
    return None


def families() -> tuple[str, ...]:
    """What the names begin with: `llama`, `qwen`."""
    return tuple(dict.fromkeys(found.group() for name in names() if (found := _FAMILY.match(name))))


def nearest(name: str) -> str | None:
    """The known name most like `name`, None if none is close."""
    near = get_close_matches("-".join(name.lower().split()), names(), n=1)
    return near[0] if near else None
