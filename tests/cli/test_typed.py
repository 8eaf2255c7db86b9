"""What is typed: a flag of one value stands once, and the line that is printed to try again is one that works."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from bench.cli.main import cli, main
from bench.cli.run import run
from bench.cli.typed import retyped


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--batch-size 1 --batch-size 4",
            "--batch-size is given twice: for several loads write a suite with `batch_size: [1, 4]`",
        ),
        ("--batch-size 1 --batch_size=4 --batch-size 4", "--batch-size is given 3 times: for several loads"),
        ("--batch-size 1,4", "for several loads write a suite with `batch_size: [1, 4]`"),
        ("--request-rate 1 --request-rate 4", "for several loads write a suite with `request_rate: [1, 4]`"),
        ("--output-tokens 8 --random-output-len 9", "--output-tokens is given twice"),
        ("--input-tokens 8,16", "for several write a suite in which `input_tokens` is a list"),
        ("--duration 5s --duration 6s", "for several write a suite in which `duration` is a list"),
        ("--results a --results b", "--results is given twice: give it once"),
        ("--start-timeout 1s --start-timeout 1s", "give it once"),
    ],
)
def test_a_flag_of_one_value_given_twice_measures_nothing(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "--engine", "mock", "--model", "m", *words.split(), "--dry-run"])
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert said in " ".join(err.split())


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below one, with the words that call it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield path, command


NUMBERS = [
    (path, option)
    for path, command in commands(cli)
    for option in command.params
    if isinstance(option.type, click.types.FloatParamType)
]


def test_there_are_numbers_to_try() -> None:
    assert {"--max-error-rate", "--seconds", "--temperature", "--gain", "--speed"} <= {o for _, p in NUMBERS for o in p.opts}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "NaN"])
@pytest.mark.parametrize(
    ("path", "option"), NUMBERS, ids=lambda one: one.opts[0] if isinstance(one, click.Parameter) else "-".join(one)
)
def test_no_number_of_any_command_is_nan_or_without_end(path: tuple[str, ...], option: click.Parameter, text: str) -> None:
    """Both pass bounds, which are only compared with: --max-error-rate nan would never stop anything."""
    with pytest.raises(click.BadParameter, match=r"is not (a finite number|in the range)"):
        option.type.convert(text, option, None)


def test_flags_that_may_be_repeated_still_are(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(str(tmp_path))
    words = "--engine mock --model m --engine-arg ttft_ms=5 --engine-arg gap_ms=1 --label a=b --label c=d --json --json"
    with pytest.raises(SystemExit) as caught:
        main(["run", *words.split(), "--dry-run"])
    assert caught.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "flag", "again"),
    [
        ("quickstart", "--duration", "quickstart --duration 60s"),
        ("quickstart --duration 5s --json", "--duration", "quickstart --json --duration 60s"),
        ("--model m --duration=5s --idle 0s", "--duration", "--model m --idle 0s --duration 60s"),
        ("--random-output-len 8 'my suite.yaml'", "--output-tokens", "'my suite.yaml' --output-tokens 60s"),
        ("--model 5s --duration 5s", "--duration", "--model 5s --duration 60s"),
    ],
)
def test_the_line_to_try_again_is_the_one_that_was_typed_with_one_flag_changed(typed: str, flag: str, again: str) -> None:
    assert isinstance(run, click.Command)
    context = run.make_context("run", shlex.split(typed))
    line = retyped(context)(flag, "60s")
    assert line == f"bench run {again}"
