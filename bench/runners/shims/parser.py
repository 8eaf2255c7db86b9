"""Tells what an engine's own argument parser accepts: run by an engine's own Python, with the question as JSON.

    python parser.py '{"module": "vllm.entrypoints.openai.api_server", "arguments": []}'

The module runs as a program up to the point where it parses its arguments: there the options are told, and nothing is started.
With `"check": true` the arguments are parsed for real, and the answer says whether they were accepted. Standard library only,
Python 3.9 and newer; the engine uses argparse or click.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import runpy
import sys
from typing import Any, NoReturn

PARSE = argparse.ArgumentParser.parse_args


def answer(found: dict[str, Any]) -> NoReturn:
    """Print it, and end before the engine does anything else."""
    os.write(1, ("BENCH_ANSWER " + json.dumps(found) + "\n").encode())
    os._exit(0)


def options_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Every option and positional of a parser."""
    found = []
    for action in parser._actions:  # noqa: SLF001 - argparse tells it in no other way
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        entry: dict[str, Any] = {"flags": list(action.option_strings)} if action.option_strings else {"positional": action.dest}
        found.append({**entry, "choices": choices, "nargs": action.nargs})
    return found


def click_options_of(command: Any) -> list[dict[str, Any]]:
    """The same of a click command."""
    found = []
    for parameter in command.params:
        kind = parameter.type
        choices = [str(choice) for choice in (*kind.choices, *getattr(kind, "aliases", ()))] if hasattr(kind, "choices") else None
        is_option = parameter.param_type_name == "option"
        entry = {"flags": [*parameter.opts, *parameter.secondary_opts]} if is_option else {"positional": parameter.name}
        nargs = 0 if is_option and parameter.is_flag else None if parameter.nargs == 1 else parameter.nargs
        found.append({**entry, "choices": choices, "nargs": nargs})
    return found


def tell_click(*, really: bool) -> None:
    """Do the same where click parses a command, once it has found the subcommand."""
    try:
        import click
    except ImportError:
        return
    parse = click.Command.parse_args

    def ours(self: Any, ctx: Any, args: list[str]) -> Any:
        if isinstance(self, click.Group):
            return parse(self, ctx, args)
        if not really:
            answer({"options": click_options_of(self)})
        try:
            parse(self, ctx, args)
        except click.UsageError as error:
            answer({"accepted": False, "said": error.format_message()[-2000:]})
        answer({"accepted": True, "said": ""})

    click.Command.parse_args = ours  # type: ignore[method-assign]


def chosen(parser: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    """The parser of the subcommand that `words` name, as deep as they go."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction) and words and words[0] in action.choices:  # noqa: SLF001
            return chosen(action.choices[words[0]], words[1:])
    return parser


def main() -> None:
    """Answer the question in the first argument."""
    question = json.loads(sys.argv[1])
    arguments: list[str] = question["arguments"]

    def tell(self: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        answer({"options": options_of(chosen(self, arguments))})

    def check(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> NoReturn:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                PARSE(self, args, namespace)
        except SystemExit:
            answer({"accepted": False, "said": said.getvalue().strip()[-2000:]})
        answer({"accepted": True, "said": ""})

    argparse.ArgumentParser.parse_args = check if question.get("check") else tell  # type: ignore[method-assign]
    tell_click(really=bool(question.get("check")))
    sys.argv = [question["module"], *arguments]
    runpy.run_module(question["module"], run_name="__main__", alter_sys=True)


main()
