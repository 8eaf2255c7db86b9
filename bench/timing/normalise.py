"""Throughput beside what the chips could do: MFU, MBU, shares of the roofline, tokens per rated TFLOP/s, TB/s and W. Pure.

Everything here is a measured number over catalogued ones: the catalogue's figures and how sure they are stand in each metric's
`source`. What the chip or the model is must be known, else there is a reason and no number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.catalog.chips import Chip, identify
from bench.records import BOARD_SCOPES, Case, DeviceInfo, EngineHandle, LocalModel, Metric, ModelShape, Reason
from bench.timing.roofline import (
    CACHED,
    KV_B,
    Bound,
    Costs,
    Peaks,
    costs,
    decode_bound,
    highest_peak,
    least_sure,
    may_be_cached,
    peaks,
    prefill_bound,
)
from bench.timing.spec import NORMALISED, scalar, undefined
from bench.timing.validity import raise_code

ROOFLINE_SLACK = 1.1
"""Above this multiple of a chip's peak a number is impossible: boost clocks go a little beyond the rated ones."""
_HALF_KV = ("fp8", "int8", "e4m3", "e5m2", "q8")
_SPECULATIVE = ("specul", "draft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The chips that served a trial, and the power limit that each one's board tells [W]; none with the reason."""

    chips: tuple[Chip, ...] = ()
    limits_w: tuple[float | None, ...] = ()
    reason: str | None = None

    @property
    def label(self) -> str:
        """`8x B200`, `2x H100 SXM, 2x MI300X`."""
        names = [chip.name for chip in self.chips]
        return ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What an engine did. Per second: `output` tokens, `prompt` tokens that no prefix cache had (None with its reason), and
    `steps` of each replica (None with its reason), each of so many `sequences`. Per request: tokens in and out. `gap_s`: mean
    time between two chunks of a stream.
    """

    output: float
    prompt: float | None
    prompt_reason: str | None
    input_tokens: float
    output_tokens: float
    steps: float | None
    steps_reason: str | None
    sequences: float
    gap_s: float | None
    replicas: int

    @property
    def context(self) -> float:
        """Tokens before one of the output, on average."""
        return self.input_tokens + self.output_tokens / 2


# --- who served, and what -----------------------------------------------------------------------------------------------


def hardware(case: Case, devices: Sequence[DeviceInfo], *, attached: bool) -> Hardware:
    """The chips of a trial's boards. Where there are accelerators, the modules around them don't count."""
    boards = [d for d in devices if d.scope == "accelerator"] or [d for d in devices if d.scope in BOARD_SCOPES]
    if attached and not case.devices:
        return Hardware(reason="attached endpoint: name its boards with --devices")
    if not boards or (case.devices and all(name == "cpu" for name in case.devices)):
        return Hardware(reason="no accelerator: CPUs have no peak in the catalogue")
    unused = next((d.power_reason for d in boards if d.power is None and d.energy is None and d.power_reason), None)
    if unused and not case.devices and len(boards) > case.parallel.devices:
        return Hardware(reason=unused)
    found = [identify(device) for device in boards]
    lost = next((one.reason for one in found if one.reason), None)
    if lost:
        return Hardware(reason=lost)
    return Hardware(chips=tuple(one.chip for one in found if one.chip), limits_w=tuple(board.power_limit_w for board in boards))


def model_costs(case: Case, model: LocalModel | None, engine: EngineHandle | None) -> Costs | str:
    """What a token of the trial's model costs, in the precision that ran."""
    from bench.catalog import models  # imports yaml, which tables don't need

    precision = running_precision(case, engine)
    listed = models.lookup(case.model)
    shape = model.shape if model is not None else listed.shape if listed is not None else ModelShape()
    size_b = model.size_b if model is not None and model.format == "gguf" else None
    return costs(shape, precision, size_b=size_b, kv_b=_kv_b(engine))


def running_precision(case: Case, engine: EngineHandle | None) -> str | None:
    """What the engine says that it runs, else what was asked for."""
    return (engine.precision if engine is not None else None) or case.precision


def _kv_b(engine: EngineHandle | None) -> float:
    told = engine.settings.get("kv_cache_dtype") or engine.settings.get("cache_type_k") if engine is not None else None
    return KV_B / 2 if any(word in str(told).lower() for word in _HALF_KV) else KV_B


def rates(case: Case, metrics: Mapping[str, Metric]) -> Rates | str:
    """What the trial's metrics say of its engine's work, or why they say nothing."""
    output = metrics["output_tok_per_s"]
    if not output.value:
        return f"no output throughput: {output.reason or 'no token'}"
    prompt = metrics["input_tok_per_s"]
    cached = metrics["prefix_cache_hit_share"].value or 0.0
    gap = metrics["icl_ms"]
    gap_s = gap.mean / 1e3 if gap.mean else None
    replicas = case.parallel.dp
    # a chunk is what one sequence gets of one step; by Little's law as many are under way as come in a gap
    chunks = output.value / (metrics["tokens_per_chunk"].mean or 1.0) / replicas
    steps = min(1.0 / gap_s, chunks) if gap_s else None
    return Rates(
        output=output.value,
        prompt=None if prompt.value is None else prompt.value * (1.0 - cached),
        prompt_reason=prompt.reason,
        input_tokens=metrics["input_tokens"].mean or case.input_tokens.mean,
        output_tokens=metrics["output_tokens"].mean or case.output_tokens.mean,
        steps=steps,
        steps_reason=gap.reason or "gaps between chunks are not known",
        sequences=chunks / steps if steps else 1.0,
        gap_s=gap_s,
        replicas=replicas,
    )


# --- metrics ------------------------------------------------------------------------------------------------------------


def normalised(
    case: Case,
    metrics: Mapping[str, Metric],
    devices: Sequence[DeviceInfo],
    *,
    model: LocalModel | None,
    engine: EngineHandle | None,
    attached: bool,
) -> tuple[dict[str, Metric], tuple[Reason, ...]]:
    """The normalised metrics of a trial, and `impossible` where it did more than its chips can."""
    found = hardware(case, devices, attached=attached)
    done = rates(case, metrics)
    if isinstance(done, str) or not found.chips:
        reason = done if isinstance(done, str) else found.reason or "no board"
        return {name: undefined(name, reason) for name in NORMALISED}, ()
    able = peaks(found.chips, running_precision(case, engine))
    cost = model_costs(case, model, engine)
    made = _per_figure(metrics["output_tok_per_s"], found, able)
    if isinstance(cost, str):
        made += tuple(undefined(name, cost) for name in ("mfu", "mbu", "prefill_roofline_share", "decode_roofline_share"))
        return {metric.name: metric for metric in made}, ()
    cached = may_be_cached(cost, len(found.chips), done.replicas)
    made += (_mfu(done, cost, able, found), _mbu(done, cost, able, found, cached=cached))
    made += (_prefill_share(done, cost, able, metrics, cached=cached), _decode_share(done, cost, able, cached=cached))
    cached_told = metrics["prefix_cache_hit_share"].value is not None
    return {metric.name: metric for metric in made}, impossible_work(case, done, cost, found, engine, cached_told=cached_told)


def _mfu(done: Rates, cost: Costs, able: Peaks, found: Hardware) -> Metric:
    if able.flop_per_s is None or done.prompt is None:
        return undefined("mfu", able.flop_reason or f"no prompt token count: {done.prompt_reason}")
    work = flop_per_s(done, cost, done.prompt)
    return scalar("mfu", work / able.flop_per_s, source=_peak_text(able, found))


def flop_per_s(done: Rates, cost: Costs, prompt: float) -> float:
    """Model FLOP/s of the output and of `prompt` tokens a second."""
    return done.output * cost.flop(done.context) + prompt * cost.flop(done.input_tokens / 2)


def _mbu(done: Rates, cost: Costs, able: Peaks, found: Hardware, *, cached: bool) -> Metric:
    if able.bytes_per_s is None or done.steps is None:
        return undefined("mbu", able.bytes_reason or done.steps_reason or "no steps")
    moved = done.replicas * done.steps * cost.step_b(done.sequences, done.context)
    return scalar("mbu", moved / able.bytes_per_s, source=_bandwidth_text(able, found) + (f"; {CACHED}" if cached else ""))


def _prefill_share(done: Rates, cost: Costs, able: Peaks, metrics: Mapping[str, Metric], *, cached: bool) -> Metric:
    name = "prefill_roofline_share"
    ttft = metrics["ttft_ms"]
    if able.flop_per_s is None or able.bytes_per_s is None or not ttft.p50:
        return undefined(name, able.flop_reason or able.bytes_reason or ttft.reason or "TTFT is not known")
    fresh = done.input_tokens * (1.0 - (metrics["prefix_cache_hit_share"].value or 0.0))
    bound = prefill_bound(cost, able.flop_per_s / done.replicas, able.bytes_per_s / done.replicas, max(fresh, 1.0))
    return _share(name, bound, ttft.p50 / 1e3, cached=cached)


def _decode_share(done: Rates, cost: Costs, able: Peaks, *, cached: bool) -> Metric:
    name = "decode_roofline_share"
    if able.flop_per_s is None or able.bytes_per_s is None or done.gap_s is None:
        return undefined(name, able.flop_reason or able.bytes_reason or done.steps_reason or "no steps")
    machine = able.flop_per_s / done.replicas, able.bytes_per_s / done.replicas
    bound = decode_bound(cost, *machine, sequences=done.sequences, context=done.context)
    return _share(name, bound, done.gap_s, cached=cached)


def _share(name: str, bound: Bound, seconds: float, *, cached: bool) -> Metric:
    note = f"; {CACHED}" if cached and bound.by == "memory" else ""
    return scalar(name, bound.seconds / seconds, source=f"bound by {bound.by}: {bound.seconds * 1e3:.3g} ms{note}")


def _per_figure(output: Metric, found: Hardware, able: Peaks) -> tuple[Metric, ...]:
    """Output tokens per second over what is rated."""
    untold = ", ".join(sorted({chip.name for chip in found.chips if chip.tdp_w is None}))
    boards_w = [chip.board_w(limit_w) for chip, limit_w in zip(found.chips, found.limits_w, strict=True)]
    rated_w = None if untold else sum(one or 0.0 for one in boards_w)
    raised = any(one != chip.tdp_w for chip, one in zip(found.chips, boards_w, strict=True))
    sure = "the limits that the boards tell, above the rating" if raised else least_sure(found.chips, "tdp_w")
    watts = f"{found.label}: {rated_w or 0.0:g} W rated ({sure})"
    return (
        _per("tok_per_s_per_tflops", output, _tera(able.flop_per_s), able.flop_reason, source=_peak_text(able, found)),
        _per("tok_per_s_per_tbps", output, _tera(able.bytes_per_s), able.bytes_reason, source=_bandwidth_text(able, found)),
        _per("tok_per_s_per_rated_w", output, rated_w, f"the catalogue has no rated power of {untold}", source=watts),
    )


def _per(name: str, output: Metric, rated: float | None, reason: str | None, *, source: str) -> Metric:
    if rated is None or output.value is None:
        return undefined(name, reason or "no output throughput")
    low, high = (None if end is None else end / rated for end in (output.low, output.high))
    return scalar(name, output.value / rated, low=low, high=high, source=source)


def _tera(value: float | None) -> float | None:
    return None if value is None else value / 1e12


def _peak_text(able: Peaks, found: Hardware) -> str:
    return f"{found.label}: {(able.flop_per_s or 0.0) / 1e12:g} TFLOP/s dense {able.format} ({least_sure(found.chips, 'tflops')})"


def _bandwidth_text(able: Peaks, found: Hardware) -> str:
    return f"{found.label}: {(able.bytes_per_s or 0.0) / 1e12:g} TB/s ({least_sure(found.chips, 'bandwidth_tb_s')})"


# --- what can't be ------------------------------------------------------------------------------------------------------


def impossible_work(
    case: Case, done: Rates, cost: Costs, found: Hardware, engine: EngineHandle | None, *, cached_told: bool
) -> tuple[Reason, ...]:
    """More arithmetic or more bytes than the chips can do, counted low: the active weights once a step, a cache of 8 bits, and
    prompts only where it is known what a prefix cache had, against the highest peak that the chips have in any format.

    A warning where the catalogue's figure is not the vendor's, where an engine may send the tokens of one step one by one, or
    where it takes what tokens cost for those before them: windows of attention and shared prefixes make that less.
    """
    prompt = done.prompt if cached_told and done.prompt else 0.0
    text = _beyond(done, cost, found, prompt)
    if not text:
        return ()
    sure = {least_sure(found.chips, "tflops"), least_sure(found.chips, "bandwidth_tb_s")} == {"datasheet"}
    bare = replace(cost, attention_flop=0.0, kv_b=0.0)
    certain = sure and not _may_speculate(case, engine) and bool(_beyond(done, bare, found, prompt))
    return raise_code(
        "impossible", case.profile, "; ".join(text), groups=("throughput",), severity=None if certain else "warning"
    )


def _beyond(done: Rates, cost: Costs, found: Hardware, prompt: float) -> list[str]:
    """What of the work is more than the chips can do; `prompt` tokens a second count."""
    text: list[str] = []
    share = flop_per_s(done, cost, prompt) / highest_peak(found.chips)
    if share > ROOFLINE_SLACK:
        text.append(f"it takes {share:.2f} times the arithmetic that {found.label} can do in its fastest format")
    bandwidth = sum(chip.bandwidth_tb_s or float("inf") for chip in found.chips) * 1e12
    if done.steps is not None and not may_be_cached(cost, len(found.chips), done.replicas):
        moved = done.replicas * done.steps * cost.active * cost.weight_b + done.output * done.context * cost.kv_b / 2
        if moved / bandwidth > ROOFLINE_SLACK:
            text.append(f"it reads {moved / bandwidth:.2f} times what the memory of {found.label} can give")
    return text


def _may_speculate(case: Case, engine: EngineHandle | None) -> bool:
    told = {**case.engine_args, **(engine.settings if engine is not None else {})}
    return any(value for name, value in told.items() if any(word in name.lower() for word in _SPECULATIVE))
