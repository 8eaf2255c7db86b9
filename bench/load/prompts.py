"""Synthetic prompts: exact lengths, no two alike, and the whole HTTP request ready before the clock starts.

A prompt is a short lead that is unique to the request, then a body from a pool. Prefix caches match from the first token
on, so a new lead makes the whole prompt new, while only the lead has to be put in when a request is sent: a pool of bounded
size serves any number of requests. Leads have a fixed width in bytes, hence `Content-Length` is known beforehand. A prefix
that a group of requests is to share stands before the lead.

Text is made of common four-letter English words, which nearly every byte-pair vocabulary holds as one token with the space
before them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from bench.identity import digest
from bench.load.address import Address, http_head
from bench.load.arrivals import partition
from bench.load.lengths import draw_lengths
from bench.load.protocols import WireProtocol
from bench.load.vocabulary import LEAD_TOKENS, Vocabulary, id_range
from bench.records import Case, FloatArray, IntArray, Target

POOL_SIZE = 4096
"""Prepared requests a worker, fewer where prompts are long."""
_POOL_BYTES = 24 << 20
_MOST_POOL_BYTES = 1 << 30
"""Of all workers together, however long the prompts are."""
SLOT = "\x00lead\x00"
SLOT_JSON = msgspec.json.encode(SLOT)


class Calibration(msgspec.Struct, frozen=True):
    """How the server counts a prompt of n words: `overhead_tokens` (chat template) + n * `tokens_per_word`."""

    overhead_tokens: float = 0.0
    tokens_per_word: float = 1.0

    def words(self, tokens: int) -> int:
        """Words that come nearest to `tokens` prompt tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))

    def words_within(self, tokens: int) -> int:
        """Words that come nearest to `tokens` tokens in the midst of a prompt, where the template adds none."""
        return max(1, round(tokens / self.tokens_per_word)) if tokens else 0


class PromptSource(Protocol):
    """Requests of one worker, ready to send. `recycled`: a prompt had to be sent a second time."""

    recycled: bool

    def take(self, number: int) -> tuple[bytes, int, int]:
        """Bytes to send, input tokens (`MISSING` where nobody knows) and output tokens asked for, for request `number` of the
        trial. Workers use disjoint numbers.
        """
        ...

    def due_s(self) -> FloatArray | None:
        """When each request of the whole trial is due, in seconds after the start; None where the data doesn't say."""
        ...


def synthetic_hash(case: Case) -> str:
    """Identity of a synthetic data set: what describes it, without the salt (which differs in every trial)."""
    described = {
        "dataset": case.dataset,
        "version": 1,
        "input": case.input_tokens,
        "output": case.output_tokens,
        "seed": case.seed,
    }
    if case.data.prefix_groups:
        described["prefix"] = [case.data.prefix_tokens, case.data.prefix_groups]
    return digest(described)


def vocabulary_of(target: Target, protocol: WireProtocol) -> Vocabulary:
    """Token ids where engine and protocol take them, else words."""
    return Vocabulary(id_range(target) if target.token_ids and protocol.takes_token_ids else None)


