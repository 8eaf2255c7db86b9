"""`bench mock-server`: the mock engine on the command line."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.options import Number


@click.command("mock-server")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on, or unix:/path/to/socket.")
@click.option("--port", default=0, show_default=True, type=int, help="Port; 0 takes any free one.")
@click.option("--port-file", type=click.Path(path_type=Path, dir_okay=False), help="File that gets the URL once it serves.")
@click.option(
    "--ttft-ms", type=Number(), default=50.0, show_default=True, help="First content chunk this long after the request."
)
@click.option("--gap-ms", type=Number(), default=20.0, show_default=True, help="Time between content chunks.")
@click.option("--model", default="mock", show_default=True, help="Name of the model that it serves.")
@click.option("--tokens-per-chunk", default=1, show_default=True, help="Tokens in each content chunk.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable with the API key that requests must bring.")
@click.option("--quirk", "quirks", multiple=True, metavar="NAME[=VALUE]", help="Misbehave; may be repeated.")
@click.option(
    "--prefill-us-per-token",
    type=Number(),
    default=0.0,
    show_default=True,
    help="Added to the TTFT for each uncached prompt token.",
)
@click.option("--max-in-flight", type=int, help="Requests served at once; later ones wait.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random quirks.")
@click.option("--truth-chunks", default=20_000_000, show_default=True, help="Chunk stamps kept for /truth (16 bytes each).")
@click.option(
    "--emission-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that gets (stamp, tokens) as they are sent; the simulated device draws its power from it.",
)
@click.option("--allow-remote", is_flag=True, help="Serve on an address that other hosts can reach.")
@click.option("--until-stdin-ends", is_flag=True, help="End when standard input does: with the program that started it.")
@click.option("--list-quirks", is_flag=True, help="Print all quirks and exit.")
def mock_server(list_quirks: bool, quirks: tuple[str, ...], **flags: object) -> int:
    """Serve an OpenAI-compatible mock engine with an exact schedule.

    GET /truth?from_ns=..&to_ns=.. tells what it really sent: see docs/mock.md.
    """
    from bench.mock import quirks as known

    if list_quirks:
        rows = known.list_quirks()
        width = max(len(form) for form, _ in rows)
        for form, text in rows:
            click.echo(f"{form:<{width}}  {text}")
        return 0
    from bench.mock.options import MockOptions
    from bench.mock.server import serve

    options = MockOptions(quirks=quirks, **flags)  # type: ignore[arg-type]  # click has checked the types
    return serve(options, lambda line: click.echo(line, err=True))
