"""The `bench` command: a table of subcommands, each imported only when it is called, and one place where errors end."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import click

from bench import __version__
from bench.cli import standard_streams
from bench.errors import EXIT_INTERRUPTED, BenchError, UsageError
from bench.printable import printable, printable_lines

COMMANDS = {
    "run": ("bench.cli.run:run", "Measure a suite, or one case given by flags."),
    "table": ("bench.cli.results:table", "Show what was measured, best columns first."),
    "compare": ("bench.cli.compare:compare", "Say whether two sets of results differ, and by how much."),
    "gate": ("bench.cli.gate:gate", "Say whether anything got worse last night."),
    "matrix": ("bench.cli.matrix:matrix", "Cut a suite into the jobs of a nightly CI matrix."),
    "history": ("bench.cli.history:history", "Draw a series night by night."),
    "report": ("bench.cli.report:report", "Write results as one HTML file with charts."),
    "devices": ("bench.cli.devices:devices", "List the devices that can be measured here."),
    "power": ("bench.cli.power:power", "Measure the energy of any command, or of a machine at rest."),
    "doctor": ("bench.cli.doctor:doctor", "Say what this machine can and can't do, and how to mend it."),
    "suites": ("bench.cli.suites:suites", "List, show, validate and expand suite files."),
    "equivalents": ("bench.cli.equivalents:equivalents", "Say how many H100s a result is worth on its workload."),
    "recommend": ("bench.cli.recommend:recommend", "Say what to deploy, by what was measured here."),
    "check-claim": ("bench.cli.check_claim:check_claim", "Say whether published figures can be true together."),
    "reference": ("bench.cli.reference:reference", "Keep what some weights say, for later runs to be compared with."),
    "models": ("bench.cli.models:models", "List and pull model weights."),
    "ingest": ("bench.cli.results:ingest", "Load shards into the results database."),
    "sql": ("bench.cli.results:sql", "Query results with SQL."),
    "export": ("bench.cli.export:export", "Write results in the shape that another program reads."),
    "import": ("bench.cli.import_:import_", "Take over what another tool has measured, marked as such."),
    "reproduce": ("bench.cli.reproduce:reproduce", "Measure a stored trial again, and compare."),
    "explain": ("bench.cli.explain:explain", "Say what a metric is, and how other tools define theirs."),
    "rederive": ("bench.cli.rederive:rederive", "Work out stored trials again from their raw events, and compare."),
    "gpustack": ("bench.cli.gpustack:gpustack", "Benchmark as GPUStack's users ask for it, and serve as its image."),
    "selfcheck": ("bench.cli.selfcheck:selfcheck", "Find how much load this machine's client can follow truly."),
    "mock-server": ("bench.cli.mock_server:mock_server", "Serve a mock engine that tells its own truth."),
}


class LazyGroup(click.Group):
    """Lists commands from `table`, which has a module with an attribute and a line of help for each, and imports a command's
    module only to run it, so that `--help` stays fast.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._table.get(cmd_name)
        if entry is None:
            near = get_close_matches(cmd_name, self._table, n=1)
            raise UsageError(f"no command {cmd_name!r}", hint=f"{ctx.command_path} {near[0] if near else '--help'}")
        module, _, attribute = entry[0].partition(":")
        with _one_thread():
            command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])


@contextmanager
def _one_thread() -> Iterator[None]:
    """For imports: numpy's library begins a thread for every core as it is loaded, which takes as long as all else of numpy, and
    no command computes so much. What a command starts later is not told so.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bench")
def cli() -> None:
    """How fast, and for how many joules, LLM engines run on this machine.

    Start with: bench run quickstart
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run `bench` with `argv` (default: the process's) and exit with the code that docs/architecture.md lists."""
    standard_streams.make_safe()
    try:
        code = cli.main(args=None if argv is None else list(argv), prog_name="bench", standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:  # a group alone: click's own exit code, 2
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        usage = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "bench"
        show_error(UsageError(error.format_message(), hint=f"{usage} --help"))
        code = error.exit_code
    except BenchError as error:
        show_error(error)
        code = error.exit_code
    except BrokenPipeError:
        # the reader of our output left (`bench table | head`): what every filter does
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)
        code = 1
    except OSError as error:
        if not standard_streams.refused(error):
            raise
        standard_streams.silence_stdout()
        show_error(BenchError(f"what was to be shown can't be written: {error.strerror}", hint="bench table shows what was kept"))
        code = BenchError.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def show_error(error: BenchError) -> None:
    """What failed, the engine's own last words where there are any, and the next step, on stderr."""
    click.echo(f"error: {printable_lines(str(error))}", err=True)
    tail = getattr(error, "log_tail", "")
    if tail:
        click.echo("\n".join(f"  | {printable(line)}" for line in tail.splitlines()), err=True)
    if error.hint:
        click.echo(f"  next: {printable_lines(error.hint)}", err=True)


if __name__ == "__main__":
    main()