def seed_of(text: str, size_b: int = 8) -> int:
    """A number out of a text: the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size_b], "little")


@dataclass(frozen=True, slots=True)
class Template:
    """One request but for its beginning: `before` + shared prefix + lead + `after` are the bytes that go out."""

    before: bytes
    after: bytes
    input_tokens: int
    output_tokens: int
    lead_tokens: int


class PromptPool:
    """Synthetic requests of one worker, as a `PromptSource`."""

    def __init__(
        self,
        *,
        case: Case,
        target: Target,
        protocol: WireProtocol,
        address: Address,
        key: str | None,
        salt: str,
        calibration: Calibration,
        worker: int = 0,
        workers: int = 1,
        wanted: int = POOL_SIZE,
    ) -> None:
        self._vocabulary = vocabulary_of(target, protocol)
        self.ids = self._vocabulary.ids
        self._case, self._target, self._protocol = case, target, protocol
        self._path, self._address, self._key = address.path + protocol.path(target, stream=case.stream), address, key
        self._calibration = calibration
        self._rng = np.random.default_rng(seed_of(f"{salt}/{worker}"))
        self._start = seed_of(salt, 6)
        self._prefixes = self._shared(salt)
        inputs, outputs = self._lengths(wanted, workers)
        mine = partition(len(inputs), workers, worker)
        self.templates = [self.template(int(inputs[i]), int(outputs[i])) for i in mine]
        self._leads = min(self._vocabulary.lead_count(t.lead_tokens) for t in self.templates)
        self._taken = 0
        self.recycled = False

    def take(self, number: int) -> tuple[bytes, int, int]:
        template = self.templates[self._taken % len(self.templates)]
        self._taken += 1
        if number >= self._leads:
            self.recycled = True
        return (
            template.before + self.prefix(number) + self.lead(number, template.lead_tokens) + template.after,
            template.input_tokens,
            template.output_tokens,
        )

    def due_s(self) -> FloatArray | None:
        return None

    def lead(self, number: int, tokens: int) -> bytes:
        """The unique beginning of request `number`."""
        return self._vocabulary.lead(self._start + number, tokens)

    def prefix(self, number: int) -> bytes:
        """What request `number` shares with every n-th other, n being the number of groups."""
        return self._prefixes[number % len(self._prefixes)]

    def template(self, input_tokens: int, output_tokens: int) -> Template:
        """A request of these lengths, drawn from this pool's generator; `input_tokens` come after a shared prefix."""
        words, prefix_tokens = self._vocabulary, self._case.data.prefix_tokens
        whole = prefix_tokens + input_tokens
        count = input_tokens if self.ids is not None else self._calibration.words(whole)
        if self.ids is None:
            count = max(1, count - self._calibration.words_within(prefix_tokens))
        lead_tokens = min(LEAD_TOKENS, count)
        body = self._protocol.body(self._target, self._case, SLOT, output_tokens, exact=self._case.exact_lengths)
        head, _, tail = msgspec.json.encode(body).partition(SLOT_JSON)
        opening, closing = words.quotes
        rest = words.draw(self._rng, count - lead_tokens)
        after = (words.joint + rest if rest else b"") + closing + tail
        before = head + opening
        size_b = len(before) + len(self._prefixes[0]) + words.size_b(lead_tokens) + len(after)
        http = http_head(self._address, self._path, size_b, self._key)
        return Template(http + before, after, whole, output_tokens, lead_tokens)

    def _shared(self, salt: str) -> list[bytes]:
        """The prefix of each group, with the joint to what follows. They begin with a lead, so that no two groups begin alike;
        they are the same in every worker.
        """
        data, words = self._case.data, self._vocabulary
        count = data.prefix_tokens if self.ids is not None else self._calibration.words_within(data.prefix_tokens)
        if not (data.prefix_groups and count):
            return [b""]
        lead_tokens = min(LEAD_TOKENS, count)
        start, found = seed_of(f"{salt}/prefix", 6), []
        for group in range(data.prefix_groups):
            rest = words.draw(np.random.default_rng(seed_of(f"{salt}/prefix/{group}")), count - lead_tokens)
            parts = [words.lead(start + group, lead_tokens), *([rest] if rest else []), b""]
            found.append(words.joint.join(parts))
        return found

    def _lengths(self, wanted: int, workers: int) -> tuple[IntArray, IntArray]:
        """Input and output lengths of the pool, the same in every trial of a case: drawn from its seed, not the salt."""
        rng = np.random.default_rng(self._case.seed)
        size_b = 8 * self._case.input_tokens.mean + 512
        fewest = max(1, min(64, _MOST_POOL_BYTES // (size_b * workers)))  # leads differ even where the rest is sent again
        count = min(wanted, max(fewest, _POOL_BYTES // size_b)) * workers
        return draw_lengths(self._case.input_tokens, count, rng), draw_lengths(self._case.output_tokens, count, rng)
