"""A stored result, and how many chips of another kind it is worth on its workload."""

from __future__ import annotations

from bench.analysis.compare import Point
from bench.analysis.compare_pairs import newest_points
from bench.analysis.equivalents import OUTPUT, Equivalents, Modelled, against_measured, against_roofline
from bench.analysis.pool import pool_key
from bench.catalog.chips import Chip, nearest, spoken
from bench.errors import UsageError
from bench.lab.compare import points
from bench.lab.compare_select import quoted
from bench.records import TrialRecord
from bench.store import Lab, TrialFilter, records
from bench.timing.normalise import Hardware, hardware, model_costs, rates, running_precision
from bench.timing.spec import REQUIRED, undefined


def chip_called(name: str) -> Chip:
    """The one chip that a person means. Raises: UsageError (none, or several)."""
    found = spoken(name)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} may be {' or '.join(chip.name for chip in found)}", hint=f"--chip {found[0].name!r}")
    near = nearest(name)
    raise UsageError(f"the catalogue has no chip {name!r}", hint=f"did you mean {near!r}?" if near else None)


def equivalents(lab: Lab, record: TrialRecord, chip: Chip) -> Equivalents:
    """How many of `chip` the point of a trial is worth. Raises: UsageError (it has no valid throughput), StoreError."""
    half = half_of_a_pair(record)
    if half:
        raise UsageError(f"trial {record.key.trial_id} is not comparable: {half}", hint="measure the two of them as one endpoint")
    same = f"workload_id = {quoted(record.key.workload_id)} AND model = {quoted(record.case.model)}"
    # both sides of an A/B pair may be the same case: repeats of one role are pooled, and neither is a reference for others
    in_role = points(lab, f"{same} AND role = {quoted(record.key.role)}")
    own = next((point for point in in_role if point.key == pool_key(record)), None)
    values = own.samples[OUTPUT].values if own is not None else ()
    if own is None or not values:
        why = f"bench table --run {record.key.run_id}"
        raise UsageError(f"trial {record.key.trial_id} has no valid throughput", hint=f"{why} says why")
    here = served_by(record)
    references = [point for point in newest_points(points(lab, f"{same} AND role = 'measure'")) if point.key != own.key]
    others = [(point, count) for point in references if (count := _count(lab, point, own, chip))]
    measured = against_measured(own, others)
    tok_per_s = sum(values) / len(values)
    modelled = _modelled(record, tok_per_s, here, chip)
    return Equivalents(
        record=record,
        tok_per_s=tok_per_s,
        repeats=len(values),
        hardware=here,
        chip=chip,
        measured=measured,
        measured_reason=None if measured else _none_measured(chip, own),
        modelled=None if isinstance(modelled, str) else modelled,
        modelled_reason=modelled if isinstance(modelled, str) else None,
    )


def served_by(record: TrialRecord) -> Hardware:
    """The chips that served a stored trial."""
    attached = record.engine is not None and not record.engine.pids
    return hardware(record.case, record.devices, attached=attached)


def _count(lab: Lab, point: Point, own: Point, chip: Chip) -> int:
    """How many of `chip` a point ran on; 0 where it ran on others too, in another precision, or cut its window another way."""
    if (point.precision, point.window_kind) != (own.precision, own.window_kind) or point.imported:
        return 0
    if not point.devices or not all(chip.calls_itself(name) for name in point.devices):
        return 0
    run = records(lab, TrialFilter(run_id=point.run_id, model=point.model))
    first = next((record for record in run if pool_key(record) == point.key), None)
    if first is None or half_of_a_pair(first):
        return 0
    chips = served_by(first).chips
    return len(chips) if all(one == chip for one in chips) else 0


def half_of_a_pair(record: TrialRecord) -> str | None:
    """Why an engine's tokens are not those of a whole service: it does only the prefill or only the decode of a pair.

    Source: vLLM's `--kv-transfer-config` (`kv_role`), SGLang's `--disaggregation-mode`.
    """
    told = {**record.case.engine_args, **(record.engine.settings if record.engine is not None else {})}
    for name, value in told.items():
        word, text = name.lstrip("-").replace("-", "_"), str(value)
        if word == "disaggregation_mode" and text in ("prefill", "decode"):
            return f"its engine does only the {text} of a pair ({name})"
        if word == "kv_transfer_config" and ("kv_producer" in text or "kv_consumer" in text):
            return f"its engine does only one half of a prefill/decode pair ({name})"
    return None


def _none_measured(chip: Chip, own: Point) -> str:
    precision = own.precision or "this precision"
    return f"no valid point of this workload and model in {precision} was measured on {chip.name} here"


def _modelled(record: TrialRecord, tok_per_s: float, here: Hardware, chip: Chip) -> Modelled | str:
    known = {name: undefined(name, "not recorded") for name in REQUIRED}
    done = rates(record.case, known | record.metrics)
    cost = model_costs(record.case, record.model, record.engine)
    if isinstance(done, str):
        return done
    if isinstance(cost, str):
        return cost
    precision = running_precision(record.case, record.engine)
    return against_roofline(done, cost, chip, here.chips, tok_per_s=tok_per_s, precision=precision)
