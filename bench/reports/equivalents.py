"""How many chips a result is worth, as text and as data. Pure."""

from __future__ import annotations

from typing import Any

from bench.analysis.equivalents import Equivalents, Measured, Modelled
from bench.reports.rows import device_label, load_label
from bench.reports.text import number_text
from bench.timing.normalise import running_precision
from bench.timing.roofline import CACHED

SCALES = "chips share the work without loss: n of them do n times what one does"


def equivalents_text(found: Equivalents) -> str:
    """The result, what it is worth beside measured chips, and beside their roofline, with what each assumes."""
    record, case = found.record, found.record.case
    setting = case.model, _precision(found) or "precision not said", case.engine, load_label(case.load)
    return "\n".join(
        [
            f"{number_text(found.tok_per_s)} output tok/s on {device_label(record)} ({found.repeats} valid trials)",
            f"{', '.join(setting)}, {case.input_tokens.mean}/{case.output_tokens.mean} tokens",
            "",
            *_measured(found),
            *_modelled(found),
            f"assumed: {SCALES}",
        ]
    )


def _precision(found: Equivalents) -> str | None:
    return running_precision(found.record.case, found.record.engine)


def _measured(found: Equivalents) -> list[str]:
    one = found.measured
    if one is None:
        return [f"measured: - ({found.measured_reason})"]
    engine = f"{one.reference.engine} {one.reference.version or ''}".strip()
    reference = f"{one.chips}x {found.chip.name}, {engine}, run {one.reference.run_id}"
    each = f"{number_text(one.tok_per_s_per_chip)} tok/s a chip"
    return [
        f"measured: {number_text(one.ratio.value)}{_interval(one)} x {found.chip.name}",
        f"  beside {each}: {reference}, the best of {one.candidates} on such chips",
    ]


def _interval(one: Measured) -> str:
    if one.ratio.low is None or one.ratio.high is None:
        return " (no interval: a side has one trial)"
    return f" [{number_text(one.ratio.low)}, {number_text(one.ratio.high)}]"


def _modelled(found: Equivalents) -> list[str]:
    one = found.modelled
    if one is None:
        return [f"roofline, not measured: - ({found.modelled_reason})"]
    lines = [
        f"roofline, not measured: {'' if one.cached else 'at least '}{number_text(one.least)} x {found.chip.name}",
        f"  if each reached its bound of {number_text(one.tok_per_s)} tok/s (by {one.by})",
    ]
    if one.cached:
        lines.append(f"  which is no limit: {CACHED}, and then fewer would do")
    if one.alike is not None:
        lines.append(f"  {number_text(one.alike)} if they came as near to their bound as these to theirs")
    if one.fits > 1:
        lines.append(f"  the weights alone need {one.fits} of them")
    return lines


def equivalents_json(found: Equivalents) -> dict[str, Any]:
    """The same as one object."""
    return {
        "trial": found.record.key.trial_id,
        "chip": found.chip.name,
        "precision": _precision(found),
        "output_tok_per_s": found.tok_per_s,
        "trials": found.repeats,
        "chips": found.hardware.label or None,
        "measured": _measured_json(found.measured),
        "measured_reason": found.measured_reason,
        "roofline": _modelled_json(found.modelled),
        "roofline_reason": found.modelled_reason,
        "assumed": [SCALES],
    }


def _measured_json(one: Measured | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "value": one.ratio.value,
        "low": one.ratio.low,
        "high": one.ratio.high,
        "tok_per_s_per_chip": one.tok_per_s_per_chip,
        "run_id": one.reference.run_id,
        "case_id": one.reference.case_id,
        "reference_chips": one.chips,
        "candidates": one.candidates,
    }


def _modelled_json(one: Modelled | None) -> dict[str, Any] | None:
    if one is None:
        return None
    bound = {"bound_tok_per_s": one.tok_per_s, "bound_by": one.by, "may_be_cached": one.cached}
    return {"least": one.least, "alike": one.alike, **bound, "weights_need": one.fits}
