"""`bench check-claim`: whether published figures can be true together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from bench.errors import EXIT_FAILED, EXIT_OK, UsageError

if TYPE_CHECKING:
    from bench.analysis.claims import Claim, Scope


@click.command("check-claim")
@click.argument("text", required=False, metavar="[CLAIM]")
@click.option("--chip", help="The chip, as in `H100 SXM`.")
@click.option("--count", help="How many of it [default: 1].")
@click.option("--qps", help="Queries a second.")
@click.option("--tok-per-s", help="Output tokens a second.")
@click.option("--tokens-per-query", "tokens", help="Output tokens of a query.")
@click.option("--j-per-token", help="Joules per output token.")
@click.option("--power", "power_w", metavar="WATTS", help="The power that the joules come from [default: the chips' rated one].")
@click.option(
    "--scope",
    type=click.Choice(["devices", "server"]),
    help="What draws the power and the joules [default: not said; a whole server may take up to twice the chips' rating].",
)
@click.option("--memory", metavar="PERCENT", help="Share of the memory in use.")
@click.option("--batch-size", "batch", help="Queries in flight at once.")
@click.option("--model", help="A model of `bench models list`.")
@click.option("--precision", help="Precision of its weights.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: verdict, claim, steps[], notes[].")
def check_claim(
    *, text: str | None, chip: str | None, count: str | None, scope: Scope | None, as_json: bool, **flags: str | None
) -> int:
    """Say whether published figures can be true together, and which assumption breaks, with the arithmetic.

    CLAIM is free text; a flag replaces what the text says. Figures are read as they are written: 3.2 may be 3.15 to 3.25.

    \b
    bench check-claim "4x H100 SXM, 142 QPS, 3.2 J/token, 78% memory"
    bench check-claim --chip "H100 SXM" --count 4 --qps 142 --j-per-token 3.2 --tokens-per-query 100

    Exit status 0: they can be true (perhaps under a condition, which is named); 1: they can't.
    """
    from bench.analysis.claims import judge
    from bench.analysis.claims_text import Said, positive_count, read
    from bench.reports.claim import claim_json, claim_text

    said = read(text) if text else Said()
    if chip is not None:
        said.chips, said.assumed = [], []
        said.add_chips(chip, positive_count(count or "1", "--count"))
    elif count is not None:
        raise UsageError("--count goes with --chip", hint='for example: --chip "H100 SXM" --count 4')
    said.scope = scope or said.scope
    for name, value in flags.items():
        if value is not None:
            said.replace(name, value)
    found = judge(said.claim())
    if not found.steps:
        raise _nothing_to_check(found.claim)
    click.echo(json.dumps(claim_json(found), allow_nan=False) if as_json else claim_text(found))
    return EXIT_FAILED if found.verdict == "cannot" else EXIT_OK


def _nothing_to_check(claim: Claim) -> UsageError:
    from bench.analysis.claims_text import EXAMPLE

    if claim.model is not None and claim.precision is None:
        return UsageError(f"what {claim.model.name} can do depends on its precision, which is not said", hint="--precision fp16")
    if claim.model is None and claim.precision is not None:
        return UsageError(f"what {claim.precision} can do depends on the model, which is not said", hint="--model llama2-13b")
    return UsageError("the claim has no two figures that depend on each other", hint=f"for example: bench check-claim {EXAMPLE}")
