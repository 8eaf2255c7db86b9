"""Synthetic prompts: exact lengths, no two alike, and the whole HTTP request ready before the clock starts.

A prompt is a short lead that is unique to the request, then a body from a pool. Prefix caches match from the first token
on, so a new lead makes the whole prompt new, while only the lead has to be put in when a request is sent: a pool of bounded
size serves any number of requests. Leads have a fixed width in bytes, hence `Content-Length` is known beforehand.

Text is made of common four-letter English words, which nearly every byte-pair vocabulary holds as one token with the space
before them. Token ids are taken from the middle of the vocabulary: the first ids are control tokens and single bytes, and the
last tenth is where added and reserved tokens sit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec
import numpy as np

from bench.identity import digest
from bench.load.address import Address, http_head
from bench.load.arrivals import partition
from bench.load.lengths import draw_lengths
from bench.load.protocols import WireProtocol
from bench.records import Case, IntArray, Target

WORDS = tuple(
    (
        "that with have this will your from they know want been good much some time very when come here just like long make "
        "many more only over such take than them well were what year back call came each even find give hand high keep last "
        "left life live look made most move must name need next open part play read same seem show side tell turn used went "
        "work home help line mean also into then city case week down both door face fact feel food four free game girl head "
        "hear hold hope hour idea kind late lead less love main mind once real rest room said sort stop sure talk team test "
        "told took town tree true type unit upon view wait walk wall wide wife wind wish word area army baby ball bank base "
        "bear beat best bill body book born boys cars club cold cost dark date days deal does done draw drop early fall fast "
        "fire five form full gave gone grow half hard held hill host huge jobs join june king land list load loss lost"
    )
    .replace(" early", "")
    .split()
)
LEAD_TOKENS = 4
_ID_WIDTH = 7
_STRIDE = 7919
"""Steps through the leads: a prime that divides neither count of them, so that each comes up once in a round."""
POOL_SIZE = 4096
"""Prepared requests a worker, fewer where prompts are long."""
_POOL_BYTES = 24 << 20
_SLOT = "\x00lead\x00"
_SLOT_JSON = msgspec.json.encode(_SLOT)


class Calibration(msgspec.Struct, frozen=True):
    """How the server counts a prompt of n words: `overhead_tokens` (chat template) + n * `tokens_per_word`."""

    overhead_tokens: float = 0.0
    tokens_per_word: float = 1.0

    def words(self, tokens: int) -> int:
        """Words that come nearest to `tokens` prompt tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))


def synthetic_hash(case: Case) -> str:
    """Identity of a synthetic data set: what describes it, without the salt (which differs in every trial)."""
    return digest(
        {"dataset": case.dataset, "version": 1, "input": case.input_tokens, "output": case.output_tokens, "seed": case.seed}
    )


@dataclass(frozen=True, slots=True)
class Template:
    """One request but for its lead: `before` + lead + `after` are the bytes that go out."""

    before: bytes
    after: bytes
    input_tokens: int
    output_tokens: int
    lead_tokens: int


class PromptPool:
    """Requests of one worker, ready to send. `take(n)` gives the n-th of the whole trial: workers use disjoint n."""

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
        self.ids = _id_range(target) if target.token_ids and protocol.takes_token_ids else None
        self._case, self._target, self._protocol = case, target, protocol
        self._path, self._address, self._key = address.path + protocol.path(target), address, key
        self._calibration = calibration
        seed = int.from_bytes(hashlib.sha256(f"{salt}/{worker}".encode()).digest()[:8], "little")
        self._rng = np.random.default_rng(seed)
        self._start = int.from_bytes(hashlib.sha256(salt.encode()).digest()[:6], "little")
        inputs, outputs = self._lengths(wanted, workers)
        mine = partition(len(inputs), workers, worker)
        self.templates = [self.template(int(inputs[i]), int(outputs[i])) for i in mine]
        self._leads = min(self._lead_count(t.lead_tokens) for t in self.templates)
        self._taken = 0
        self.recycled = False

    def take(self, number: int) -> tuple[bytes, int, int]:
        """Bytes to send, input tokens and output tokens asked for, for request `number` of the trial."""
        template = self.templates[self._taken % len(self.templates)]
        self._taken += 1
        if number >= self._leads:
            self.recycled = True
        return (
            template.before + self.lead(number, template.lead_tokens) + template.after,
            template.input_tokens,
            template.output_tokens,
        )

    def lead(self, number: int, tokens: int) -> bytes:
        """The unique beginning of request `number`: a number in base (words or ids), least significant digit first."""
        base = len(WORDS) if self.ids is None else len(self.ids)
        value = (self._start + number * _STRIDE) % base**tokens
        digits = [value // base**place % base for place in range(tokens)]
        if self.ids is None:
            return " ".join([WORDS[d] for d in digits]).encode()
        return ",".join([f"{self.ids[d]:{_ID_WIDTH}d}" for d in digits]).encode()

    def template(self, input_tokens: int, output_tokens: int) -> Template:
        """A request of these lengths, drawn from this pool's generator."""
        count = input_tokens if self.ids is not None else self._calibration.words(input_tokens)
        lead_tokens = min(LEAD_TOKENS, count)
        body = self._protocol.body(self._target, self._case, _SLOT, output_tokens, exact=self._case.exact_lengths)
        head, _, tail = msgspec.json.encode(body).partition(_SLOT_JSON)
        if self.ids is not None:
            picks = self._rng.integers(self.ids.start, self.ids.stop, count - lead_tokens)
            rest, opening, closing, lead_b = "".join(f",{i}" for i in picks), b"[", b"]", lead_tokens * (_ID_WIDTH + 1) - 1
        else:
            picks = self._rng.integers(0, len(WORDS), count - lead_tokens)
            rest, opening, closing, lead_b = "".join(f" {WORDS[i]}" for i in picks), b'"', b'"', lead_tokens * 5 - 1
        after = rest.encode() + closing + tail
        before = head + opening
        http = http_head(self._address, self._path, len(before) + lead_b + len(after), self._key)
        return Template(http + before, after, input_tokens, output_tokens, lead_tokens)

    def _lengths(self, wanted: int, workers: int) -> tuple[IntArray, IntArray]:
        """Input and output lengths of the pool, the same in every trial of a case: drawn from its seed, not the salt."""
        rng = np.random.default_rng(self._case.seed)
        count = min(wanted, max(64, _POOL_BYTES // (8 * self._case.input_tokens.mean + 512))) * workers
        return draw_lengths(self._case.input_tokens, count, rng), draw_lengths(self._case.output_tokens, count, rng)

    def _lead_count(self, tokens: int) -> int:
        return int((len(WORDS) if self.ids is None else len(self.ids)) ** tokens)


def _id_range(target: Target) -> range:
    size = target.vocab_size or 32_000
    return range(min(1000, size // 4), max(size - size // 10, size // 4 + 1))
