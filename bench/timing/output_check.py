"""Whether an engine's answers are right: its check against the reference as metrics, and as a reason not to trust it. Pure."""

from __future__ import annotations

from bench.records import Metric, OutputCheck, Profile, Reason
from bench.timing.spec import scalar, undefined
from bench.timing.validity import WRONG_PPL_SHARE, raise_code, threshold

_UNCHECKED = OutputCheck(reason="its answers were not compared")


def output_metrics(check: OutputCheck | None) -> tuple[Metric, Metric]:
    """`top1_agreement` and `ppl_delta`; `source` says against what."""
    check = check or _UNCHECKED
    return _top1_agreement(check), _ppl_delta(check)


def _top1_agreement(check: OutputCheck) -> Metric:
    if not check.steps:
        return undefined("top1_agreement", check.reason or "no token was compared")
    return scalar("top1_agreement", check.agreed / check.steps, n=check.steps, source=check.reference)


def _ppl_delta(check: OutputCheck) -> Metric:
    if check.ppl is None or check.reference_ppl is None:
        return undefined("ppl_delta", check.ppl_reason or check.reason or "no logprobs")
    return scalar("ppl_delta", check.ppl / check.reference_ppl - 1.0, n=check.text_tokens, source=check.reference)


def wrong_output(check: OutputCheck | None, profile: Profile) -> tuple[Reason, ...]:
    """The engine says other things than the same weights do elsewhere: however fast that is, it is no measurement of them."""
    told = [text for text in _wrong(check, threshold("wrong_output", profile)) if text] if check else []
    return raise_code("wrong_output", profile, "; ".join(told)) if told else ()


def _wrong(check: OutputCheck, least: float) -> tuple[str | None, str | None]:
    agreement, delta = output_metrics(check)
    tokens = text = None
    if agreement.value is not None and agreement.value < least:
        tokens = f"{check.steps - check.agreed} of {check.steps} sure tokens are not those of {check.reference}"
        if check.partings:
            first = check.partings[0]
            tokens += f": after {first.after!r} it says {first.found!r}, and not {first.expected!r}"
    if delta.value is not None and abs(delta.value) > WRONG_PPL_SHARE:
        text = f"a text has a perplexity of {check.ppl:.4g}, and of {check.reference_ppl:.4g} with {check.reference}"
    return tokens, text
