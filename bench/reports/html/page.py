"""The report as one file: nothing else is needed to read it. Pure but for reading its own style and script.

A policy in the page itself forbids it to load anything and to run any script but its own, so that a name that got through
unescaped could still do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from bench import __version__
from bench.analysis.ab import PairedCase
from bench.analysis.compare_pairs import Compared
from bench.analysis.series import SeriesHistory
from bench.clock import iso_utc
from bench.records import Status, TrialRecord
from bench.reports.differences import differences
from bench.reports.html.comparison import comparison, comparison_columns, in_turns
from bench.reports.html.findings import findings, findings_columns, findings_table
from bench.reports.html.fronts import energy_charts, throughput_charts
from bench.reports.html.history import history_charts, history_columns
from bench.reports.html.latency import latency_chart, latency_columns
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.memory import memory_chart, memory_columns
from bench.reports.html.naming import Names, names
from bench.reports.html.plot import symbols
from bench.reports.html.power import Trace, power_chart
from bench.reports.html.summary import environment_columns, environment_table, summary_columns, summary_table
from bench.reports.html.table import labels
from bench.reports.html.words import Language, Words
from bench.reports.rows import Row, rows

Chosen = Literal["latest", "run", "filter", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a report tells of. `chosen`, `named`: how its trials were chosen, and by what words; `made_ns`: when [wall clock].
    `trace`: None where no trial has a power to draw; `pairs`: what those of the one run say.
    """

    chosen: Chosen
    named: tuple[str, ...] = ()
    made_ns: int
    records: Sequence[TrialRecord]
    trace: Trace | None = None
    histories: Sequence[SeriesHistory] = ()
    compared: Sequence[Compared] = ()
    pairs: Sequence[PairedCase] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    id: str
    title: str
    about: str
    inside: Html


def report_html(report: Report, language: Language = "en") -> bytes:
    """The file."""
    words = Words(language=language)
    table = rows(report.records)
    cases = differences(table)
    named = names(table, cases)
    sections = _sections(report, table, cases, named, words)
    style, script = _style(words), _own("page.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", _title(report, words)),
        tag("style", Html(style)),
    )
    body = tag(
        "body",
        tag("a", words("Skip to the results"), href=f"#{sections[0].id}", class_="skip"),
        symbols(),
        _header(report, table, named, words),
        _navigation(sections, words),
        tag("main", *map(_shown, sections)),
        _footer(words),
        tag("script", Html(script)),
    )
    page = joined(Html("<!DOCTYPE html>\n"), tag("html", head, body, lang=words.tag), Html("\n"))
    return page.encode("utf-8", "replace")


def _navigation(sections: Sequence[_Section], words: Words) -> Html:
    links = (tag("li", tag("a", one.title, href=f"#{one.id}")) for one in sections)
    return tag("nav", tag("ul", *links), aria_label=words("Sections"))


def _sections(report: Report, table: Sequence[Row], cases: Sequence[str], named: Names, words: Words) -> list[_Section]:
    found = findings(table)

    def section(id_: str, title: str, about: str, inside: Html) -> _Section:
        return _Section(id=id_, title=words(title), about=words(about) if about else "", inside=inside)

    compared = comparison(report.compared, words) if report.compared else in_turns(report.pairs, words) if report.pairs else None
    return [
        *([] if compared is None else [section("compared", "Comparison", "", compared)]),
        section("results", "Results", "", summary_table(table, cases, found, words)),
        section("throughput", "Throughput and latency", _FRONT, _or_why(throughput_charts(table, named, words), words)),
        section("energy", "Energy and throughput", _ENERGY, _or_why(energy_charts(table, named, words), words)),
        section("latency", "Latency percentiles", "", latency_chart(table, named, words)),
        section("power", "Power of one trial", _POWER, _power(report, table, named, words)),
        section("memory", "Memory", "", _or_why(memory_chart(table, named, words), words)),
        section("history", "History", _HISTORY, history_charts(report.histories, words)),
        section("validity", "Validity", "", findings_table(found, named, words)),
        section("machines", "Machines", "", environment_table(table, words)),
    ]


