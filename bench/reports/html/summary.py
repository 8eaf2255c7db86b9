"""The table of results, and the facts about where they come from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.records import DeviceInfo, Status, TrialRecord
from bench.reports.html.findings import Findings
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.numbers import COLUMNS, NumberColumn
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import interval_text, is_mixed, shown, status_text, value_text
from bench.timing.spec import SPECS

_UNITS = {
    "qps": ("QPS", "1/s"),
    "output": ("Output", "tok/s"),
    "ttft_p50": ("TTFT p50", "ms"),
    "ttft_p99": ("TTFT p99", "ms"),
    "tpot_p50": ("TPOT p50", "ms"),
    "memory": ("Memory", "GiB"),
    "energy": ("Energy", "J/token"),
}


def summary_columns(words: Words) -> list[Column]:
    """Heads of the table of results."""
    first = [Column(title=words("Model"), unit=words("precision"))]
    first += [Column(title=words("Engine"), unit=words("version")), Column(title=words("Devices"))]
    first.append(Column(title=words("Load"), unit=words("tokens in/out"), number=True))
    numbers = [_number_column(column, words) for column in COLUMNS]
    return [*first, *numbers, Column(title=words("Status"), unit=words("reasons")), Column(title=words("Again"), sortable=False)]


def _number_column(column: NumberColumn, words: Words) -> Column:
    title, unit = _UNITS[column.key]
    about = words.said(SPECS[column.metric].definition)
    return Column(title=words.said(title), unit=unit, number=True, about=about)


def summary_table(rows: Sequence[Row], cases: Sequence[str], found: Findings, words: Words) -> Html:
    """A line for each configuration, host and run, its repeats pooled, and the command that measures it again."""
    caption = words("Means over the valid repeats with 95% intervals. Numbers in brackets after a status lead to its reasons.")
    lines = [
        Line(id=f"r{at}", cells=_line(row, case, found.marks(at), words))
        for at, (row, case) in enumerate(zip(rows, cases, strict=True))
    ]
    return table("results", caption, summary_columns(words), lines, words)


def _line(row: Row, case: str, marks: Sequence[int], words: Words) -> list[Cell]:
    engine = row.first.engine
    load, size = row.case.load, row.case.load.batch_size or row.case.load.request_rate
    return [
        Cell(shown=joined(row.case.model), below=joined(row.precision)),
        Cell(shown=joined(row.case.engine), below=joined((engine.version if engine else None) or "", f" {case}" if case else "")),
        Cell(shown=joined(words.quoted(row.devices))),
        Cell(shown=joined(row.load), below=joined(row.lengths), sort_by=(size or 0.0) + (1e6 if load.kind == "open" else 0.0)),
        *(_number(row, column, words) for column in COLUMNS),
        _status(row, marks, words),
        Cell(shown=tag("code", f"bench reproduce {_trial(row).key.trial_id}")),
    ]


def _trial(row: Row) -> TrialRecord:
    """The one to measure again: a valid one where there is any."""
    return next((trial for trial in row.trials if trial.status is Status.VALID), row.first)


def _number(row: Row, column: NumberColumn, words: Words) -> Cell:
    number = shown(row, column.key)
    if number.value is None:
        why = number.reason or next((trial.error.splitlines()[0] for trial in row.trials if trial.error), None)
        return Cell(shown=tag("span", MISSING_TEXT, title=words.said(why) if why else None), mark="none")
    interval = interval_text(number)
    mark = None if number.valid else "bad"
    return Cell(shown=joined(value_text(row, column.key)), below=joined(interval), mark=mark)


def _status(row: Row, marks: Sequence[int], words: Words) -> Cell:
    mark = "care" if is_mixed(row) else "good" if row.valid else "bad"
    links = joined(*(tag("a", f"[{at}]", href=f"#n{at}") for at in marks))
    return Cell(shown=words.quoted(status_text(row)), below=links, mark=mark)


# --- where it comes from ----------------------------------------------------------------------------------------------


def environment_columns(words: Words) -> list[Column]:
    """Heads of the table of machines."""
    return [Column(title=words(title)) for title in ("Host", "System", "Engines", "Devices", "Driver", "Power limit")]


def environment_table(rows: Sequence[Row], words: Words) -> Html:
    """The machines, with the engines and devices that were seen on each."""
    by_host: dict[str, list[TrialRecord]] = {}
    for row in rows:
        for trial in row.trials:
            by_host.setdefault(trial.host.host_id, []).append(trial)
    lines = [Line(cells=_host(trials, words)) for trials in by_host.values()]
    return table("machines", words("What the numbers were measured on."), environment_columns(words), lines, words)


def _host(trials: Sequence[TrialRecord], words: Words) -> list[Cell]:
    host = trials[0].host
    engines = dict.fromkeys(_engine(trial) for trial in trials)
    boards = {device.uid: device for trial in trials for device in trial.devices if device.scope != "process"}
    return [
        Cell(shown=joined(host.host_id[:12]), below=joined(host.cpu_model or "", f", {host.cpu_count} CPU")),
        Cell(shown=joined(f"{host.system} {host.release} {host.machine}"), below=joined(f"bench {trials[0].bench_version}")),
        Cell(shown=_lines(engines)),
        Cell(shown=_lines(dict.fromkeys(f"{device.name} ({words.said(device.scope)})" for device in boards.values()))),
        Cell(shown=_lines(dict.fromkeys(_driver(device) for device in boards.values()))),
        Cell(shown=_lines(dict.fromkeys(f"{d.power_limit_w:g} W" for d in boards.values() if d.power_limit_w is not None))),
    ]


def _engine(trial: TrialRecord) -> str:
    engine = trial.engine
    return " ".join(filter(None, (trial.case.engine, engine.version if engine else None, engine.build if engine else None)))


def _driver(device: DeviceInfo) -> str:
    return " / ".join(filter(None, (device.driver, device.firmware)))


def _lines(texts: Iterable[str]) -> Html:
    return joined(*(tag("div", one) for one in texts if one)) or Html(MISSING_TEXT)
