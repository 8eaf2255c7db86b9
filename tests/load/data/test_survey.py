"""What `pin` fills in, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.errors import UsageError
from bench.identity import case_id, workload_id
from bench.load.data import pin, survey
from bench.load.data.formats import read_rows
from bench.records import Case, DataSpec, LengthSpec, LoadSpec
from tests.load.data.samples import azure, conversation, jsonl, mooncake, sharegpt, table
from tests.load.scripted import make_case

FROM_FILE = LengthSpec(dist="dataset", mean=128)


def file_case(path: str, *, data: dict[str, Any] | None = None, **over: Any) -> Case:
    values = {
        "dataset": "file",
        "data": DataSpec(**({"path": path} | (data or {}))),
        "input_tokens": FROM_FILE,
        "output_tokens": FROM_FILE,
    }
    return make_case(**(values | over))


def trace_load(**over: Any) -> LoadSpec:
    values: dict[str, Any] = {"kind": "open", "arrivals": "trace", "speed": 1.0, "whole_trace": True}
    return LoadSpec(**(values | over))


@pytest.mark.parametrize("kind", ["file", "sharegpt", "jsonl", "csv", "parquet", "mooncake", "azure"])
@pytest.mark.parametrize("name", ["pipe.jsonl", "/dev/zero", "/dev/null"])
def test_what_can_not_be_read_twice_is_refused_and_not_waited_for(kind: str, name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UsageError, match=f"{name}: is a pipe or a device") as caught:
        survey.survey(kind, DataSpec(path=str(tmp_path / name)))
    assert caught.value.hint


def test_a_synthetic_case_is_left_as_it_is() -> None:
    case = make_case()
    assert pin(case) is case


def test_content_rows_and_lengths_are_filled_in(tmp_path: Path) -> None:
    path = sharegpt(tmp_path / "s.json", [conversation("q" * 40, "a" * 4 * n) for n in (3, 5, 10)])
    found = pin(file_case(path))
    assert found.dataset == "sharegpt"
    assert found.data.sha256 == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert (found.data.rows, found.data.shares_prefixes) == (3, False)
    assert (found.input_tokens.dist, found.input_tokens.mean, found.input_tokens.largest) == ("dataset", 10, 14)  # 40 B at 3 each
    assert (found.output_tokens.dist, found.output_tokens.mean, found.output_tokens.largest) == ("dataset", 6, 10)
    assert pin(found) == found


def test_lengths_that_the_case_names_go_before_the_files(tmp_path: Path) -> None:
    path = sharegpt(tmp_path / "s.json", [conversation("why?", "because")])
    asked = LengthSpec(dist="uniform", mean=30, spread=0.5)
    assert pin(file_case(path, output_tokens=asked)).output_tokens == asked
    plain = jsonl(tmp_path / "p.jsonl", [{"prompt": "why?"}])
    assert pin(file_case(plain)).output_tokens == LengthSpec(mean=128)  # no lengths anywhere


def test_the_ids_go_by_the_content_not_by_the_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    rows = [{"prompt": "a b c"}]
    here, there = jsonl(tmp_path / "a.jsonl", rows), jsonl(tmp_path / "sub" / "b.jsonl", rows)
    other = jsonl(tmp_path / "c.jsonl", [{"prompt": "a b d"}])
    one, same, changed = (pin(file_case(path)) for path in (here, there, other))
    assert (case_id(one), workload_id(one)) == (case_id(same), workload_id(same))
    assert workload_id(one) != workload_id(changed)


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    real = read_rows

    def counted(kind: str, path: str, data: DataSpec) -> Any:
        reads.append(path)
        return real(kind, path, data)

    monkeypatch.setattr(survey, "read_rows", counted)
    path = jsonl(tmp_path / "once.jsonl", [{"prompt": "a"}])
    first = pin(file_case(path))
    assert pin(replace(first, seed=3)).data == first.data
    assert len(reads) == 1
    jsonl(tmp_path / "once.jsonl", [{"prompt": "a"}, {"prompt": "b"}])
    assert pin(file_case(path)).data.rows == 2


@pytest.mark.parametrize(
    ("text", "words"), [("", "is empty"), ("\n \n", "is empty"), ('{"prompt": "x"}', "has no row that can be used")]
)
def test_nothing_to_send_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(UsageError, match=words):
        pin(file_case(str(tmp_path / "a.jsonl"), data={"min_input_tokens": 10}))


def test_a_type_that_is_not_known_or_has_no_file() -> None:
    with pytest.raises(UsageError, match="needs a file"):
        pin(make_case(dataset="sharegpt"))


def test_the_type_written_goes_before_the_name(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.txt", [{"prompt": "x"}])
    assert pin(file_case(path, dataset="jsonl")).dataset == "jsonl"
    with pytest.raises(UsageError, match="dataset 'xml' is not known"):
        pin(file_case(path, dataset="xml"))


# --- traces ---------------------------------------------------------------------------------------------------------------


def test_a_whole_trace_is_a_job_of_all_its_requests(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(1000 * i, 600 + i, 5, [i, i + 1]) for i in range(7)])
    found = pin(file_case(path, load=trace_load()))
    assert (found.load.num_prompts, found.dataset, found.data.shares_prefixes) == (7, "mooncake", True)
    assert found.data.wants_cache_hits
    assert (found.input_tokens.mean, found.input_tokens.largest) == (603, 606)
    assert pin(file_case(path, load=trace_load(whole_trace=False, num_prompts=4))).load.num_prompts == 4


def test_a_trace_without_hashes_wants_no_cache_hits(tmp_path: Path) -> None:
    path = azure(tmp_path / "t.csv", [("2024-05-10 00:00:00", 5, 5), ("2024-05-10 00:00:09", 5, 5)])
    assert not pin(file_case(path, load=trace_load())).data.wants_cache_hits


def test_a_trace_that_is_too_short_for_what_is_asked(tmp_path: Path) -> None:
    path = azure(tmp_path / "t.csv", [("2024-05-10 00:00:00", 5, 5), ("2024-05-10 00:00:09", 5, 5)])
    with pytest.raises(UsageError, match=r"the trace has 2 requests, 5 are asked for"):
        pin(file_case(path, load=trace_load(whole_trace=False, num_prompts=5)))
    timed = trace_load(whole_trace=False)
    assert pin(file_case(path, load=timed, warmup_s=1.0, duration_s=8.0)).load.num_prompts is None
    with pytest.raises(UsageError, match=r"lasts 4\.5 s at this speed, warmup and duration 9 s"):
        pin(file_case(path, load=replace(timed, speed=2.0), warmup_s=1.0, duration_s=8.0))


def test_arrivals_of_a_file_that_has_none(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"prompt": "x"}])
    with pytest.raises(UsageError, match="doesn't say when requests came"):
        pin(file_case(path, load=trace_load()))


@pytest.mark.parametrize("name", ["s.json", "s.jsonl", "t.csv"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    """12 MiB are read with a small part of that in memory at any time."""
    path = tmp_path / name
    entry = conversation("q" * 2000, "a" * 1000)
    if name == "s.json":
        sharegpt(path, [entry] * 4000)
    elif name == "s.jsonl":
        jsonl(path, [entry] * 4000)
    else:
        table(path, ["prompt"], [["x" * 3000]] * 4000)
    assert path.stat().st_size > 11 << 20
    tracemalloc.start()
    try:
        assert pin(file_case(str(path))).data.rows == 4000
        _, peak_b = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_b < 6 << 20
