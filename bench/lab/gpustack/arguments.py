"""What GPUStack asks its benchmark image for, as cases of ours. What can't be measured as asked is refused, or told in a note.

Source: gpustack 2.3.0, gpustack/worker/benchmark/runner.py; gpustack/benchmark-runner, README.md and its command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench import suite
from bench.errors import UsageError
from bench.identity import case_id
from bench.lab.gpustack.limits import Limits
from bench.lab.gpustack.ramp import Ramp, slo_limits
from bench.records import Case, Search, Sweep, TrialRecord

KEY_ENV = "TOKJOULE_GPUSTACK_KEY"
"""Variable that takes the key for the target: records hold its name."""
_PROTOCOLS = {"/v1/chat/completions": "openai-chat", "/v1/completions": "openai-completions"}
_MOST_POINT_S = 60.0
_LEAST_POINT_S = 5.0
_POINT_WARMUP_S = 5.0
_UNBOUND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case, the name of the report that GPUStack looks for (without `.json`), and when it is stopped early."""

    stem: str
    case: Case
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """All that one container measures: jobs one after the other, or a ramp. `notes` tell what is not as asked."""

    base: str
    jobs: tuple[Job, ...] = ()
    ramp: Ramp | None = None
    limits: Limits = field(default_factory=Limits)
    key: str | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    @property
    def is_stages(self) -> bool:
        """Whether its jobs are a list that somebody wrote, of which GPUStack wants to know that it has ended."""
        return any(job.stem != self.base for job in self.jobs)

    @property
    def trials(self) -> int:
        """How many there are, of a ramp at most."""
        return len(self.jobs) if self.ramp is None else self.ramp.sweep.search.points

    def stem_of(self, record: TrialRecord, index: int) -> str:
        """The name of a trial's report, which is the one after `index` others."""
        stems = {job.case.name: job.stem for job in self.jobs}
        return stems.get(record.case.name, f"{self.base}__p{index}")

    def limits_of(self, case: Case) -> Limits:
        """When the load of a case is stopped."""
        return next((job.limits for job in self.jobs if job.case.name == case.name), self.limits)


def task_of(options: Mapping[str, Any]) -> Task:
    """The task of one command line, whose flags are the keys of `options`. Raises: UsageError."""
    kinds = [flag for flag, given in _kinds(options).items() if given]
    if len(kinds) != 1:
        raise UsageError(f"one of --auto-tune, --stages and --profile is needed, not {' and '.join(kinds) or 'none'}")
    notes: list[str] = []
    base, backend = _output_base(options["outputs"]), _mapping(options["backend_kwargs"], "--backend-kwargs")
    common = _target(options, backend, notes) | _data(options, notes)
    shared: dict[str, Any] = {"base": base, "key": backend.get("api_key")}
    if options["detect_saturation"]:
        notes.append("--detect-saturation: no point is cut off for it; each says itself whether it was steady")
    limits = Limits(max_errors=options["max_errors"], max_error_rate=options["max_error_rate"])
    if options["auto_tune"]:
        return Task(**shared, ramp=_ramp(options, common), limits=limits, notes=tuple(notes))
    jobs = _staged(options, common, limits, base, notes) if options["stages"] else _single(options, common, limits, base, notes)
    return Task(**shared, jobs=jobs, limits=limits, notes=tuple(dict.fromkeys(notes)))


def _kinds(options: Mapping[str, Any]) -> dict[str, bool]:
    return {
        "--auto-tune": bool(options["auto_tune"]),
        "--stages": options["stages"] is not None,
        "--profile": options["profile"] is not None,
    }


# --- loads --------------------------------------------------------------------------------------------------------------


def _single(options: Mapping[str, Any], common: dict[str, Any], limits: Limits, base: str, notes: list[str]) -> tuple[Job, ...]:
    if options["rate"] is None:
        raise UsageError("--profile without --rate: how many requests in flight, or a second?", hint="add --rate N")
    knob = _load(options["profile"], options["rate"])
    length, limits = _length(options, options["max_requests"], options["max_seconds"], limits, notes)
    return (Job(stem=base, case=_case(base, common | knob | length), limits=limits),)


def _staged(options: Mapping[str, Any], common: dict[str, Any], limits: Limits, base: str, notes: list[str]) -> tuple[Job, ...]:
    stages = _json(options["stages"], "--stages")
    if not isinstance(stages, list) or not stages:
        raise UsageError("--stages must be a JSON list of objects with a rate")
    kind = "concurrent" if options["axis"] == "concurrency" else "constant"
    jobs = []
    for index, stage in enumerate(stages):
        if not isinstance(stage, dict) or stage.get("rate") is None:
            raise UsageError(f"--stages: item {index} has no rate")
        for key in ("rate", "max_requests", "max_seconds"):
            _number(stage, key, f"--stages: item {index}")
        length, capped = _length(options, stage.get("max_requests"), stage.get("max_seconds"), limits, notes)
        seed = {"seed": common["seed"] + index} if options["seed_increment"] else {}
        stem = f"{base}__stage{index}"
        jobs.append(Job(stem=stem, case=_case(stem, common | _load(kind, stage["rate"]) | length | seed), limits=capped))
    if len({case_id(job.case) for job in jobs}) < len(jobs):
        raise UsageError("--stages: two of them are the same, and have the same prompts", hint="drop --no-seed-increment")
    return tuple(jobs)


