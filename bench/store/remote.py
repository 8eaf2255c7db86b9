"""Folders at a URL (`s3://`, `gs://`, `https://`, `memory://` ...) through fsspec, which is imported only for one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.errors import MissingError, StoreError, UsageError
from bench.store.archives import check_size
from bench.store.layout import reason
from bench.store.validation import BadShard

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(source: str) -> bool:
    """Whether it begins with `scheme://`."""
    return _URL.match(source) is not None


class RemoteFolder:
    """A folder, or one file, in a file system of fsspec's. Whatever its backend raises is told in one line."""

    def __init__(self, files: Any, root: str, url: str) -> None:
        self._files = files
        self._root = root
        self._url = url

    def url(self, path: str) -> str:
        """What a path is called by people."""
        return str(self._files.unstrip_protocol(path))

    def folders(self) -> Iterator[tuple[str, list[str]]]:
        """(folder, names of the files in it), in a stable order. Raises: UsageError, StoreError."""
        try:
            paths = self._files.find(self._root)  # of a file: itself
            if not paths:
                self._files.ls(self._root, detail=False)  # `find` takes what can't be reached for what is empty
        except FileNotFoundError:
            paths = []
        except Exception as error:  # each backend has errors of its own
            raise _unreachable(self._url, error) from error
        below: defaultdict[str, list[str]] = defaultdict(list)
        for path in paths:
            folder, _, name = str(path).rpartition("/")
            below[folder].append(name)
        yield from sorted(below.items())

    def fetcher(self, folder: str) -> Callable[[str, Path], None]:
        """How to copy a file of `folder` to a path. Raises (it): BadShard, StoreError."""

        def fetch(name: str, to: Path) -> None:
            path = f"{folder}/{name}"
            try:
                check_size(name, self._files.size(path) or 0)  # 0: not every backend knows sizes
                self._files.get_file(path, str(to))
            except FileNotFoundError as error:
                raise BadShard(f"{name} is missing") from error
            except BadShard:
                raise
            except Exception as error:  # each backend has errors of its own
                raise _unreachable(self.url(path), error) from error

        return fetch


def open_url(url: str) -> RemoteFolder:
    """The folder at a URL. Raises: MissingError (no fsspec, or no backend for it), UsageError (no such scheme), StoreError."""
    try:
        import fsspec.core
    except ImportError as error:
        raise MissingError(f"{url} needs fsspec", hint="pip install 'tokjoule[remote]'") from error
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingError(f"{url} can't be opened: {reason(error)}", hint="pip install the package that it names") from error
    except ValueError as error:
        raise UsageError(
            f"{url} can't be opened: {reason(error)}", hint="give a folder, a zip file, or s3://BUCKET/PATH"
        ) from error
    except Exception as error:  # each backend has errors of its own
        raise _unreachable(url, error) from error
    return RemoteFolder(files, root, url)


def _unreachable(url: str, error: BaseException) -> StoreError:
    return StoreError(f"can't read {url}: {reason(error)}", hint="is the address right, and are you allowed to read it?")
