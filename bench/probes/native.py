"""Vendors' C libraries through ctypes, with their errors translated. Loaded late, and only in the probe's own process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import ProbeError
from bench.probes.values import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """A library's return codes. `lost`: nothing can be read any more; `lasting`: asking again won't help."""

    names: Mapping[int, str]
    lost: frozenset[int] = frozenset()
    lasting: frozenset[int] = frozenset()
    ok: int = 0

    def error(self, name: str, code: int) -> Unavailable | ProbeError:
        """What a code returned by `name` means, as the exception to raise."""
        text = f"{name}: {self.names.get(code, 'error')} ({code})"
        if code in self.lost:
            return ProbeError(text, hint="dmesg tells why the driver lost the device; it comes back with a reset")
        return Unavailable(text, lasting=code in self.lasting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """A loaded library. Symbols stay in it: some export another vendor's names, so it is never loaded with RTLD_GLOBAL."""

    lib: ctypes.CDLL
    path: str
    codes: Codes
    _functions: dict[str, Any] = field(default_factory=dict)

    def function(self, name: str, *, returns: Any = ctypes.c_int) -> Any:
        """A C function. Raises: Unavailable where the library has none of that name."""
        if name not in self._functions:
            try:
                function = getattr(self.lib, name)
            except AttributeError:
                raise Unavailable(f"{Path(self.path).name} has no {name}", lasting=True) from None
            function.restype = returns
            self._functions[name] = function
        return self._functions[name]

    def call(self, name: str, *args: Any) -> None:
        """`name(*args)`, which returns a code. Raises: Unavailable, ProbeError where the device is lost."""
        code = self.function(name)(*args)
        if code != self.codes.ok:
            raise self.error(name, code)

    def error(self, name: str, code: int) -> Unavailable | ProbeError:
        """As `Codes.error`."""
        return self.codes.error(name, code)


def load(candidates: Sequence[str | Path], codes: Codes) -> Native:
    """The first of `candidates` (names for the loader, or paths) that can be loaded. Raises: Unavailable with what was tried."""
    tried: list[str] = []
    for candidate in candidates:
        try:
            lib = ctypes.CDLL(str(candidate), mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            tried.append(str(error))
            continue
        return Native(lib=lib, path=str(candidate), codes=codes)
    raise Unavailable("; ".join(dict.fromkeys(tried)) or "no library to load", lasting=True)


def text(buffer: Any) -> str | None:
    """The C string in a buffer; None where it is empty."""
    found = bytes(buffer).split(b"\0", 1)[0].decode("utf-8", "replace").strip()
    return found or None