def _ramp(options: Mapping[str, Any], common: dict[str, Any]) -> Ramp:
    """Windows of one length at each point: as many as are allowed fit into the time that is."""
    over: Literal["batch_size", "request_rate"] = "batch_size" if options["axis"] == "concurrency" else "request_rate"
    low, high, points = options["lower_bound"], options["upper_bound"], options["max_points"]
    point_s = options["max_total_seconds"] / max(points, 1)
    duration_s = min(_MOST_POINT_S, max(_LEAST_POINT_S, point_s - _POINT_WARMUP_S))
    window = {"duration": f"{duration_s:g}s", "warmup": f"{min(_POINT_WARMUP_S, point_s / 4):g}s"}
    slos = slo_limits(options)
    search = Search(
        find="max-goodput" if slos else "knee", over=over, low=low, high=high, points=points, attainment=1.0 if slos else 0.99
    )
    if not 0 < low < high or points < 1 or options["max_total_seconds"] <= 0:
        raise UsageError("--lower-bound must be above 0 and below --upper-bound, --max-points and --max-total-seconds above 0")
    case = _case("ramp", common | window | _load("concurrent" if over == "batch_size" else "constant", low))
    return Ramp(sweep=Sweep(case=case, search=search), slos=slos, max_total_s=options["max_total_seconds"])


def _load(kind: str, rate: float) -> dict[str, Any]:
    if kind == "concurrent":
        return {"batch_size": int(rate) if float(rate).is_integer() else rate}
    return {"request_rate": float(rate), "arrivals": kind}


def _length(
    options: Mapping[str, Any], max_requests: float | None, max_seconds: float | None, limits: Limits, notes: list[str]
) -> tuple[dict[str, Any], Limits]:
    """How a case ends. A number of requests makes it one job, which the seconds cut off; seconds alone are a window, less the
    warm-up and the cool-down before and after it.
    """
    edges = {name: _share(options[name], f"--{name}") for name in ("warmup", "cooldown")}
    if max_requests:
        if any(edges.values()):
            notes.append("--warmup and --cooldown: not taken from a job of a number of requests, which is measured as a whole")
        return {"num_prompts": int(max_requests)}, limits.capped(max_seconds)
    if not max_seconds:
        notes.append(f"neither --max-requests nor --max-seconds: {_UNBOUND_S:g} s are measured")
        max_seconds = _UNBOUND_S
    if None in edges.values():
        notes.append("--warmup and --cooldown as numbers of requests: not used, the window is one of time")
    before, after = (edges[name] or 0.0 for name in ("warmup", "cooldown"))
    if before + after >= 1:
        raise UsageError("--warmup and --cooldown leave nothing to measure")
    warmup = {"warmup": f"{before * max_seconds:g}s"} if edges["warmup"] else {}
    return {"duration": f"{(1 - before - after) * max_seconds:g}s", **warmup}, limits


def _share(text: str | None, flag: str) -> float | None:
    """The share that is asked for, 0.0 without the flag; None for a count."""
    if text is None:
        return 0.0
    value = _json(text, flag)
    share = value.get("percent") if isinstance(value, dict) else value
    if share is None or isinstance(share, bool) or not isinstance(share, int | float) or share >= 1:
        return None
    if share < 0:
        raise UsageError(f"{flag} is below 0")
    return float(share)


# --- target and data ----------------------------------------------------------------------------------------------------


