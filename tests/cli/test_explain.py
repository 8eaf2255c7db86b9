"""`bench explain`: every metric, with what its row says, and what other tools say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.catalog.peers import peer_metrics
from bench.cli.explain import explain
from bench.cli.main import cli
from bench.errors import UsageError
from bench.records import Profile
from bench.reports.notes import PLAIN, TITLES
from bench.reports.numbers import COLUMNS
from bench.reports.remedies import REMEDIES
from bench.timing import SPECS
from bench.timing.columns import wide_columns
from bench.timing.validity import RULES


def ask(*args: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *args], standalone_mode=False, env={"COLUMNS": "200"})


def told(*args: str) -> str:
    done = ask(*args)
    assert done.exception is None, done.exception
    return " ".join(done.output.split())


@pytest.mark.parametrize("name", SPECS)
def test_every_metric_has_a_page_with_all_of_its_row(name: str) -> None:
    spec, page = SPECS[name], told(name)
    for text in (spec.definition, spec.formula, spec.undefined_when, f"unit {spec.unit};"):
        assert " ".join(text.split()) in page
    assert ("yes: regression gates watch it" in page) is spec.gated
    for peer in peer_metrics().get(name, ()):
        assert peer.tool in page
        assert (peer.called or "") in page
        assert (peer.says or "") in page


def test_tpot_says_how_the_others_divide() -> None:
    page = told("tpot_ms")
    assert "vLLM bench serve tpot_ms: (E2E - TTFT) / (n - 1)" in page
    assert "time_per_output_token_ms is (last token - start) / n" in page
    assert "llama-bench has none" in page


def test_without_a_name_there_is_one_line_a_metric() -> None:
    lines = ask().output.splitlines()
    assert [line.split()[0] for line in lines] == list(SPECS)
    assert [" gated " in line for line in lines] == [spec.gated for spec in SPECS.values()]
    assert all(line.endswith(spec.definition) for line, spec in zip(lines, SPECS.values(), strict=True))


def test_a_column_stands_for_its_metric() -> None:
    for column in wide_columns():
        assert told(column.column).startswith(f"{column.metric}: ")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("tftt_ms", "ttft_ms"),
        ("TTFT", "ttft_ms"),
        ("tpot", "tpot_ms"),
        ("TPOT_MS", "tpot_ms"),
        ("time_to_first_token_ms", "ttft_ms"),
        ("e2el_ms", "e2e_ms"),
        ("request_goodput", "goodput_rps"),
        ("j_per_output_token", "j_per_output_tok"),
        ("energy_per_output_token_mj", "j_per_output_tok"),
    ],
)
def test_an_unknown_name_is_a_usage_error_with_the_nearest(wrong: str, meant: str) -> None:
    done = ask(wrong)
    assert isinstance(done.exception, UsageError)
    assert done.exception.exit_code == 2
    assert f"{wrong!r}: did you mean {meant}?" in str(done.exception)


@pytest.mark.parametrize("code", RULES)
def test_every_validity_code_has_a_page_with_all_of_its_row(code: str) -> None:
    rule, page = RULES[code], told(code)
    assert page.startswith(f"{code}: {rule.meaning}")
    for profile in Profile:
        limit = "" if rule.threshold is None else f", {rule.threshold_for(profile):g}"
        assert f" {profile.value} {rule.severity_for(profile)}{limit} " in page
    assert page.endswith(f" next {REMEDIES[code]}")
    assert json.loads(ask(code, "--json").output)["next"] == REMEDIES[code]
    with pytest.raises(UsageError, match=f"{code} is a validity code"):
        raise ask(code, "--trial", "latest").exception or AssertionError("a code has no value in a trial")


def test_no_remedy_is_of_a_code_that_is_gone() -> None:
    assert REMEDIES.keys() == RULES.keys()


@pytest.mark.parametrize("wrong", ["not_stedy", "NOT-STEADY", "too_shrt"])
def test_an_unknown_code_is_a_usage_error_with_the_nearest(wrong: str) -> None:
    done = ask(wrong)
    assert isinstance(done.exception, UsageError)
    assert f"did you mean {'too_short' if 'too' in wrong else 'not_steady'}?" in str(done.exception)


def test_a_head_of_the_table_stands_for_its_metric() -> None:
    for column in COLUMNS:
        for head in (TITLES[column.key], PLAIN[column.key], PLAIN[column.key].upper()):
            assert told(head).startswith(f"{column.metric}: ")


def test_nothing_near_is_not_guessed() -> None:
    done = ask("qqqqqqqq")
    assert str(done.exception) == "there is no metric 'qqqqqqqq'"


def test_json_holds_the_same() -> None:
    one: dict[str, Any] = json.loads(ask("ttft_ms", "--json").output)
    assert (one["name"], one["unit"], one["gated"], one["better"]) == ("ttft_ms", "ms", True, "down")
    assert "ttft_p99_ms" in one["columns"]
    tools = {peer["tool"] for peer in one["elsewhere"]}
    assert {"vLLM bench serve", "SGLang bench_serving", "GuideLLM", "AIPerf", "GPUStack", "MLPerf Inference"} <= tools
    assert all(peer["source"] for peer in one["elsewhere"])
    assert [each["name"] for each in json.loads(ask("--json").output)] == list(SPECS)


def test_narrow_terminals_wrap() -> None:
    done = CliRunner().invoke(explain, ["tpot_ms"], standalone_mode=False, env={"COLUMNS": "70"})
    assert max(map(len, done.output.splitlines())) <= 70
