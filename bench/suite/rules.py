"""Combinations that can't be measured, or not as meant. A rule yields (keys, message): it is reported where the last key stands.

Messages name the keys and the fix but not the values of one point: a matrix then reports a conflict once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from bench import plugins
from bench.records import Search
from bench.suite.load_rules import LOAD_RULES, is_open
from bench.suite.loads import Stages
from bench.suite.matrix import Point
from bench.suite.resolve import GRACE_S, MINIMUM_WINDOW_S, at_end, engine_of, load_of, profile_of, window_defaults
from bench.suite.values import MOST_IN_FLIGHT
from bench.suite.written import Problems

Finding = tuple[tuple[str, ...], str]
Rule = Callable[[Point], Iterator[Finding]]

MOST_ARRIVALS = 20_000_000
"""As the load generator has it, which refuses them too late for a person: when the engine is up."""
_ATTACHING = frozenset({"openai"})
"""Built-in engines that are only an address. All other built-ins launch themselves; those of plugins are not judged."""


def _model(point: Point) -> Iterator[Finding]:
    if not point.has("model") and engine_of(point) != "mock":
        yield (), "a case needs a 'model': add it here or under 'defaults'"


def _engine(point: Point) -> Iterator[Finding]:
    engine = engine_of(point)
    if engine not in plugins.RUNNERS:  # entry points are slow to scan: only for a name that is not built in
        known = plugins.names("bench.runners")
        if engine not in known:
            near = get_close_matches(engine, known, n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            yield ("engine",), f"unknown engine {engine!r}: {mend}"
    if engine in _ATTACHING and not point.has("base_url"):
        yield ("engine",), f"engine: {engine} needs 'base_url': add base_url: http://HOST:PORT (--base-url on the command line)"
    if point.has("base_url") and engine in plugins.RUNNERS and engine not in _ATTACHING:
        yield (
            ("base_url", "engine"),
            f"'base_url' with engine: {engine}, which launches itself: use engine: openai or drop base_url",
        )


def _closed_or_open(point: Point) -> Iterator[Finding]:
    if point.has("batch_size", "request_rate"):
        yield (
            ("batch_size", "request_rate"),
            "'batch_size' together with 'request_rate': a load is closed or open; to cap an open one write 'max_concurrency'",
        )
    if point.has("request_rate") or is_open(point):
        return
    for key in ("arrivals", "burstiness"):
        if point.has(key):
            yield (key,), f"'{key}' without 'request_rate': only an open loop has arrivals; add request_rate or drop {key}"
    if point.has("batch_size", "max_concurrency"):
        yield (
            ("batch_size", "max_concurrency"),
            "'max_concurrency' together with 'batch_size': batch_size already is the number in flight; drop max_concurrency",
        )
    elif point.has("max_concurrency"):
        yield (
            ("max_concurrency",),
            "'max_concurrency' without 'request_rate': it caps an open loop; write 'batch_size' for a constant number in flight",
        )


def _arrivals(point: Point) -> Iterator[Finding]:
    if not point.has("request_rate") and not is_open(point):
        return
    rate, arrivals = point.get("request_rate"), point.get("arrivals")
    if rate == math.inf and arrivals not in (None, "burst"):
        yield (
            ("request_rate", "arrivals"),
            "'arrivals' with request_rate: inf, which sends all at once: give a rate or drop arrivals",
        )
    if point.has("request_rate") and rate != math.inf and arrivals == "burst":
        yield (
            ("request_rate", "arrivals"),
            "'arrivals: burst' with a finite 'request_rate': write request_rate: inf or other arrivals",
        )
    if rate == math.inf and not point.has("num_prompts"):
        yield ("request_rate",), "'request_rate: inf' needs 'num_prompts': how many requests are sent at once"
    if point.has("burstiness") and arrivals not in ("gamma", "trace"):
        yield ("burstiness", "arrivals"), "'burstiness' without 'arrivals: gamma': add arrivals: gamma or drop burstiness"
    if arrivals == "gamma" and not point.has("burstiness"):
        yield ("arrivals",), "'arrivals: gamma' needs 'burstiness': 1 is Poisson, below 1 burstier, above 1 steadier"


def _arrivals_fit(point: Point) -> Iterator[Finding]:
    """Moments of arrival are drawn before the load, and held by every worker."""
    if point.has("num_prompts") or point.get("arrivals") == "trace" or not (point.has("request_rate") or is_open(point)):
        return
    stages, window = point.get("stages"), window_defaults(point)
    around_s = window.warmup_s + point.get("grace", GRACE_S)
    if isinstance(stages, Stages):
        expected = sum((s.start + s.end) / 2 * s.duration_s for s in stages.stages) + stages.highest * around_s
    else:
        expected = point.get("request_rate", 0.0) * (point.get("duration", window.duration_s) + around_s)
    if math.isfinite(expected) and expected > MOST_ARRIVALS:
        key = "stages" if isinstance(stages, Stages) else "request_rate"
        yield (
            (key, "duration", "warmup", "grace"),
            f"'{key}' brings more than {MOST_ARRIVALS:,} requests: lower it or shorten the time",
        )


def _length_of_job(point: Point) -> Iterator[Finding]:
    if point.has("num_prompts", "duration"):
        yield (
            ("num_prompts", "duration"),
            "'num_prompts' together with 'duration': a job ends by count or by time; drop one (duration: null takes it back)",
        )


def _exactness(point: Point) -> Iterator[Finding]:
    if point.get("exact_lengths") and point.get("ignore_eos") is False:
        yield (
            ("exact_lengths", "ignore_eos"),
            "'exact_lengths: true' with 'ignore_eos: false': answers that may stop early have no exact length; drop one",
        )


def _timeouts(point: Point) -> Iterator[Finding]:
    timeout_s = point.get("request_timeout", math.inf)
    if point.has("request_timeout", "warmup") and point.get("warmup", 0.0) >= timeout_s:
        yield (
            ("warmup", "request_timeout"),
            "'warmup' is not shorter than 'request_timeout': no early request could last into the window; raise request_timeout",
        )
    if point.has("request_timeout", "grace") and point.get("grace", 0.0) > timeout_s:
        yield (
            ("grace", "request_timeout"),
            "'grace' is longer than 'request_timeout', after which no request lives: shorten grace",
        )


def _static_batches(point: Point) -> Iterator[Finding]:
    if point.get("batching") == "static" and not point.has("num_prompts"):
        yield (
            ("batching", "num_prompts"),
            "'batching: static' without 'num_prompts': whole batches are one job; add num_prompts, best a multiple of batch_size",
        )


def _containers(point: Point) -> Iterator[Finding]:
    engine = engine_of(point)
    if point.get("launch", "process") == "process":
        for key in ("image", "container"):
            if point.has(key) and not point.has("launch"):
                yield (key,), f"'{key}' without 'launch': add launch: docker or launch: podman, or drop {key}"
        return
    if engine in _ATTACHING or engine == "mock":
        yield ("launch", "engine"), f"'launch' with engine: {engine}, which starts no engine of its own: drop launch"
    elif not point.has("image"):
        yield ("launch",), "'launch: docker' and 'podman' need 'image': add the image that has the engine, with its version"


def _secrets(point: Point) -> Iterator[Finding]:
    engine = engine_of(point)
    if point.has("api_key_env") and engine in plugins.RUNNERS and engine not in _ATTACHING:
        yield ("api_key_env", "engine"), f"'api_key_env' with engine: {engine}, which asks for no key: drop api_key_env"


def sweep_rules(point: Point) -> Iterator[Finding]:
    """What contradicts a `sweep`, looked at before its load is filled in."""
    search = point.get("sweep")
    if not isinstance(search, Search):
        return
    for key in ("batch_size", "request_rate", "stages"):
        if point.has(key):
            yield ("sweep", key), f"'sweep' together with '{key}': a sweep chooses its own loads; drop {key} (null takes it back)"
    if search.low >= search.high:
        yield ("sweep",), "sweep.low is not below sweep.high: nothing lies between them"
    if search.over == "batch_size" and search.high > MOST_IN_FLIGHT:
        yield ("sweep",), f"sweep.high is above {MOST_IN_FLIGHT:,} over batch_size: so many connections fit into no client"
    if search.over == "batch_size" and not (search.low.is_integer() and search.high.is_integer()):
        yield ("sweep",), "sweep.low and sweep.high must be whole numbers over batch_size: write over: request_rate for rates"
    yield from _aims(point, search)


def _aims(point: Point, search: Search) -> Iterator[Finding]:
    if search.find == "max-goodput" and not point.has("goodput"):
        yield ("sweep",), "'sweep' with find: max-goodput needs 'goodput': add limits as in goodput: [ttft:200, tpot:50]"
    if search.find != "max-goodput" and search.attainment != Search(find="knee").attainment:
        yield (
            ("sweep",),
            f"sweep.attainment with find: {search.find}, which looks at no limit: drop it or write find: max-goodput",
        )
    if search.find != "knee" and search.gain != Search(find="knee").gain:
        yield ("sweep",), f"sweep.gain with find: {search.find}, which looks at no throughput: drop it or write find: knee"
    if point.get("arrivals") in ("burst", "trace"):
        yield ("sweep", "arrivals"), "'sweep' with 'arrivals: burst' or 'trace', which have no rate to choose: drop arrivals"


_OF_A_CASE: tuple[Rule, ...] = (
    _model,
    _engine,
    _closed_or_open,
    _arrivals,
    _arrivals_fit,
    _length_of_job,
    _exactness,
    _timeouts,
    _static_batches,
    _containers,
    _secrets,
)
RULES: tuple[Rule, ...] = (*_OF_A_CASE, *LOAD_RULES)


# --- allowed, but worth a word -------------------------------------------------------------------------------------------


def _short_window(point: Point) -> Iterator[Finding]:
    profile = profile_of(point)
    least_s = MINIMUM_WINDOW_S[profile]
    if not point.has("num_prompts") and window_defaults(point).duration_s < least_s:
        yield (
            ("duration", "profile"),
            f"'duration' is shorter than the {least_s:g}s of profile: {profile.value}: trials will be marked too_short",
        )


def _never_full(point: Point) -> Iterator[Finding]:
    count = point.get("num_prompts")
    for key in ("batch_size", "max_concurrency"):
        if count is not None and point.get(key, 0) > count:
            yield (key, "num_prompts"), f"'{key}' is more than 'num_prompts': it is never reached"


def _idle_workers(point: Point) -> Iterator[Finding]:
    load = load_of(point)
    if load.kind == "closed" and point.get("workers", 0) > (load.batch_size or 1):
        yield ("workers", "batch_size"), "'workers' is more than 'batch_size': only as many are started as have a request each"


def _greedy(point: Point) -> Iterator[Finding]:
    if point.get("top_p", 1.0) < 1 and point.get("temperature", 0.0) == 0:
        yield ("top_p", "temperature"), "'top_p' has no effect at temperature: 0"


ADVICE: tuple[Rule, ...] = (_short_window, _never_full, _idle_workers, _greedy)


def apply(rules: tuple[Rule, ...], point: Point, problems: Problems) -> None:
    """Add what `rules` find, but for what only follows from a value that is already reported. A sweep is judged by its
    highest load, once nothing contradicts it.
    """
    found = list(sweep_rules(point))
    if not found:
        highest = at_end(point, "high")
        found = [finding for rule in rules for finding in rule(highest)]
    for keys, message in found:
        if not point.broken.intersection(keys):
            problems.add(point.later(*keys), message)