def _target(options: Mapping[str, Any], backend: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    if options["target"].startswith("https") and backend.get("verify") is False:
        raise UsageError(
            "the certificate of an https target is always verified here", hint="give its authority in the variable SSL_CERT_FILE"
        )
    handlers, key = backend.get("request_handlers") or {}, backend.get("api_key") or ""
    if not isinstance(handlers, dict) or not isinstance(key, str):
        raise UsageError("--backend-kwargs: request_handlers must be an object, and api_key a text")
    paths = list(handlers)
    unknown = [path for path in paths if path not in _PROTOCOLS]
    if unknown or len(paths) > 1:
        raise UsageError(
            f"--backend-kwargs: requests to {', '.join(paths)} can't be made", hint=f"one of {', '.join(_PROTOCOLS)}"
        )
    found: dict[str, Any] = {"engine": "openai", "base_url": options["target"], "idle": "0s"}
    found["model"] = options["model"]
    found["protocol"] = _PROTOCOLS[paths[0]] if paths else "openai-chat"
    if isinstance(backend.get("timeout"), int | float):
        found["request_timeout"] = f"{backend['timeout']:g}s"
    if key:
        found["api_key_env"] = KEY_ENV
    tokenizer = Path(options["processor"] or "") / "tokenizer.json"
    if options["processor"] and tokenizer.is_file():
        found["tokenizer"] = str(tokenizer)
    elif options["processor"]:
        notes.append(f"--processor: {options['processor']} holds no tokenizer.json, so tokens are those that the server counts")
    return found


def _data(options: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    text = options["data"]
    if Path(text).suffix in (".json", ".jsonl"):
        rows = {
            "min_input_tokens": options["sharegpt_min_input_tokens"],
            "max_input_tokens": options["sharegpt_max_input_tokens"],
            "max_output_tokens": options["sharegpt_max_output_tokens"],
        }
        return {"dataset": {"type": "sharegpt", "path": text} | {k: v for k, v in rows.items() if v is not None}, "seed": 0}
    wanted = _mapping(text, "--data") if text.lstrip().startswith("{") else _pairs(text)
    if wanted.get("turns", 1) != 1:
        raise UsageError("--data: conversations of several turns can't be measured", hint="set turns to 1")
    return {
        "input_tokens": _lengths(wanted, "prompt_tokens", notes),
        "output_tokens": _lengths(wanted, "output_tokens", notes),
        "seed": options["random_seed"],
        **_prefix(wanted),
    }


def _pairs(text: str) -> dict[str, Any]:
    try:
        return {key.strip(): int(value) for key, _, value in (pair.partition("=") for pair in text.split(","))}
    except ValueError:
        raise UsageError(
            f"--data {text!r} is neither prompt_tokens=N,output_tokens=N nor a .json file", hint="give one of the two"
        ) from None


def _lengths(wanted: Mapping[str, Any], name: str, notes: list[str]) -> Any:
    """A length of the suite format: fixed, or spread as its `_stdev`, `_min` and `_max` say."""
    mean = wanted.get(name)
    if isinstance(mean, bool) or not isinstance(mean, int) or mean < 1:
        raise UsageError(f"--data has no {name}", hint="--data prompt_tokens=128,output_tokens=128")
    deviation, least, most = (_number(wanted, f"{name}_{part}", "--data") for part in ("stdev", "min", "max"))
    if deviation:
        if least is not None or most is not None:
            notes.append(f"--data: {name} spreads by its deviation; the ends {name}_min and {name}_max are not applied")
        return {"mean": mean, "dist": "normal", "spread": deviation / mean}
    if least is None and most is None:
        return mean
    least, most = mean if least is None else least, mean if most is None else most
    if least > most:
        raise UsageError(f"--data: {name}_min is above {name}_max")
    if least == most:
        return least
    middle = (least + most) / 2
    if round(middle) != mean:
        notes.append(f"--data: {name} spreads evenly from {least} to {most}, whose mean is {middle:g}")
    return {"mean": round(middle), "dist": "uniform", "spread": (most - least) / (most + least)}


def _prefix(wanted: Mapping[str, Any]) -> dict[str, Any]:
    buckets = wanted.get("prefix_buckets") or []
    if not isinstance(buckets, list) or not all(isinstance(bucket, dict) for bucket in buckets):
        raise UsageError("--data: prefix_buckets must be a list of objects")
    if len(buckets) > 1:
        raise UsageError("--data: several prefix_buckets can't be measured in one load", hint="give one")
    tokens = _number(buckets[0], "prefix_tokens", "--data: prefix_buckets") if buckets else None
    return {"prefix_tokens": tokens, "prefix_groups": buckets[0].get("prefix_count", 1)} if tokens else {}


def _case(name: str, options: Mapping[str, Any]) -> Case:
    return suite.from_options({**options, "name": name}, name="gpustack")[0]


def _number(wanted: Mapping[str, Any], key: str, where: str) -> Any:
    """A number above 0, None where there is none. Raises: UsageError."""
    value = wanted.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9):
        raise UsageError(f"{where}: {key} is no number above 0")
    return value


def _output_base(outputs: str) -> str:
    """`123` of `123.dual_json`: what GPUStack's names of reports begin with."""
    base = outputs.removesuffix(".dual_json").removesuffix(".json")
    if not base or "/" in base or base.startswith("."):
        raise UsageError(f"--outputs {outputs!r} is not of the form ID.dual_json")
    return base


def _mapping(text: str | None, flag: str) -> dict[str, Any]:
    value = {} if text is None else _json(text, flag)
    if not isinstance(value, dict):
        raise UsageError(f"{flag} must be a JSON object")
    return value


def _json(text: str, flag: str) -> Any:
    """Raises: UsageError, which does not repeat the text: it may hold a key."""

    def no_number(constant: str) -> None:  # JSON has none of them, which Python would take
        raise UsageError(f"{flag}: {constant} is no number")

    try:
        return json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError):
        raise UsageError(f"{flag} is not JSON") from None
