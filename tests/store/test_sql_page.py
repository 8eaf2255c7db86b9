"""`docs/sql.md`: its twelve queries run, and answer what they say, over three nights of two vendors."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.catalog.prices import FILE, read_prices
from bench.errors import UsageError
from bench.records import ClockAnchor, LoadSpec, Profile, Reason, Status
from bench.reports.rows import newest, rows
from bench.store import Lab, records
from bench.store.sql import ask
from tests.factories import (
    NS,
    STARTED_WALL_NS,
    make_case,
    make_device,
    make_engine,
    make_event_log,
    make_host,
    make_metrics,
    make_record,
    save_trial,
)

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^## \d+\. .*?```sql\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
VIEWS = (
    "trials_wide",
    "points",
    "latest",
    "series",
    "pareto",
    "missing",
    "costs",
    "device_prices",
    "power_prices",
    "findings",
    "accepted",
)
H100, MI300X = "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"
NIGHT_27, NIGHT_28, NIGHT_29, NIGHT_30 = (date(2026, 11, day) for day in (27, 28, 29, 30))
ERRORS = Reason(code="errors", group="throughput", severity="invalid", message="12 of 100 requests failed")


def measure(
    results: Path,
    day: int,
    vendor: str,
    tok_per_s: float,
    *,
    batch: int = 8,
    precision: str = "q4_1",
    build: str = "aaa",
    driver: str = "1",
    tpot_ms: float = 20.0,
    **over: Any,
) -> None:
    """Two repeats of a nightly case, 1% below and above `tok_per_s`, which is their geometric mean."""
    case = make_case(suite="night", name=f"b{batch}", profile=Profile.NIGHTLY, precision=precision,
                     load=LoadSpec(kind="closed", batch_size=batch))  # fmt: skip
    series = f"{vendor}-{precision}-{batch}"
    joules = {"nvidia": 0.25, "amd": 0.36}[vendor]
    for repeat in range(2):
        at_ns = STARTED_WALL_NS + (day - 30) * 86_400 * NS + repeat * 20 * NS
        values: dict[str, Any] = {
            "host": make_host(host_id=f"host-{vendor}"),
            "devices": (make_device(vendor=vendor, name={"nvidia": H100, "amd": MI300X}[vendor], driver=driver),),
            "engine": make_engine(build=build),
            "series_id": series,
            "config_id": f"{series}-{build}-{driver}",
            "metrics": make_metrics(
                output_tok_per_s=tok_per_s * 1.01 ** (2 * repeat - 1), tpot_ms=tpot_ms, j_per_output_tok=joules
            ),
            "started": ClockAnchor(monotonic_ns=1, wall_ns=at_ns),
            "ended": ClockAnchor(monotonic_ns=1 + 13 * NS, wall_ns=at_ns + 13 * NS),
        }
        record = make_record(case=case, run_id=f"{vendor}-{day}", repeat=repeat, **(values | over))
        save_trial(results, record, make_event_log() if batch == 32 else None)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Nights 27, 28 and 30: on the last one NVIDIA had another driver, and AMD another build of the engine."""
    results = tmp_path_factory.mktemp("nights")
    for day in (27, 28):
        measure(results, day, "nvidia", 400.0)
        measure(results, day, "amd", 300.0)
    measure(results, 30, "nvidia", 360.0, driver="2")
    measure(results, 30, "nvidia", 900.0, driver="2", batch=32, tpot_ms=60.0)
    measure(results, 30, "nvidia", 200.0, driver="2", precision="fp16", tpot_ms=30.0)
    measure(results, 30, "nvidia", 100.0, driver="2", batch=2, status=Status.INVALID, reasons=(ERRORS,))
    measure(results, 30, "amd", 285.0, build="bbb", tpot_ms=25.0)
    lab = Lab(results)
    assert lab.ingest().added == 18
    return lab


def rounded(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(round(cell, 4) if isinstance(cell, float) else cell for cell in row) for row in found]


def usd(per_hour: float, tok_per_s: float) -> float:
    """Price of an hour over the million tokens of an hour."""
    return round(per_hour / (tok_per_s * 3600 / 1e6), 4)


ANSWERS: list[list[tuple[Any, ...]]] = [
    [(MI300X, 1, "q4_1", "mock", 8, usd(1.50, 285)), (H100, 1, "q4_1", "mock", 8, usd(2.99, 360)),
     (H100, 1, "fp16", "mock", 8, usd(2.99, 200))],
    [("nvidia", H100, "tiny", "fp16", "accelerator", 0.25, 1), ("nvidia", H100, "tiny", "q4_1", "accelerator", 0.25, 2),
     ("amd", MI300X, "tiny", "q4_1", "accelerator", 0.36, 1)],
    [(NIGHT_30, "host-nvidia", H100, "2", "b8", 0.9, 1.0, 1.0, ["driver"])],
    [(NIGHT_29, "host-amd", "night", "b8", 0, "no trial"), (NIGHT_29, "host-nvidia", "night", "b8", 0, "no trial"),
     (NIGHT_30, "host-nvidia", "night", "b2", 2, "invalid: errors")],
    [(NIGHT_30, "host-amd", "mock", "1.0", "bbb", "b8", -5.0)],
    [(H100, 1, "tiny", "q4_1", 360.0, 8), (MI300X, 1, "tiny", "q4_1", 285.0, 8), (H100, 1, "tiny", "fp16", 200.0, 8)],
    [("tiny", H100, "q4_1", "mock", 32, 900.0, 60.0, True), ("tiny", H100, "q4_1", "mock", 8, 360.0, 20.0, True),
     ("tiny", MI300X, "q4_1", "mock", 8, 285.0, 25.0, False), ("tiny", H100, "fp16", "mock", 8, 200.0, 30.0, False)],
    [("invalid", "errors", "throughput", 2)],
    [("amd-27", "host-amd", "b8", 8, 2, 1.41)],
    [("tiny", "mock", H100, 8, "fp16", "q4_1", 1.8, 1.0, 1.0)],
    [("tiny", H100, "q4_1", 8, "FR", round(0.25 / 3.6 * 56, 4))],
    [("mock", "1.0", "ok", None, 6, 80.0), ("mock", "1.0", "connect", "connection refused", 2, 80.0)],
]  # fmt: skip


