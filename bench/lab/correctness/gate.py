"""Once in each engine start, before anything is measured: are its answers those of the reference? And how a reference is made."""

from __future__ import annotations

from bench.analysis.agreement import Reference, Scored, output_check
from bench.errors import StoreError, TargetError, UsageError
from bench.lab.correctness.asking import Asker
from bench.lab.correctness.prompts import PROMPTS, TEXT, TOKENS
from bench.lab.correctness.references import find, weights_of
from bench.ports import Engine
from bench.records import Case, LocalModel, OutputCheck
from bench.timing.validity import LEAST_SURE_STEPS


class ReferenceGate:
    """Fills `bench.ports.OutputChecker`. An engine whose weights have no reference is asked nothing."""

    def check(self, engine: Engine, case: Case, model: LocalModel | None) -> OutputCheck:
        if model is not None and model.is_synthetic:
            return OutputCheck(reason="random weights have no right answer")
        try:
            weights = weights_of(engine.handle, model)
            reference = find(weights) if weights else None
        except StoreError as error:
            return OutputCheck(reason=str(error))
        if reference is None:
            why = f"no reference of these weights: bench reference {case.model}" if weights else "its weights are not known"
            return OutputCheck(reason=why)
        return _compared(reference, Asker(engine.target, engine.handle.name))


def _compared(reference: Reference, asker: Asker) -> OutputCheck:
    prompts = [one.prompt for one in reference.continuations]
    try:
        answers = asker.answers(prompts, [len(one.ends) for one in reference.continuations])
    except TargetError as error:
        return OutputCheck(reference=reference.told, reason=str(error))
    scored, reason = _scored(asker, reference.scored.text) if reference.scored else (None, None)
    return output_check(reference, answers, scored, reason)


def _scored(asker: Asker, text: str) -> tuple[Scored | None, str | None]:
    """What an engine tells of a text, or why it tells nothing."""
    try:
        return asker.scored(text), None
    except TargetError as error:
        return None, str(error)


def make_reference(engine: Engine, case: Case, model: LocalModel | None) -> Reference:
    """What `engine` says, for others to be compared with. Raises: TargetError (it can't be one), UsageError (unknown weights)."""
    handle = engine.handle
    weights = weights_of(handle, model)
    if weights is None:
        why = model.weights_reason if model else "the endpoint does not tell"
        raise UsageError(f"the weights of {case.model!r} are not known: {why or 'they were not hashed'}")
    asker = Asker(engine.target, handle.name)
    continuations = tuple(asker.continuations(PROMPTS, TOKENS))
    scored, reason = _scored(asker, TEXT)
    made = Reference(
        weights=weights,
        model=case.model,
        engine=handle.name,
        version=handle.version,
        precision=handle.precision,
        continuations=continuations,
        scored=scored,
        scored_reason=reason,
    )
    if made.sure_steps < LEAST_SURE_STEPS:
        few = f"{case.model} is sure of {made.sure_steps} tokens in all of its answers, and {LEAST_SURE_STEPS} are needed"
        raise TargetError(f"{few}: nothing can be compared with that", hint="are these weights random, or damaged?")
    return made
