"""`bench import`: files that the tools wrote, and files that nobody should trust."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.imported import ImportedMetric, ImportedResult
from bench.importers import aiperf, guidellm, llama_bench, vllm_bench
from bench.importers.dialect import WANTED, Dialect
from bench.importers.reading import read_file
from bench.timing.spec import SPECS
from tests.exchange.conftest import SAMPLES, TOOLS
from tests.in_process import Bench

DIALECTS: list[Dialect] = [
    vllm_bench.DIALECT,
    guidellm.DIALECT,
    aiperf.DIALECT,
    llama_bench.PROMPT,
    llama_bench.GENERATION,
    llama_bench.BOTH,
]
PAGE = Path("docs/exchange.md").read_text(encoding="utf-8")


def sample(tool: str) -> Any:
    return json.loads((SAMPLES / TOOLS[tool]).read_text(encoding="utf-8"))


def written(folder: Path, content: Any, name: str = "file.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def metric(one: ImportedResult, name: str) -> ImportedMetric:
    return next(metric for metric in one.metrics if metric.name == name)


def changed(content: Any, path: str, value: Any) -> Any:
    """`content` with what lies at `a.0.b` replaced."""
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    at = content
    for part in way:
        at = at[part]
    at[last] = value
    return content


@pytest.mark.parametrize("tool", TOOLS)
def test_a_real_file_is_recognised_and_whole(tool: str) -> None:
    found = read_file(SAMPLES / TOOLS[tool])
    assert {one.tool for one in found} == {tool}
    assert {one.source for one in found} == {"imported"}
    for one in found:
        assert set(WANTED) <= {metric.name for metric in one.metrics}
        for told in one.metrics:
            numbers = [told.value, told.mean, told.p50, told.p90, told.p99]
            assert (told.reason is None) == any(number is not None for number in numbers), told
            assert told.unit == SPECS[told.name].unit
            assert (told.key is None) == (told.differs is None)


@pytest.mark.parametrize("tool", ["vllm-bench", "guidellm"])
def test_numbers_of_one_server_agree_across_tools(tool: str) -> None:
    """Both asked the same server: four at once, 128 tokens, one every 20 ms."""
    (one,) = read_file(SAMPLES / TOOLS[tool])
    assert (one.load, one.batch_size, one.requests_ok, one.input_tokens, one.output_tokens) == ("closed", 4, 24, 64, 128)
    assert metric(one, "output_tok_per_s").value == pytest.approx(196.6, rel=0.002)
    assert metric(one, "requests_per_s").value == pytest.approx(1.536, rel=0.002)
    assert 50 < (metric(one, "ttft_ms").p50 or 0) < 60


def test_seconds_become_milliseconds() -> None:
    (one,) = read_file(SAMPLES / TOOLS["guidellm"])
    assert metric(one, "e2e_ms").p50 == pytest.approx(2592.5, abs=1)


def test_a_bare_engine_has_no_requests() -> None:
    prompt, generation, both = read_file(SAMPLES / TOOLS["llama-bench"])
    assert metric(prompt, "input_tok_per_s").value == 7111.5
    assert metric(generation, "output_tok_per_s").value == 120.0
    assert metric(both, "total_tok_per_s").value == 533.25
    assert metric(generation, "ttft_ms").reason == "llama-bench sends no requests"
    assert (generation.model, generation.device, generation.engine) == ("example-7b-q4_k_m.gguf", "Example GPU", "llamacpp")
    assert any("1024" in note for note in both.notes)


@pytest.mark.parametrize("tool", ["vllm-bench", "llama-bench"])
def test_an_object_a_line(tool: str, tmp_path: Path) -> None:
    content = sample(tool)
    lines = content if isinstance(content, list) else [content, content]
    found = read_file(written(tmp_path, "\n".join(map(json.dumps, lines)) + "\n"))
    assert [one.tool for one in found] == [tool] * len(lines)
    assert len({one.import_id for one in found}) == len(lines)


def test_zero_of_a_failed_run_is_no_latency(tmp_path: Path) -> None:
    """vLLM writes 0 for every latency where nothing succeeded."""
    content = sample("vllm-bench") | {"completed": 0, "output_throughput": 0.0, "mean_ttft_ms": 0.0, "median_ttft_ms": 0.0}
    (one,) = read_file(written(tmp_path, content | {"p99_ttft_ms": 0.0}))
    assert metric(one, "ttft_ms").p50 is None
    assert "nothing was measured" in (metric(one, "ttft_ms").reason or "")
    assert metric(one, "output_tok_per_s").value == 0.0
    assert one.output_tokens is None


@pytest.mark.parametrize(
    ("tool", "changes", "told"),
    [
        ("vllm-bench", {"completed": 30}, "impossible: 30 requests completed or failed, of 24 in all"),
        ("vllm-bench", {"failed": 1}, "impossible: 25 requests completed or failed, of 24 in all"),
        ("vllm-bench", {"median_ttft_ms": 900.0}, "impossible: ttft_ms has a p50 of 900 above its p99 of"),
        ("vllm-bench", {"total_token_throughput": 100.0}, "output tok/s of 100 tok/s in all"),
        ("guidellm", {"benchmarks.0.metrics.request_totals.successful": 99}, "requests completed or failed, of 24 in all"),
        (
            "guidellm",
            {"benchmarks.0.metrics.request_latency.successful.percentiles.p90": 1.0},
            "impossible: e2e_ms has a p50 of",
        ),
        ("aiperf", {"time_to_first_token.p90": 1e6}, "impossible: ttft_ms has a p90 of 1e+06 above its p99 of"),
        ("aiperf", {"total_token_throughput.avg": 1.0}, "output tok/s of 1 tok/s in all"),
    ],
)
def test_what_contradicts_itself_is_told(tool: str, changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    content = sample(tool)
    assert not any(note.startswith("impossible") for one in read_file(SAMPLES / TOOLS[tool]) for note in one.notes)
    for path, value in changes.items():
        content = changed(content, path, value)
    (one,) = read_file(written(tmp_path, content))
    notes = [note for note in one.notes if note.startswith("impossible")]
    assert len(notes) == 1
    assert told in notes[0]


def test_the_table_tells_a_contradiction(results: Path, bench: Bench, tmp_path: Path) -> None:
    ran = bench("import", str(written(tmp_path, sample("vllm-bench") | {"completed": 30})))
    assert "impossible: 30 requests" in ran.err
    assert "impossible: 30 requests" in bench("table", "--imported").err


WRONG = [
    ("vllm-bench", "duration", -3.5, "$.duration is -3.5, below 0"),
    ("vllm-bench", "duration", math.nan, "$.duration is nan, not a finite number"),
    ("vllm-bench", "mean_ttft_ms", math.inf, "$.mean_ttft_ms is inf, not a finite number"),
    ("vllm-bench", "mean_ttft_ms", "fast", "$.mean_ttft_ms is 'fast', not a number"),
    ("vllm-bench", "mean_ttft_ms", True, "$.mean_ttft_ms is True, not a number"),
    ("vllm-bench", "failed", 1.5, "$.failed is 1.5, not a whole number"),
    ("vllm-bench", "output_throughput", 10**400, "larger than anything that can be measured"),
    ("vllm-bench", "model_id", ["m"], "$.model_id is an array, not a text"),
    ("vllm-bench", "model_id", "m" * 5000, "$.model_id is a text of 5000 characters"),
    ("vllm-bench", "request_rate", "fast", "$.request_rate is 'fast', not a number"),
    ("guidellm", "benchmarks.0.duration", -1, "$.benchmarks[0].duration is -1, below 0"),
    ("guidellm", "benchmarks.0.start_time", 1e17, "$.benchmarks[0].start_time is 1e+17, not a date in seconds"),
    (
        "guidellm",
        "benchmarks.0.metrics.request_latency.successful.percentiles",
        7,
        "$.benchmarks[0].metrics.request_latency.successful.percentiles is 7, not an object",
    ),
    ("guidellm", "metadata", "x", "$.metadata is 'x', not an object"),
    ("aiperf", "time_to_first_token.unit", "s", "$.time_to_first_token.unit is 's', not 'ms'"),
    ("aiperf", "time_to_first_token.p99", [], "$.time_to_first_token.p99 is an array, not a number"),
    ("aiperf", "input_config.phases", {}, "$.input_config.phases is an object, not an array"),
    ("llama-bench", "1.avg_ts", -1, "$[1].avg_ts is -1, below 0"),
    ("llama-bench", "0.samples_ts", 3, "$[0].samples_ts is 3, not an array"),
]


@pytest.mark.parametrize(
    ("tool", "path", "value", "told"), WRONG, ids=[f"{tool}-{path}-{at}" for at, (tool, path, *_) in enumerate(WRONG)]
)
def test_a_wrong_value_is_refused_with_its_place(tool: str, path: str, value: Any, told: str, tmp_path: Path) -> None:
    file = written(tmp_path, changed(sample(tool), path, value))
    with pytest.raises(UsageError) as caught:
        read_file(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 200_000, "nested too deeply"),
        ("9" * 10_000, "not JSON that can be read"),
        ("null", "no tool that is known"),
        ("[]", "no tool that is known"),
        ('{"benchmarks": []}', "holds no result"),
        ('{"benchmarks": [3]}', "no tool that is known"),
        ('{"a": 1}\n{"b":', "line 2 is not JSON"),
        ('{"output_throughput": 3, "total_throughput": 4, "request_throughput": 1, "completed": 2}', "no tool that is known"),
    ],
)
def test_what_is_no_result_is_refused(content: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        read_file(written(tmp_path, content))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b'{"model_id": "\xff"}')
    with pytest.raises(UsageError, match="not UTF-8 at byte 14"):
        read_file(path)


def test_a_giant_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"is 1\.0 TiB, more than 128\.0 MiB"):
        read_file(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file or directory"):
        read_file(tmp_path / "file.json")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.json")
    with pytest.raises(UsageError, match="no plain file"):
        read_file(tmp_path / "file.json")


@pytest.mark.parametrize("tool", [*TOOLS])
def test_a_named_tool_still_checks_what_it_finds(tool: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_file(written(tmp_path, [[1, 2]]), tool)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(tool=st.sampled_from([*TOOLS]), place=st.integers(0, 200), value=_JSON)
def test_any_value_in_any_place_is_taken_or_refused(
    tool: str, place: int, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = sample(tool)
    places = list(_places(content))
    parent, key = places[place % len(places)]
    parent[key] = value
    path = written(tmp_path_factory.getbasetemp(), content)
    try:
        found = read_file(path, tool)
    except UsageError:
        return
    assert all(
        number is None or math.isfinite(number) for one in found for told in one.metrics for number in (told.value, told.p50)
    )


def _places(value: Any) -> Any:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


# --- the command ------------------------------------------------------------------------------------------------------


def test_importing_twice_changes_nothing(results: Path, bench: Bench) -> None:
    files = [str(SAMPLES / name) for name in TOOLS.values()]
    first = json.loads(bench("import", *files, "--json").out)
    before = {path.name: path.read_bytes() for path in (results / "imported").iterdir()}
    second = json.loads(bench("import", *files, "--json").out)
    assert (first["added"], first["known"], second["added"], second["known"]) == (6, 0, 0, 6)
    assert {path.name: path.read_bytes() for path in (results / "imported").iterdir()} == before


def test_one_bad_file_keeps_all_out(results: Path, bench: Bench, tmp_path: Path) -> None:
    ran = bench("import", str(SAMPLES / TOOLS["aiperf"]), str(written(tmp_path, "{}")))
    assert ran.code == 2
    assert "--from says what wrote it" in ran.err
    assert not (results / "imported").exists()


def test_imported_numbers_are_in_no_table_of_ours(results: Path, bench: Bench) -> None:
    counts = "SELECT (SELECT count(*) FROM trials), (SELECT count(*) FROM metrics), (SELECT count(*) FROM latest)"
    before, table = bench("sql", counts).out, bench("table").out
    bench("import", str(SAMPLES / TOOLS["vllm-bench"]))
    assert bench("sql", counts).out == before
    after = bench("table")
    assert after.out == table
    assert "what other tools measured (1) is not in this table: bench table --imported" in after.err
    shown = bench("table", "--imported")
    assert [line.split()[1] for line in shown.out.splitlines()] == ["tool", "vllm-bench"]
    assert "not as bench does" in shown.err


def test_imported_numbers_answer_sql(results: Path, bench: Bench, tmp_path: Path) -> None:
    name = "'); DROP TABLE trials; --"
    bench("import", str(written(tmp_path, sample("vllm-bench") | {"model_id": name})))
    query = "SELECT i.source, i.tool, i.model, m.p50, m.differs FROM imported i JOIN imported_metrics m USING (import_id)"
    (row,) = json.loads(bench("sql", f"{query} WHERE m.name = 'ttft_ms'", "--json").out)
    assert (row["source"], row["tool"], row["model"]) == ("imported", "vllm-bench", name)
    assert row["p50"] == sample("vllm-bench")["median_ttft_ms"]
    assert "even one of no text" in row["differs"]


@pytest.mark.parametrize("theirs_first", [True, False])
def test_compare_shows_them_side_by_side_and_says_why_that_is_all(results: Path, bench: Bench, theirs_first: bool) -> None:
    imported_id = json.loads(bench("import", str(SAMPLES / TOOLS["vllm-bench"]), "--json").out)["imported"][0]["import_id"]
    sides = (f"imported:{imported_id[:8]}", "latest")
    ran = bench("compare", *(sides if theirs_first else sides[::-1]), "--json")
    assert ran.code == 1
    (pair,) = json.loads(ran.out)["pairs"]
    shown = {one["metric"]: one for one in pair["metrics"]}
    assert {one["verdict"] for one in shown.values()} == {"not comparable"}
    assert "imported from vllm-bench, whose definitions differ" in shown["output_tok_per_s"]["reason"]
    numbers = [shown["output_tok_per_s"][side] for side in ("base", "candidate")]
    assert (numbers if theirs_first else numbers[::-1]) == pytest.approx([196.73, 404.0], rel=1e-3)


def test_an_imported_result_that_is_not_there(results: Path, bench: Bench) -> None:
    ran = bench("compare", "imported:beef", "latest")
    assert (ran.code, "bench table --imported" in ran.err) == (2, True)


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: f"{dialect.tool}-{dialect.keys[0].name}")
def test_the_page_says_what_each_key_is_and_is_not(dialect: Dialect) -> None:
    for key in dialect.keys:
        assert f"| {dialect.tool} | `{key.key}` | `{key.name}` | {key.differs} |" in PAGE
    for name, why in dialect.no_equal.items():
        assert f"| {dialect.tool} | `{name}` | none | {why} |" in PAGE


@pytest.mark.parametrize("date", ["yesterday", "2026-13-01T00:00:00Z", "2026-12-01", ""])
def test_a_bad_date_among_the_imported_results_names_its_file(results: Path, bench: Bench, date: str) -> None:
    bench("import", str(SAMPLES / TOOLS["vllm-bench"]))
    (path,) = (results / "imported").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"imported_at": date}))
    for args in (("table", "--imported"), ("sql", "SELECT * FROM imported")):
        ran = bench(*args)
        assert ran.code == 1
        assert f"{path.name} is no imported result: {date!r} is no moment" in ran.err
        assert "import its file again" in ran.err


def test_a_pipe_among_the_imported_results_is_not_waited_for(results: Path, bench: Bench) -> None:
    (results / "imported").mkdir(parents=True)
    os.mkfifo(results / "imported" / "0123456789abcdef.json")
    for args in (("table", "--imported"), ("sql", "SELECT * FROM imported")):
        ran = bench(*args)
        assert ran.code == 1
        assert "0123456789abcdef.json can't be read: it is no plain file" in ran.err
