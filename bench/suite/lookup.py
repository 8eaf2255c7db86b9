"""Where suites are: a path, `./suites/NAME.yaml`, or one that comes with the package."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from bench.errors import SuiteError

_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteInfo:
    """A suite that can be named: `origin` says whether it came with the package or stands in `./suites`."""

    name: str
    path: str
    origin: Literal["shipped", "here"]


def shipped() -> tuple[SuiteInfo, ...]:
    """The suites that come with the package, by name."""
    found: dict[str, SuiteInfo] = {}
    for folder in _shipped_folders():
        for info in _in_folder(folder, "shipped"):
            found.setdefault(info.name, info)
    return tuple(found[name] for name in sorted(found))


def available() -> tuple[SuiteInfo, ...]:
    """Those of `./suites` and the shipped ones, by name; where both have a name, `./suites` wins."""
    everything = {info.name: info for info in shipped()}
    known = {Path(info.path).resolve() for info in everything.values()}
    for info in _in_folder(Path("suites"), "here"):
        if Path(info.path).resolve() not in known:
            everything[info.name] = info
    return tuple(everything[name] for name in sorted(everything))


def locate(ref: str) -> Path:
    """The file that `ref` means: a name, or a path.

    Raises: SuiteError with the nearest known name.
    """
    known = {info.name: info.path for info in available()}
    if ref in known:
        return Path(known[ref])
    path = Path(ref)
    if ref and _exists(path):
        return path
    near = get_close_matches(path.stem, known, n=1)
    mend = f"did you mean {near[0]!r}?" if near else f"known suites: {', '.join(known) or 'none'}"
    kind = "file" if path.suffix in _ENDINGS or len(path.parts) > 1 else "suite"
    raise SuiteError(f"{ref}: there is no such {kind}: {mend}", hint="bench suites list")


def display_name(path: Path) -> str:
    """A path as messages show it: relative where it is below this folder, else for a shipped suite its file name."""
    if not path.is_absolute():
        return str(path)
    here = Path.cwd()
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    return path.name if path.parent in _shipped_folders() else str(path)


def reference(shown: str) -> str:
    """What to type for the suite that messages show as `shown`: its name, where it is found by one."""
    return next((info.name for info in available() if display_name(Path(info.path)) == shown), shown)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long for the system, or with a null character
        return False


def _shipped_folders() -> list[Path]:
    """In a wheel beside this module; in a checkout at its root."""
    here = Path(__file__).resolve().parent
    folders = [here / "shipped"]
    root = here.parent.parent
    if (root / "pyproject.toml").is_file():  # `site-packages/suites` would be somebody else's
        folders.append(root / "suites")
    return folders


def _in_folder(folder: Path, origin: Literal["shipped", "here"]) -> list[SuiteInfo]:
    if not folder.is_dir():
        return []
    files = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS and path.is_file())
    return [SuiteInfo(name=path.stem, path=str(path), origin=origin) for path in files]
