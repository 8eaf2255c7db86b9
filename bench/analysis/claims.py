"""Whether published figures can be true together: power, J/token, queries, tokens, memory and the roofline. Pure.

A figure is read as it was written: 3.2 may be 3.15 to 3.25. What breaks, breaks with every figure rounded in the claim's favour.
What a claim leaves open is taken in its favour too, and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.catalog.chips import Chip
from bench.catalog.models import CatalogModel
from bench.timing.normalise import ROOFLINE_SLACK
from bench.timing.roofline import Costs, costs, least_sure, output_bound, peaks

State = Literal["holds", "needs", "breaks", "open"]
Verdict = Literal["can", "only_if", "cannot"]
USUAL_OUTPUT_TOKENS = 294
"""Mean length of an answer in a set that many publish on: MLPerf Inference, llama2-70b (OpenOrca), 294.45 tokens a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published number, and the numbers that are written so."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What somebody says. `chips`: one entry a device. `memory`: share in use; `tokens`: output tokens of a query; `batch`:
    queries in flight; `assumed`: how what was said loosely was read.
    """

    chips: tuple[Chip, ...]
    qps: Figure | None = None
    j_per_token: Figure | None = None
    power_w: Figure | None = None
    memory: Figure | None = None
    tokens: Figure | None = None
    tok_per_s: Figure | None = None
    batch: int | None = None
    model: CatalogModel | None = None
    precision: str | None = None
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One check: what it asks, its arithmetic, and what came out. `needs`: it holds only under the condition in `says`; `open`:
    the claim does not say enough, or there is nothing to compare.
    """

    title: str
    lines: tuple[str, ...]
    state: State
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A claim, its checks in order, and the whole."""

    claim: Claim
    steps: tuple[Step, ...]

    @property
    def verdict(self) -> Verdict:
        states = {step.state for step in self.steps}
        return "cannot" if "breaks" in states else "only_if" if "needs" in states else "can"


def judge(claim: Claim) -> Judgement:
    """Check a claim against arithmetic and the catalogue. Empty steps: it holds no two figures that depend on each other."""
    rules = (_power_rating, _energy, _identity, _lengths, _usual, _memory, _roofline)
    return Judgement(claim=claim, steps=tuple(step for rule in rules if (step := rule(claim)) is not None))


# --- power and energy ---------------------------------------------------------------------------------------------------


def _power_rating(claim: Claim) -> Step | None:
    """A stated power beside the rated one."""
    rated_w, rating = _rating(claim.chips)
    if claim.power_w is None or rated_w is None:
        return None
    lines = (f"{rating}; stated: {amount(claim.power_w.value)} W",)
    if claim.power_w.low <= rated_w:
        return Step(title="Power", lines=lines, state="holds", says="the chips may draw it")
    says = "the stated power is that of more than the chips, such as the whole server; its J/token must then be, too"
    return Step(title="Power", lines=lines, state="needs", says=says)


def _energy(claim: Claim) -> Step | None:
    """J/token and the power that there is limit tokens a second, and so tokens a query."""
    joules = claim.j_per_token
    if joules is None:
        return None
    power_w, source = _budget(claim)
    if power_w is None:
        return Step(title="Energy", lines=(source,), state="open", says="without a power there is no limit")
    most = power_w / joules.value
    lines = [source, f"{amount(power_w)} W / {joules.value:g} J/token = at most {amount(most)} tok/s"]
    if claim.tok_per_s is not None:
        breaks = claim.tok_per_s.low * joules.low > _high_power(claim, power_w)
        says = f"{amount(claim.tok_per_s.value)} tok/s are stated{_over(claim, most, breaks=breaks)}"
        return Step(title="Energy", lines=tuple(lines), state="breaks" if breaks else "holds", says=says)
    if claim.qps is None:
        return Step(title="Energy", lines=tuple(lines), state="open", says=f"output is at most {amount(most)} tok/s")
    each = most / claim.qps.value
    lines.append(f"{amount(most)} tok/s / {claim.qps.value:g} QPS = at most {amount(each)} output tokens a query")
    if claim.tokens is None:
        return Step(title="Energy", lines=tuple(lines), state="needs", says=f"a query gets at most {amount(each)} output tokens")
    breaks = claim.tokens.low * claim.qps.low * joules.low > _high_power(claim, power_w)
    says = f"{claim.tokens.value:g} output tokens a query are stated{_over(claim, each, breaks=breaks)}"
    return Step(title="Energy", lines=tuple(lines), state="breaks" if breaks else "holds", says=says)


def _over(claim: Claim, most: float, *, breaks: bool) -> str:
    if not breaks:
        return ", which the power pays for, as exactly as they are written"
    payer = "the chips' rated power" if claim.power_w is None else "the stated power"
    return f", {amount(most)} is the most that {payer} pays for"


def _identity(claim: Claim) -> Step | None:
    """Power is J/token times tokens a second, from either side."""
    rate = _rate(claim)
    if claim.power_w is None or claim.j_per_token is None or rate is None:
        return None
    joules = claim.j_per_token
    drawn = _times(joules, rate)
    product = f"{joules.value:g} J/token * {amount(rate.value)} tok/s = {amount(drawn.value)} W"
    lines = (f"{product}; stated: {amount(claim.power_w.value)} W",)
    return _equation("Power is J/token times tok/s", lines, drawn, claim.power_w)


def _lengths(claim: Claim) -> Step | None:
    """Tokens a second are queries a second times tokens of a query."""
    qps, tokens, rate = claim.qps, claim.tokens, claim.tok_per_s
    if qps is None or tokens is None or rate is None:
        return None
    given = _times(qps, tokens)
    product = f"{qps.value:g} QPS * {tokens.value:g} tokens a query = {amount(given.value)} tok/s"
    lines = (f"{product}; stated: {amount(rate.value)} tok/s",)
    return _equation("tok/s is QPS times tokens a query", lines, given, rate)


def _equation(title: str, lines: tuple[str, ...], one: Figure, other: Figure) -> Step:
    agrees = one.low <= other.high and other.low <= one.high
    says = "they agree, as exactly as they are written" if agrees else "three figures of one equation, which does not hold"
    return Step(title=title, lines=lines, state="holds" if agrees else "breaks", says=says)


def _times(one: Figure, other: Figure) -> Figure:
    return Figure(value=one.value * other.value, low=one.low * other.low, high=one.high * other.high)


def _usual(claim: Claim) -> Step | None:
    """Where a claim leaves the length of its answers open: what it would be of usual ones."""
    power_w, _ = _budget(claim)
    joules, qps = claim.j_per_token, claim.qps
    if power_w is None or joules is None or qps is None or claim.tokens or claim.tok_per_s:
        return None
    rate = qps.value * USUAL_OUTPUT_TOKENS
    needed_w = joules.value * rate
    lines = (
        f"{qps.value:g} QPS * {USUAL_OUTPUT_TOKENS} tokens = {amount(rate)} tok/s",
        f"from {amount(power_w)} W that is {power_w / rate:.2g} J/token; {joules.value:g} J/token take {amount(needed_w)} W",
    )
    apart = f"of such answers the figures are {amount(needed_w / power_w)} times apart"
    says = apart if needed_w > power_w else "the queries could have such answers"
    title = f"With answers of {USUAL_OUTPUT_TOKENS} tokens (the mean of MLPerf's llama2-70b)"
    return Step(title=title, lines=lines, state="open", says=says)


def _budget(claim: Claim) -> tuple[float | None, str]:
    """The power that J/token is paid from, and in words."""
    if claim.power_w is not None:
        return claim.power_w.value, f"{amount(claim.power_w.value)} W are stated"
    return _rating(claim.chips)


def _high_power(claim: Claim, power_w: float) -> float:
    return claim.power_w.high if claim.power_w is not None else power_w


def _rating(chips: Sequence[Chip]) -> tuple[float | None, str]:
    """Rated power of all chips [W] and how it adds up."""
    unknown = [chip.name for chip in chips if chip.tdp_w is None]
    if unknown:
        return None, f"the catalogue has no rated power of {unknown[0]}"
    total = sum(chip.tdp_w or 0.0 for chip in chips)
    parts = " + ".join(f"{count} * {chip.tdp_w:g} W ({chip.name})" for chip, count in chips_by_name(chips))
    return total, f"{parts} = {amount(total)} W rated ({least_sure(chips, 'tdp_w')}), for the chips alone"


def chips_by_name(chips: Sequence[Chip]) -> list[tuple[Chip, int]]:
    """Each kind of chip and how many of it, in order of appearance."""
    found = {chip.name: chip for chip in chips}
    return [(chip, sum(one.name == name for one in chips)) for name, chip in found.items()]


def _rate(claim: Claim) -> Figure | None:
    """Output tokens a second, as stated or as they follow."""
    if claim.tok_per_s is not None or claim.qps is None or claim.tokens is None:
        return claim.tok_per_s
    return _times(claim.qps, claim.tokens)


# --- memory -------------------------------------------------------------------------------------------------------------


def _costs(claim: Claim) -> Costs | None:
    found = costs(claim.model.shape, claim.precision) if claim.model is not None and claim.precision else None
    return found if isinstance(found, Costs) else None


def _memory(claim: Claim) -> Step | None:
    """Memory in use beside the weights."""
    cost = _costs(claim)
    if claim.memory is not None and claim.memory.low > 1.0:
        return Step(title="Memory", lines=(), state="breaks", says=f"{claim.memory.value:.0%} is more than there is")
    if claim.memory is None or cost is None:
        return None
    total_gb = sum(chip.most_memory_b for chip in claim.chips) / 1e9
    used_gb, weights_gb = claim.memory.value * total_gb, cost.parameters * cost.weight_b / 1e9
    lines = [
        f"{claim.memory.value:.0%} of {amount(total_gb)} GB (sold GB taken as binary ones) = {amount(used_gb)} GB in use",
        f"weights: {cost.parameters / 1e9:.1f} * 10^9 * {cost.weight_b:g} bytes = {amount(weights_gb)} GB",
    ]
    if claim.memory.high * total_gb < weights_gb:
        return Step(title="Memory", lines=tuple(lines), state="breaks", says="the weights alone need more")
    cached = max(used_gb - weights_gb, 0.0) * 1e9 / cost.kv_b
    lines.append(f"the rest holds {amount(cached)} tokens of cache" + _each(cached, claim.batch))
    says = "it fits; engines that reserve their cache show what they reserved, not what the queries needed"
    return Step(title="Memory", lines=tuple(lines), state="holds", says=says)


def _each(cached: float, batch: int | None) -> str:
    return f", {amount(cached / batch)} for each of {batch} queries" if batch else ""


# --- roofline -----------------------------------------------------------------------------------------------------------


def _roofline(claim: Claim) -> Step | None:
    """Tokens a second beside what arithmetic and memory of the chips allow; prompts cost nothing here."""
    cost = _costs(claim)
    able = peaks(claim.chips, claim.precision)
    if cost is None or able.flop_per_s is None or able.bytes_per_s is None:
        return None
    tokens = claim.tokens.low if claim.tokens is not None else 1.0
    sequences = claim.batch or _most_sequences(claim, cost, tokens)
    if sequences < 1:
        return Step(title="Roofline", lines=(), state="breaks", says="the weights do not fit into the memory of these chips")
    bound = output_bound(
        cost, able.flop_per_s, able.bytes_per_s, sequences=sequences, input_tokens=0.0, output_tokens=max(tokens, 1.0)
    )
    most = 1.0 / bound.seconds
    many = f"{claim.batch} queries at once" if claim.batch else "as many queries at once as fit into memory"
    lines = [f"with {many} these chips do at most {amount(most)} tok/s, bound by {bound.by}, prompts left out"]
    rate = _rate(claim)
    if rate is None:
        lines += _faster(claim, most)
        return Step(title="Roofline", lines=tuple(lines), state="open", says="the claim does not say how many tokens it gave")
    says = f"{amount(rate.value)} tok/s are {rate.value / most:.0%} of it"
    if rate.low <= ROOFLINE_SLACK * most:
        return Step(title="Roofline", lines=tuple(lines), state="holds", says=says)
    if rate.low <= ROOFLINE_SLACK * able.flop_per_s / cost.flop(tokens / 2):
        needs = f"a step gives several tokens of a query (speculative decoding): {says} with one"
        return Step(title="Roofline", lines=tuple(lines), state="needs", says=needs)
    return Step(title="Roofline", lines=tuple(lines), state="breaks", says=says)


def _faster(claim: Claim, most: float) -> list[str]:
    """How far from its chips a claim stays that spends all of their power."""
    power_w, _ = _budget(claim)
    if power_w is None or claim.j_per_token is None:
        return []
    share = power_w / claim.j_per_token.value / most
    return [f"at full power and {claim.j_per_token.value:g} J/token they do {share:.1%} of that"]


def _most_sequences(claim: Claim, cost: Costs, tokens: float) -> float:
    """How many queries' caches fit beside the weights."""
    free_b = sum(chip.most_memory_b for chip in claim.chips) - cost.parameters * cost.weight_b
    return free_b / (cost.kv_b * max(tokens, 1.0))


def amount(value: float) -> str:
    """A number for a sentence: `6.2`, `875`, `41,748`; two digits below ten."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"
