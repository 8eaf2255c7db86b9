"""`bench import`: result files of other tools, beside our own and never among them."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.imported_table import keep_and_show
from bench.cli.options import results_option
from bench.errors import EXIT_OK
from bench.importers.reading import FORMATS, read_file


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--from", "tool", type=click.Choice(FORMATS), help="What wrote the files [default: told from their content].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: added, known, imported[].")
@results_option
def import_(*, files: tuple[Path, ...], tool: str | None, as_json: bool, results: Path) -> int:
    """Take over results that another tool has measured: JSON of `vllm bench serve`, GuideLLM, AIPerf or `llama-bench`.

    Their definitions are not ours, so they are shown by `bench table --imported` and in the SQL tables imported and
    imported_metrics, in no other table, and bench compare refuses them. A file that is not whole and sound is refused; one
    that was imported before changes nothing.

    \b
    bench import vllm-result.json
    bench import profile_export_aiperf.json --from aiperf
    """
    keep_and_show(results, [one for file in files for one in read_file(file, tool)], as_json=as_json)
    return EXIT_OK
