"""Engine counters from what engines really expose."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.runners.prometheus import Sample, parse, project_metrics

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 700.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 160.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:request_success_total{finished_reason="stop",model_name="a}b\\"c,d=\\"e"} 9.0
"""
SGLANG = """sglang:prompt_tokens_total{model_name="m"} 500
sglang:cached_tokens_total{cache_source="device",model_name="m"} 100
sglang:cached_tokens_total{cache_source="host",model_name="m"} 20
sglang:cached_tokens_total{cache_source="total",model_name="m"} 120
sglang:generation_tokens_total{model_name="m"} 80
sglang:num_running_reqs{model_name="m"} 5
sglang:num_queue_reqs{model_name="m"} 6
sglang:token_usage{model_name="m"} 0.5
"""
LLAMACPP = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 30
llamacpp:prompt_tokens_cached_total 12
llamacpp:tokens_predicted_total 40
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
"""


def test_vllm() -> None:
    assert project_metrics(parse(VLLM)) == {
        "prompt_tokens_total": 1500.0,
        "prompt_tokens_cached_total": 160.0,
        "generation_tokens_total": 700.0,
        "requests_running": 7.0,
        "requests_waiting": 0.0,
        "preemptions_total": 2.0,
        "kv_cache_util": 0.5,
    }


def test_older_vllm_names() -> None:
    text = VLLM.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc").replace("vllm:prefix", "vllm:gpu_prefix")
    assert project_metrics(parse(text)) == project_metrics(parse(VLLM))


def test_sglang_counts_cached_tokens_once() -> None:
    found = project_metrics(parse(SGLANG))
    assert found["prompt_tokens_cached_total"] == 120.0
    only_total = "\n".join(line for line in SGLANG.splitlines() if "device" not in line and "host" not in line)
    assert project_metrics(parse(only_total))["prompt_tokens_cached_total"] == 120.0
    assert found["requests_running"] == 5.0
    assert found["kv_cache_util"] == 0.5


def test_llama_cpp_prompt_tokens_include_cached_ones() -> None:
    assert project_metrics(parse(LLAMACPP)) == {
        "prompt_tokens_total": 42.0,
        "prompt_tokens_cached_total": 12.0,
        "generation_tokens_total": 40.0,
        "requests_running": 2.0,
        "requests_waiting": 1.0,
    }


def test_what_an_engine_has_not_is_absent() -> None:
    assert project_metrics(parse("")) == {}
    assert project_metrics(parse("process_cpu_seconds_total 3.0\n")) == {}


@pytest.mark.parametrize("sign", ["", 'npu_cache_usage_perc{model_name="m"} 0.5\n'])
def test_names_without_a_prefix_are_mindies_only_on_its_own_page(sign: str) -> None:
    page = 'num_requests_running{model_name="m"} 3\nprompt_tokens_total{model_name="m"} 9\n'
    found = {"requests_running": 3.0, "prompt_tokens_total": 9.0} if sign else {}
    assert project_metrics(parse(page + sign)) == found


def test_labels_with_every_awkward_character() -> None:
    sample = parse(VLLM)[-1]
    assert sample.labels == {"finished_reason": "stop", "model_name": 'a}b"c,d="e'}
    assert parse('a{x="1\\\\2\\n3"} 4') == [Sample(name="a", labels={"x": "1\\2\n3"}, value=4.0)]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a 1", 1.0),
        ("a 1 1700000000000", 1.0),
        ("a{} 2.5", 2.5),
        ('a{b="c",} -1e-3', -0.001),
        ('a 7 # {trace_id="x"} 0.5', 7.0),
        ("  a\t3  ", 3.0),
    ],
)
def test_forms_of_a_line(line: str, value: float) -> None:
    assert [sample.value for sample in parse(line)] == [value]


@pytest.mark.parametrize(
    "line", ["a NaN", "a +Inf", "a -Inf", "a", "a x", "# a 1", "1a 2", "{} 3", 'a{b="c} 1', "<html>", "a one 1"]
)
def test_what_is_no_number_is_left_out(line: str) -> None:
    assert parse(line) == []


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    for sample in parse(text):
        assert math.isfinite(sample.value)
        assert sample.name


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True),
            st.dictionaries(
                st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True),
                st.text(st.characters(exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", exclude_categories=["Cs"])),
                max_size=3,
            ),
            st.floats(allow_nan=False, allow_infinity=False),
        )
    )
)
def test_what_is_written_is_read_back(rows: list[tuple[str, dict[str, str], float]]) -> None:
    def written(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    lines = [
        name + "{" + ",".join(f'{key}="{written(value)}"' for key, value in labels.items()) + "} " + repr(value)
        for name, labels, value in rows
    ]
    assert parse("\n".join(lines)) == [Sample(name=name, labels=labels, value=value) for name, labels, value in rows]
