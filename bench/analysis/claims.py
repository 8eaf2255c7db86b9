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
from bench.timing.roofline import Costs, costs, least_sure, may_be_cached, output_bound, peaks

Scope = Literal["devices", "server"]
State = Literal["holds", "needs", "breaks", "open"]
Verdict = Literal["can", "only_if", "cannot"]
USUAL_OUTPUT_TOKENS = 294
"""Mean length of an answer in a set that many publish on: MLPerf Inference, llama2-70b (OpenOrca), 294.45 tokens a sample."""
SERVER_FACTOR = 2.0
"""A whole server draws at most so many times what its chips are rated at: an 8-GPU one of MLPerf's takes 1.3 times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published number, and the numbers that are written so."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What somebody says. `chips`: one entry a device. `scope`: what draws the power and the joules, None where that is not said.
    `memory`: share in use; `tokens`: output tokens of a query; `batch`: queries in flight; `assumed`: how what was said loosely
    was read.
    """

    chips: tuple[Chip, ...]
    qps: Figure | None = None
    j_per_token: Figure | None = None
    power_w: Figure | None = None
    scope: Scope | None = None
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
    rating = _rating(claim.chips)
    if claim.power_w is None or rating.rated_w is None:
        return None
    stated = claim.power_w
    lines = (f"{rating.says}; stated: {amount(stated.value)} W",)
    if stated.low <= rating.rated_w:
        return Step(title="Power", lines=lines, state="holds", says="the chips may draw it")
    state, says = _above_rating(claim, stated, rating, f"{stated.value / rating.rated_w:.2g} times the rating")
    return Step(title="Power", lines=lines, state=state, says=says)


def _above_rating(claim: Claim, stated: Figure, rating: _Rating, times: str) -> tuple[State, str]:
    if stated.low > SERVER_FACTOR * rating.most_w:
        return "breaks", f"{times}, more than even a whole server draws"
    if claim.scope == "server":
        return "holds", f"a whole server may draw {times} of its chips"
    if stated.low <= rating.most_w:
        return "needs", _raised(rating)
    if claim.scope == "devices":
        return "breaks", f"{times}, which the chips alone can't draw"
    return "needs", "the stated power is that of more than the chips, such as the whole server; its J/token must then be, too"


def _energy(claim: Claim) -> Step | None:
    """J/token and the power that there is limit tokens a second, and so tokens a query."""
    joules = claim.j_per_token
    if joules is None:
        return None
    budget = _budget(claim)
    if budget.power_w is None:
        return Step(title="Energy", lines=budget.lines, state="open", says="without a power there is no limit")
    most = budget.power_w / joules.value
    lines = (*budget.lines, f"{amount(budget.power_w)} W / {joules.value:g} J/token = at most {amount(most)} tok/s")
    if claim.tok_per_s is not None:
        stated = f"{amount(claim.tok_per_s.value)} tok/s are stated"
        return _paid(claim, budget, lines, claim.tok_per_s.low * joules.low, stated, most=most)
    if claim.qps is None:
        return Step(title="Energy", lines=lines, state="open", says=f"output is at most {amount(most)} tok/s")
    each = most / claim.qps.value
    lines = (*lines, f"{amount(most)} tok/s / {claim.qps.value:g} QPS = at most {amount(each)} output tokens a query")
    if claim.tokens is None:
        server = f", or {amount(each * SERVER_FACTOR)} if the joules are of the whole server" if budget.may_be_server else ""
        return Step(title="Energy", lines=lines, state="needs", says=f"a query gets at most {amount(each)} output tokens{server}")
    stated = f"{claim.tokens.value:g} output tokens a query are stated"
    needed_w = claim.tokens.low * claim.qps.low * joules.low
    return _paid(claim, budget, lines, needed_w, stated, most=each)


