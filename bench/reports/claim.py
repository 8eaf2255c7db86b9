"""What came of a claim, as text and as data. Pure."""

from __future__ import annotations

from typing import Any

from bench.analysis.claims import Claim, Figure, Judgement, Step, chips_by_name

MARKS = {"holds": "ok", "needs": "only if", "breaks": "breaks", "open": "open"}
_FIGURES = ("qps", "tok_per_s", "tokens", "j_per_token", "power_w", "memory")


def claim_text(found: Judgement) -> str:
    """The verdict, then every check with its arithmetic."""
    lines = [verdict_text(found)]
    for step in found.steps:
        lines += ["", f"{step.title}: {MARKS[step.state]}", *(f"  {line}" for line in step.lines), f"  => {step.says}"]
    lines += ["", *(f"note: {note}" for note in notes(found.claim))] if notes(found.claim) else []
    return "\n".join(lines)


def verdict_text(found: Judgement) -> str:
    """One sentence: whether the figures can be true together, and what stands against it."""
    if found.verdict == "cannot":
        return f"These figures can't be true together: {_all(found, 'breaks')}."
    if found.verdict == "only_if":
        return f"These figures can be true together only if {_all(found, 'needs')}."
    return "These figures can be true together."


def _all(found: Judgement, state: str) -> str:
    return "; ".join(f"{step.title.lower()}: {step.says}" if state == "breaks" else step.says for step in _with(found, state))


def _with(found: Judgement, state: str) -> list[Step]:
    return [step for step in found.steps if step.state == state]


def notes(claim: Claim) -> list[str]:
    """How a claim was read, and what would let more of it be checked."""
    found = list(claim.assumed)
    if claim.j_per_token is not None and claim.power_w is None and claim.scope is None:
        found.append("whose joules they are is not said: state --scope devices, --scope server or the power (--power)")
    missing = [flag for flag, value in (("--model", claim.model), ("--precision", claim.precision)) if value is None]
    if missing:
        found.append(f"memory and roofline are checked once {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} given")
    return found


def claim_json(found: Judgement) -> dict[str, Any]:
    """The same as one object."""
    claim = found.claim
    return {
        "verdict": found.verdict,
        "sentence": verdict_text(found),
        "claim": {
            "chips": [{"name": chip.name, "count": count, "source": chip.source} for chip, count in chips_by_name(claim.chips)],
            **{name: _figure(getattr(claim, name)) for name in _FIGURES},
            "scope": claim.scope,
            "batch_size": claim.batch,
            "model": claim.model.name if claim.model else None,
            "precision": claim.precision,
        },
        "steps": [{"title": s.title, "state": s.state, "arithmetic": list(s.lines), "says": s.says} for s in found.steps],
        "notes": notes(claim),
    }


def _figure(figure: Figure | None) -> dict[str, float] | None:
    return None if figure is None else {"value": figure.value, "low": figure.low, "high": figure.high}
