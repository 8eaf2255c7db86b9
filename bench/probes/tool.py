"""Cards through a vendor's command-line tool, asked once a second in a thread: the last way, and what selftest compares with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.clock import Clock
from bench.probes.background import Poller
from bench.probes.card_probe import Opened
from bench.probes.cards import Card, Get, Quantity
from bench.probes.values import LOWEST_W, Step, Unavailable, above_0, attempt, believable_w, share
from bench.records import Quality, Scope

PERIOD_S = 1.0
FIRST_ANSWER_S = 8.0
UNITS = {
    "power_w": "W",
    "energy_j": "J",
    "power_limit_w": "W",
    "memory_used_b": "B",
    "memory_total_b": "B",
    "utilisation": "share",
    "temperature_c": "C",
    "clock_mhz": "MHz",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One device in a tool's words. `values` by our names, in our units (as `UNITS`); `reasons`: its word where it gives none.

    `throttle`: names of the limits in force, None where it does not tell them.
    """

    index: int
    pci: str | None = None
    unique_id: str | None = None
    name: str | None = None
    driver: str | None = None
    firmware: str | None = None
    scope: Scope = "accelerator"
    quality: Quality = "measured"
    board: str | None = None
    visible_as: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    throttle: tuple[str, ...] | None = None


Read = Callable[[], Sequence[Told]]


def whole_lines(text: str) -> list[str]:
    """The lines of an output, but for a last one without its end: it may have been cut in the middle of a number."""
    return [line.rstrip("\r") for line in text.split("\n")[:-1]]


def first_form(forms: Sequence[Sequence[str]], read: Callable[[Sequence[str]], Sequence[Told]]) -> Read:
    """Reads with the first of these arguments that the tool here understands, and from then on with those only."""
    left = list(forms)

    def by_form() -> Sequence[Told]:
        why: list[str] = []
        for form in tuple(left):
            try:
                found = read(form)
            except Unavailable as error:
                why.append(str(error))
                continue
            left[:] = [form]
            return found
        raise Unavailable("; ".join(dict.fromkeys(why)), lasting=False)

    return by_form


def told(steps: Mapping[str, Step], *, lowest_w: float = LOWEST_W) -> tuple[dict[str, float], dict[str, str]]:
    """`values` and `reasons` of a `Told`: what each step gives, by our names, and why the others give nothing.

    Power is held against the limit, memory against its size, and more than wholly busy is no reading.
    """
    tried = {name: attempt(step) for name, step in steps.items()}
    values = {name: value for name, (value, reason, _) in tried.items() if reason is None}
    reasons = {name: reason for name, (_, reason, _) in tried.items() if reason is not None}
    checks: dict[str, Callable[[float], float]] = {
        "power_w": partial(believable_w, limit_w=values.get("power_limit_w"), lowest_w=lowest_w),
        "memory_used_b": partial(_held, total_b=values.get("memory_total_b")),
        "utilisation": _busy,
        **{name: partial(above_0, what=name) for name in ("power_limit_w", "memory_total_b", "temperature_c")},
    }
    for name, check in checks.items():
        if name in values:
            reason = attempt(partial(check, values[name]))[1]
            if reason is not None:
                del values[name]
                reasons[name] = reason
    return values, reasons


def _held(used_b: float, total_b: float | None) -> float:
    if total_b is not None and (used_b > total_b or total_b == 0):
        raise Unavailable(f"{used_b:.0f} B in use of {total_b:.0f} B is no reading", lasting=False)
    return used_b


def _busy(portion: float) -> float:
    return share(portion * 100)


def opened(name: str, read: Read, clock: Clock, *, period_s: float = PERIOD_S) -> Opened:
    """Run the tool again and again. `read` runs and parses it once. Raises: Unavailable where its first answer can't be read."""
    poller: Poller[Sequence[Told]] = Poller(name, read, period_s, clock)
    try:
        listed = poller.first(FIRST_ANSWER_S).value
    except Unavailable:
        poller.close()
        raise
    return Opened(cards=[_card(name, poller, one) for one in listed], close=poller.close)


def _card(name: str, poller: Poller[Sequence[Told]], one: Told) -> Card:
    return Card(
        index=one.index,
        pci=one.pci,
        unique_id=one.unique_id,
        name=one.name,
        driver=one.driver,
        firmware=one.firmware,
        scope=one.scope,
        quality=one.quality,
        board=one.board,
        visible_as=one.visible_as,
        quantities={
            quantity: Quantity(get=get, api=name, unit=unit, span=poller.span)
            for quantity, get, unit in _getters(name, poller, one)
        },
        reasons=one.reasons,
    )


def _getters(name: str, poller: Poller[Sequence[Told]], one: Told) -> Iterator[tuple[str, Get, str]]:
    for quantity, unit in UNITS.items():
        if quantity in one.values:
            yield quantity, partial(_value, name, poller, one.index, quantity), unit
    if one.throttle is not None:
        yield "throttle", partial(_throttle, name, poller, one.index), "flags"


def _latest(name: str, poller: Poller[Sequence[Told]], index: int) -> Told:
    found = next((one for one in poller.latest().value if one.index == index), None)
    if found is None:
        raise Unavailable(f"{name} no longer lists device {index}", lasting=False)
    return found


def _value(name: str, poller: Poller[Sequence[Told]], index: int, quantity: str) -> float | int:
    found = _latest(name, poller, index)
    if (value := found.values.get(quantity)) is None:
        raise Unavailable(f"{name}: {found.reasons.get(quantity, 'no value')}", lasting=False)
    return int(value) if quantity.startswith("memory") else value


def _throttle(name: str, poller: Poller[Sequence[Told]], index: int) -> tuple[str, ...]:
    limits = _latest(name, poller, index).throttle
    if limits is None:
        raise Unavailable(f"{name} tells no limits in force now", lasting=False)
    return limits
