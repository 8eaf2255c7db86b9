"""The command line as it was typed: no flag of one value given twice, and the same line with a flag at another value."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click

from bench.errors import UsageError
from bench.suite.settings import EXPANDABLE

_KEPT = "bench.typed"
_LOADS = ("batch_size", "request_rate", "max_concurrency")


class TypedOnce(click.Command):
    """A command that keeps its words for `retyped`, and in which the last of two equal flags does not win unseen."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raises: UsageError."""
        ctx.meta[_KEPT] = tuple(args)
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, count in Counter(order).items():
            if count > 1 and isinstance(option, click.Option) and not option.multiple and not option.is_flag:
                raise UsageError(
                    f"{option.opts[0]} is given {'twice' if count == 2 else f'{count} times'}: {_instead(option.name)}"
                )
        return super().parse_args(ctx, args)


class Whole(click.types.IntParamType):
    """A whole number, that says where several can be written."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and "," in value and param is not None:
            self.fail(f"{value!r} is no whole number: {_instead(param.name)}", param, ctx)
        return super().convert(value, param, ctx)


def _instead(key: str | None) -> str:
    if key in _LOADS:
        return f"for several loads write a suite with `{key}: [1, 4]`"
    return f"for several write a suite in which `{key}` is a list" if key in EXPANDABLE else "give it once"


def retyped(ctx: click.Context) -> Callable[[str, str], str]:
    """What to type for the command of `ctx` with a flag at another value."""
    words: Sequence[str] = ctx.meta[_KEPT]
    names = {name: tuple(option.opts) for option in ctx.command.params for name in option.opts}

    def again(flag: str, value: str) -> str:
        same = names.get(flag, (flag,))
        kept, skip = [], False
        for word in words:
            if not skip and word not in same and not word.startswith(tuple(f"{one}=" for one in same)):
                kept.append(word)
            skip = not skip and word in same
        return shlex.join(["bench", "run", *kept, flag, value])

    return again