def test_there_are_twelve_questions() -> None:
    assert len(QUERIES) == len(ANSWERS) == 12


@pytest.mark.parametrize("number", range(1, 13))
def test_each_query_answers_its_question(lab: Lab, number: int) -> None:
    found, wanted = rounded(ask(lab, QUERIES[number - 1]).rows), ANSWERS[number - 1]
    if number in (9, 11):  # many rows of the same kind: which comes first
        found = sorted(found, key=lambda row: (-row[-1], row[0]))[:1] if number == 9 else found
        found = [row for row in found if row[:5] == wanted[0][:5]] if number == 11 else found
    assert [row[: len(wanted[0])] for row in found] == wanted


def test_every_view_is_explained_and_there() -> None:
    for name in VIEWS:
        assert re.search(rf"^\| .*`{name}`.* \|", PAGE, re.MULTILINE), name


def test_points_and_latest_are_the_rows_of_the_table(lab: Lab) -> None:
    every = records(lab)
    for view, chosen in (("points", every), ("latest", newest(every))):
        table = {(r.first.key.run_id, r.first.config_id): r for r in rows(chosen)}
        found = ask(lab, f"SELECT run_id, config_id, trials, valid_trials, output_tok_per_s FROM {view}").rows
        assert {(run_id, config) for run_id, config, *_ in found} == set(table)
        for run_id, config, trials, valid, tok_per_s in found:
            row = table[(run_id, config)]
            assert (trials, valid) == (len(row.trials), row.valid)
            if valid:
                assert tok_per_s == pytest.approx(row.numbers["output"].value)
            else:
                assert tok_per_s is None


def test_a_trial_that_failed_early_joins_the_only_point_of_its_case_and_a_resumed_one_counts_once(tmp_path: Path) -> None:
    measure(tmp_path, 30, "nvidia", 100.0)
    whole = make_record(case=make_case(name="x"), repeat=0)
    lost = make_record(case=make_case(name="x"), repeat=1, status=Status.FAILED, metrics={}, config_id=None, series_id=None)
    again = replace(
        whole, key=replace(whole.key, attempt=whole.key.attempt + 1, trial_id="again"), metrics=make_metrics(tpot_ms=7.0)
    )
    for record in (whole, lost, again):
        save_trial(tmp_path, record)
    lab = Lab(tmp_path)
    lab.ingest()
    points = ask(lab, "SELECT config_id, trials, valid_trials, tpot_p50_ms FROM points WHERE case_name = 'x'").rows
    assert points == [(whole.config_id, 2, 1, 7.0)]


def test_a_results_folder_may_bring_its_own_prices(tmp_path: Path) -> None:
    measure(tmp_path, 30, "nvidia", 100.0)
    lab = Lab(tmp_path)
    lab.ingest()
    priced = "SELECT usd_per_mtok, price_source, gco2_per_mtok, power_usd_per_mtok FROM costs WHERE region = 'X'"
    assert ask(lab, priced).rows == []
    device = {"device": ".*h100.*", "source": "our contract"}
    prices = {
        "devices": [
            device | {"usd_per_device_hour": 9.0, "since": "2026-12-24"},
            device | {"usd_per_device_hour": 0.36, "since": "2026-11-30"},
            device | {"usd_per_device_hour": 9.0, "since": "2026-01-01"},
        ],
        "power": [{"region": "X", "usd_per_kwh": 0.36, "since": "2020-01-01", "source": "bill"}],
    }
    (tmp_path / "prices.yaml").write_text(yaml_of(prices), encoding="utf-8")
    assert rounded(ask(lab, priced).rows) == [(1.0, "our contract", None, 0.025)]


def yaml_of(prices: dict[str, list[dict[str, Any]]]) -> str:
    """As YAML, in which a date is a date."""
    lines = []
    for name, entries in prices.items():
        lines.append(f"{name}:")
        lines += ["  - " + ", ".join(f"{key}: {value}" for key, value in entry.items()).join("{}") for entry in entries]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "devices: [{device: '(', usd_per_device_hour: 1, since: 2026-01-01, source: x}]",
        "devices: [{device: x, usd_per_device_hour: -1, since: 2026-01-01, source: x}]",
        "devices: [{device: x, usd_per_device_hour: .nan, since: 2026-01-01, source: x}]",
        "devices: [{device: x, usd_per_device_hour: 1, since: soon, source: x}]",
        "devices: [{device: x, usd_per_device_hour: 1, since: 2026-01-01}]",
        "power: [{region: x, usd_per_mwh: 1, since: 2026-01-01, source: x}]",
        "[]",
        "{",
    ],
)
def test_prices_that_are_none_are_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape("prices.yaml")):
        read_prices(tmp_path / "prices.yaml")


def test_every_price_that_comes_along_has_a_source() -> None:
    prices = read_prices(FILE)
    assert all(device.source for device in prices.devices)
    assert all(power.source for power in prices.power)
    assert {entry.region for entry in prices.power} >= {"US", "CN", "WORLD"}
