from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.errors import SuiteError
from bench.records import Profile
from bench.suite.build import load_text
from bench.suite.resolve import MINIMUM_WINDOW_S, PROFILES
from bench.suite.settings import EXPANDABLE, Settings
from bench.timing.validity import threshold

DOCS = (Path(__file__).parents[2] / "docs" / "suites.md").read_text(encoding="utf-8")


def key_table() -> str:
    rows = ["| key | list expands | meaning |", "|---|---|---|"]
    for key, field in Settings.model_fields.items():
        expands = "yes" if key in EXPANDABLE else "its entries" if key == "engine_args" else "no"
        rows.append(f"| `{key}` | {expands} | {field.description} |")
    return "\n".join(rows)


def test_the_table_of_keys_is_that_of_the_models() -> None:
    """When it fails, copy what the assertion shows into docs/suites.md."""
    written = DOCS.partition("<!-- keys")[2].partition("-->\n")[2].partition("\n\n")[0]
    assert written == key_table()


def test_the_example_is_valid_and_expands_as_it_says() -> None:
    example = DOCS.partition("```yaml\n")[2].partition("```")[0]
    suite = load_text(example, "chat.yaml")
    assert f"chat.yaml: ok, {len(suite.cases)} cases" in DOCS
    assert suite.warnings == ()
    assert suite.cases[0].name in DOCS


def test_the_errors_shown_are_those_of_the_example_with_two_mistakes() -> None:
    example = DOCS.partition("```yaml\n")[2].partition("```")[0]
    wrong = example.replace("  input_tokens: 64\n", "  batchsize: 64\n").replace(
        "request_rate: 5", "batch_size: 5\n    request_rate: 5"
    )
    with pytest.raises(SuiteError) as caught:
        load_text(wrong, "chat.yaml")
    assert f"```console\n{caught.value}\n```" in DOCS


def test_the_table_of_profiles_is_that_of_the_code() -> None:
    for profile in Profile:
        times = PROFILES[profile]
        row = f"| `{profile.value}` | {times.duration_s:g}s | {times.warmup_s:g}s | {times.idle_s:g}s | {times.repeats} "
        assert MINIMUM_WINDOW_S[profile] == threshold("too_short", profile)
        assert row + f"| {MINIMUM_WINDOW_S[profile]:g}s |" in DOCS


def test_the_text_names_no_key_that_does_not_exist() -> None:
    named = set(re.findall(r"`([a-z_]+)`", DOCS.partition("## Keys")[0])) - {profile.value for profile in Profile}
    assert named <= set(Settings.model_fields) | {"cases", "defaults", "null", "too_short"}