_FRONT = (
    "Each mark is a row of the results with its intervals; the number beside it is its load. The line is the Pareto front of a "
    "setting, in steps: between two measured points nothing is interpolated. Hollow marks are behind the front."
)
_ENERGY = "Only joules that were measured, each part of the machine in a chart of its own. The number beside a mark is its load."
_POWER = "What the devices drew from before the start to the end; the shaded stretch is the window that all numbers are about."
_HISTORY = (
    "The median of each night with the range of its repeats; grey bars are what it was compared with. Worse is judged as in "
    "bench gate."
)


def _or_why(charts: Html, words: Words) -> Html:
    """What there is to draw, or where to read why there is nothing."""
    if "<svg" in charts:
        return charts
    why = words("Nothing to draw: no row has these numbers. The reasons are under")
    return tag("p", why, " ", tag("a", words("Validity"), href="#validity"), class_="empty")


def _power(report: Report, table: Sequence[Row], named: Names, words: Words) -> Html:
    if report.trace is None:
        return _or_why(Html(), words)
    id_ = report.trace.record.key.trial_id
    at = next((at for at, row in enumerate(table) if any(trial.key.trial_id == id_ for trial in row.trials)), None)
    return power_chart(report.trace, named.rows[at] if at is not None else report.trace.record.case.name, words)


def _shown(section: _Section) -> Html:
    title, about = tag("h2", section.title, id=f"{section.id}-title"), tag("p", section.about) if section.about else None
    return tag("section", title, about, section.inside, id=section.id, aria_labelledby=f"{section.id}-title")


# --- around the sections ----------------------------------------------------------------------------------------------


def _title(report: Report, words: Words) -> str:
    models = list(dict.fromkeys(record.case.model for record in report.records))
    told = models[0] if len(models) == 1 else words("{} models", len(models))
    return words("LLM inference measured: {}", told)


def _chosen(report: Report, words: Words) -> str:
    templates = {
        "latest": "The last run of each case.",
        "run": "Run {}.",
        "filter": "Trials that meet: {}",
        "compare": "{} (base) and {} (candidate).",
    }
    return words(templates[report.chosen], *report.named)


def _header(report: Report, table: Sequence[Row], named: Names, words: Words) -> Html:
    records = [trial for row in table for trial in row.trials]
    valid = sum(record.status is Status.VALID for record in records)
    days = sorted(iso_utc(record.started.wall_ns)[:10] for record in records)
    first, last = (days[0], days[-1]) if days else ("-", "-")
    facts = [
        (words("Trials"), str(len(records)), words("{} of them valid, in {} rows", valid, len(table))),
        (words("Measured (UTC)"), first if first == last else f"{first} - {last}", ""),
        (words("Hosts"), str(len({record.host.host_id for record in records})), ""),
        (words("Written (UTC)"), iso_utc(report.made_ns)[:16].replace("T", " "), f"tokjoule {__version__}"),
        (words("All rows"), named.common or "-", ""),
    ]
    terms = (tag("div", tag("dt", name), tag("dd", value, tag("small", more) if more else None)) for name, value, more in facts)
    return tag("header", tag("h1", _title(report, words)), tag("p", _chosen(report, words)), tag("dl", *terms, class_="facts"))


def _footer(words: Words) -> Html:
    lines = [
        "Intervals: 95%, over repeats; that of J/token of a single trial is of its measurement.",
        "! marks what is not valid: don't use it. A dash is missing, never zero. (p90): under 100 samples there is no p99.",
        "TTFT: time to the first token; in open loop from the scheduled moment. TPOT: time for each token after it.",
    ]
    return tag("footer", *(tag("p", words(line)) for line in lines))


def _style(words: Words) -> str:
    """The style sheet, with the names of all columns in the reader's language."""
    columns = {
        "results": summary_columns(words),
        "comparison": comparison_columns(words),
        "latencies": latency_columns(words),
        "memories": memory_columns(words),
        "changes": history_columns(words),
        "reasons": findings_columns(words),
        "machines": environment_columns(words),
    }
    return _own("page.css") + "".join(labels(name, heads) for name, heads in columns.items())


def _own(name: str) -> str:
    return files("bench.reports.html").joinpath(name).read_text(encoding="utf-8")


def _hash(inside: str) -> str:
    """What the policy knows an element by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
