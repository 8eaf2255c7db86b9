"""Ranks, devices, batching of a case: what an engine can't do or does not add up is refused before anything starts. Pure."""

from __future__ import annotations

from collections.abc import Collection

from bench.errors import UsageError
from bench.records import Case, Placement

KINDS = {"tp": "tensor", "pp": "pipeline", "dp": "data", "ep": "expert"}


def check_parallel(engine: str, case: Case, has: Collection[str], *, instead: str = "leave it out", static: bool = False) -> None:
    """`has`: the kinds of ranks (`tp`, `pp`, `dp`, `ep`) that the engine knows; `instead`: what to do about another. An engine
    without any uses the devices that it sees as it likes. `static`: it can be made to take whole batches.

    Raises: UsageError.
    """
    if case.batching == "static" and not static:
        raise UsageError(f"{engine} schedules requests by itself: batching: static", hint="leave it out, or take engine: torch")
    ranks = {kind: getattr(case.parallel, kind) for kind in KINDS}
    for kind, count in ranks.items():
        if count > 1 and kind not in has:
            raise UsageError(f"{engine} has no {KINDS[kind]} parallelism: {kind}: {count}", hint=instead)
    spread_over = ranks["tp"] * ranks["dp"]
    if spread_over % ranks["ep"]:
        raise UsageError(
            f"ep: {ranks['ep']} does not divide the {spread_over} ranks of tp x dp, over which experts are spread",
            hint="write an ep that does, or more tp or dp",
        )
    plain = [word for word in case.devices if word.rpartition(":")[2].isdigit()]
    if has and plain and len(plain) == len(case.devices):
        _check_count(case, len(plain))


def check_placement(case: Case, placement: Placement) -> None:
    """The same once the devices are known. Raises: UsageError where their number is not that of the ranks."""
    if placement.devices is not None:
        _check_count(case, placement.devices)


def _check_count(case: Case, devices: int) -> None:
    needed = case.parallel.devices
    if devices != needed:
        ranks = " x ".join(f"{kind} {getattr(case.parallel, kind)}" for kind in ("tp", "pp", "dp"))
        raise UsageError(
            f"{devices} devices ({', '.join(case.devices)}) for {needed} ranks ({ranks}): each rank has one device",
            hint=f"name {needed} devices, or write ranks whose product is {devices}, as in tp: {devices}",
        )
