"""A byte-level BPE vocabulary: read from a GGUF file, cut or filled up to a size, and told as Hugging Face's files tell it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import gguf
from bench.errors import ModelError

_PREFIX = "tokenizer.ggml."
_NORMAL, _CONTROL = 1, 3
"""Types of a token in GGUF."""
_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens by id with their GGUF types, merges (two tokens apart by a space) in the order in which they apply, and the other
    fields `tokenizer.*` of the GGUF file.
    """

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    rest: dict[str, gguf.Value]

    def sized(self, size: int) -> Vocabulary:
        """`size` tokens: the first ones, with the merges that they need, or all of them and fillers. No text gives a filler, but
        a model may choose one, and then it has a text to be seen by.
        """
        fillers = tuple(f"<|unused_{i}|>" for i in range(len(self.tokens), size))
        tokens = (*self.tokens[:size], *fillers)
        kept = set(tokens)
        merges = tuple(one for one in self.merges if {*one.split(" "), one.replace(" ", "")} <= kept)
        types = (*self.types[:size], *[_NORMAL] * len(fillers))
        return Vocabulary(tokens=tokens, types=types, merges=merges, rest=self.rest)

    def gguf_fields(self) -> dict[str, gguf.Value]:
        """As a GGUF header tells it."""
        lists: dict[str, gguf.Value] = {"tokens": self.tokens, "token_type": self.types, "merges": self.merges}
        return {**self.rest, **{f"{_PREFIX}{name}": value for name, value in lists.items()}}

    def tokenizer_json(self) -> dict[str, Any]:
        """`tokenizer.json`, with the first split of SmolLM: each digit by itself."""
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        special = [i for i, kind in enumerate(self.types) if kind == _CONTROL]
        return {
            "version": "1.0",
            "added_tokens": [{"id": i, "content": self.tokens[i], **plain} for i in special],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "vocab": {token: i for i, token in enumerate(self.tokens)},
                "merges": [one.split(" ") for one in self.merges],
            },
        }

    def tokenizer_config(self) -> dict[str, Any]:
        """`tokenizer_config.json`."""
        roles = {role: self.tokens[token] for role, field in _ROLES.items() if (token := self._id(field)) is not None}
        template = self.rest.get("tokenizer.chat_template")
        return {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **roles}

    def ids(self) -> dict[str, int]:
        """`bos_token_id` and `eos_token_id`, where there are any."""
        return {name: token for name in ("bos_token_id", "eos_token_id") if (token := self._id(name)) is not None}

    def _id(self, field: str) -> int | None:
        value = self.rest.get(_PREFIX + field)
        return value if isinstance(value, int) else None


def read_vocabulary(path: Path) -> Vocabulary:
    """That of a GGUF file. Raises: ModelError if it is not byte-level BPE with SmolLM's first split."""
    values = gguf.read_header(path, keep_all=True).values
    found = {name: value for name, value in values.items() if name.startswith("tokenizer.")}
    tokens, types, merges = (found.pop(_PREFIX + name, ()) for name in ("tokens", "token_type", "merges"))
    rule = (found.get(f"{_PREFIX}model"), found.get(f"{_PREFIX}pre"))
    if rule != ("gpt2", "smollm") or not (isinstance(tokens, tuple) and isinstance(types, tuple) and isinstance(merges, tuple)):
        raise ModelError(f"the tokenizer of {path.name} is {rule}, not SmolLM's", hint="fetch the file again")
    return Vocabulary(tokens=_texts(tokens), types=tuple(int(t) for t in types), merges=_texts(merges), rest=found)


def _texts(values: tuple[gguf.Scalar, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