def _paid(claim: Claim, budget: _Budget, lines: tuple[str, ...], needed_w: float, stated: str, *, most: float) -> Step:
    """Whether the power pays for what is stated, which takes at least `needed_w`, where `most` is what it pays for."""
    if needed_w <= budget.high_w:
        says = f"{stated}, which the power pays for, as exactly as they are written"
        return Step(title="Energy", lines=lines, state="holds", says=says)
    rating = _rating(claim.chips)
    if needed_w <= budget.raised_w:
        or_server = ", or the joules are of the server, not of the devices" if budget.may_be_server else ""
        return Step(title="Energy", lines=lines, state="needs", says=_raised(rating) + or_server)
    over = f"{stated}, {amount(most)} is the most that {budget.payer} pays for"
    if not budget.may_be_server:
        return Step(title="Energy", lines=lines, state="breaks", says=over)
    lines = (*lines, f"a whole server is taken to draw up to {SERVER_FACTOR:g} times that power")
    if needed_w > SERVER_FACTOR * rating.most_w:
        over += f", {amount(most * SERVER_FACTOR)} that of a whole server"
        return Step(title="Energy", lines=lines, state="breaks", says=over)
    says = f"the joules are of the server (or more), not of the devices: they take at least {amount(needed_w)} W"
    return Step(title="Energy", lines=lines, state="needs", says=says)


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
    power_w = _budget(claim).power_w
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rating:
    """Rated power of all chips [W], the most that their boards may be set to, and how the first adds up."""

    rated_w: float | None
    most_w: float
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """The power that J/token is paid from [W], None where there is none; the highest that is written so, and the highest that the
    chips' boards may be set to; where it comes from, in lines; who pays. `may_be_server`: the claim does not say that it isn't.
    """

    power_w: float | None
    high_w: float
    raised_w: float
    lines: tuple[str, ...]
    payer: str
    may_be_server: bool


def _budget(claim: Claim) -> _Budget:
    stated = claim.power_w
    if stated is not None:
        lines, payer = (f"{amount(stated.value)} W are stated",), "the stated power"
        return _Budget(
            power_w=stated.value, high_w=stated.high, raised_w=stated.high, lines=lines, payer=payer, may_be_server=False
        )
    rating, is_server = _rating(claim.chips), claim.scope == "server"
    factor = SERVER_FACTOR if is_server else 1.0
    rated_w = factor * (rating.rated_w or 0.0)
    more = f"a whole server is taken to draw up to {factor:g} times that: {amount(rated_w)} W"
    return _Budget(
        power_w=None if rating.rated_w is None else rated_w,
        high_w=rated_w,
        raised_w=factor * rating.most_w,
        lines=(rating.says, more) if is_server and rating.rated_w is not None else (rating.says,),
        payer="a whole server" if is_server else "the chips' rated power",
        may_be_server=claim.scope is None,
    )


def _rating(chips: Sequence[Chip]) -> _Rating:
    unknown = [chip.name for chip in chips if chip.tdp_w is None]
    if unknown:
        return _Rating(rated_w=None, most_w=0.0, says=f"the catalogue has no rated power of {unknown[0]}")
    total = sum(chip.tdp_w or 0.0 for chip in chips)
    parts = " + ".join(f"{count} * {chip.tdp_w:g} W ({chip.name})" for chip, count in chips_by_name(chips))
    says = f"{parts} = {amount(total)} W rated ({least_sure(chips, 'tdp_w')}), for the chips alone"
    return _Rating(rated_w=total, most_w=sum(chip.most_w or 0.0 for chip in chips), says=says)


def _raised(rating: _Rating) -> str:
    return f"the boards' power limits are above the rating (some come with {amount(rating.most_w)} W in all)"


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
        cached = "its weights come out of caches, or " if may_be_cached(cost, len(claim.chips)) else ""
        needs = f"{cached}a step gives several tokens of a query (speculative decoding): {says} with one"
        return Step(title="Roofline", lines=tuple(lines), state="needs", says=needs)
    return Step(title="Roofline", lines=tuple(lines), state="breaks", says=says)


def _faster(claim: Claim, most: float) -> list[str]:
    """How far from its chips a claim stays that spends all of their power."""
    power_w = _budget(claim).power_w
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
