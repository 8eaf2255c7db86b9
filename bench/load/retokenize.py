"""Output tokens counted in the text, by a tokenizer of the user's, for servers that tell no count."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.errors import MissingError, UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Retokenizer:
    """A `tokenizer.json` (the file, or a folder that holds it).

    What a model had generated may have been other tokens of the same text, and its special tokens have none: the count is close,
    never exact.
    """

    def __init__(self, path: str) -> None:
        """Raises: MissingError (the package), UsageError (the file)."""
        self._tokenizer = _load(Path(path))

    def per_chunk(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each chunk of one answer: the answer is tokenized as a whole, and a token belongs to the chunk that brought
        its last character.
        """
        whole = "".join(texts).encode("utf-8", "replace").decode()  # half a surrogate pair is no text; as long as before
        ends = [end for _, end in self._tokenizer.encode(whole, add_special_tokens=False).offsets]
        chunk_ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
        owners = np.searchsorted(chunk_ends, np.array(ends, dtype=np.int64))
        counts: list[int] = np.bincount(owners, minlength=len(texts)).tolist()
        return counts


def _load(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingError(
            "counting tokens with a tokenizer of one's own needs the package tokenizers",
            hint="pip install 'tokjoule[tokenizer]', or leave out --tokenizer",
        ) from None
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing narrower
        raise UsageError(
            f"the tokenizer {file} can't be read: {error}", hint="--tokenizer takes a tokenizer.json, or the folder of a model"
        ) from error
