"""Which files of a repository or folder are the weights, and which others an engine needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bench.errors import ModelError

Format = Literal["gguf", "safetensors", "openvino", "other"]

_SIDE_SUFFIXES = (".json", ".txt", ".model", ".jinja", ".tiktoken")
_OPENVINO = "openvino_model"
"""Name of the files that hold OpenVINO's intermediate representation, as its exporters write them: `.xml` and `.bin`."""
_OTHER_WEIGHTS = (".bin", ".pt", ".pth")
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt", "optimizer.bin"})
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`main` is what an engine is given (empty: the folder itself), `weights` hold every weight, `keep` is all to have."""

    format: Format
    main: str
    weights: tuple[str, ...]
    keep: tuple[str, ...]


def choose(names: Iterable[str], file: str | None, where: str) -> Layout:
    """The files to have out of `names`: `file` alone (with the other parts of a split GGUF), or the top-level safetensors
    with configuration and tokenizer, or the only GGUF, or OpenVINO's files, or PyTorch weights where there is nothing else.

    Raises: ModelError if there are no weights, or several models to choose from.
    """
    known = sorted(set(names))
    if file is not None:
        return _one(known, file, where)
    top = [n for n in known if "/" not in n]
    tensors = _without_duplicates([n for n in top if n.endswith(".safetensors")])
    if tensors:
        return Layout(format="safetensors", main="", weights=tensors, keep=tuple(sorted({*tensors, *_side_files(top)})))
    models = {_parts(n, known) for n in top if n.endswith(".gguf") and not n.startswith("mmproj")}
    if len(models) == 1:
        parts = models.pop()
        return Layout(format="gguf", main=parts[0], weights=parts, keep=parts)
    if models:
        listed = ", ".join(sorted(m[0] for m in models))
        raise ModelError(
            f"{where} holds {len(models)} models: {listed}", hint=f"name one of them, for example {_named(where, models)}"
        )
    if f"{_OPENVINO}.xml" in top and f"{_OPENVINO}.bin" in top:
        ours = {n for n in top if n.startswith("openvino_") and n.endswith((".xml", ".bin"))}
        keep = tuple(sorted({*ours, *_side_files(top)}))
        return Layout(format="openvino", main="", weights=(f"{_OPENVINO}.bin",), keep=keep)
    other = tuple(n for n in top if n.endswith(_OTHER_WEIGHTS) and n not in _NOT_WEIGHTS)
    if other:
        return Layout(format="other", main="", weights=other, keep=tuple(sorted({*other, *_side_files(top)})))
    raise ModelError(
        f"{where} holds no weights at its top level", hint="name the file: add #FILE, or give the folder that has it"
    )


def _named(where: str, models: set[tuple[str, ...]]) -> str:
    first = min(m[0] for m in models)
    return f"{where}/{first}" if where.startswith("path:") else f"{where}#{first}"


def _one(known: list[str], file: str, where: str) -> Layout:
    if file not in known:
        alike = [n for n in known if n.rpartition(".")[2] == file.rpartition(".")[2]][:8]
        raise ModelError(f"{where}: there is no file {file!r}", hint=f"files of that kind: {', '.join(alike) or 'none'}")
    if file.endswith(".gguf"):
        parts = _parts(file, known)
        return Layout(format="gguf", main=parts[0], weights=parts, keep=parts)
    kind: Format = "safetensors" if file.endswith(".safetensors") else "other"
    return Layout(format=kind, main=file, weights=(file,), keep=(file,))


def _parts(file: str, known: list[str]) -> tuple[str, ...]:
    """All parts of the split GGUF that `file` belongs to, or just `file`."""
    found = _SPLIT.fullmatch(file)
    if found is None:
        return (file,)
    parts = tuple(f"{found['stem']}-{i:05d}-of-{found['count']}.gguf" for i in range(1, min(int(found["count"]), 10_000) + 1))
    missing = sorted(set(parts) - set(known))
    if missing:
        raise ModelError(f"a part of the model is missing: {missing[0]}", hint="fetch all parts, or choose another file")
    return parts


def _without_duplicates(tensors: list[str]) -> tuple[str, ...]:
    """Some repositories hold the same weights again as `consolidated*.safetensors`."""
    plain = tuple(n for n in tensors if not n.startswith("consolidated"))
    return plain or tuple(tensors)


def _side_files(top: list[str]) -> set[str]:
    return {n for n in top if n.endswith(_SIDE_SUFFIXES) or n.startswith("tokenizer")} - {
        n for n in top if n.endswith(_OTHER_WEIGHTS)
    }
