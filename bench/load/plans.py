"""What is settled about a load before anything is started: that it can be sent, and with which data."""

from __future__ import annotations

import os
from dataclasses import replace

from bench.errors import UsageError
from bench.load.address import route
from bench.load.arrivals import check_arrivals
from bench.load.data import pin
from bench.load.protocols import wire_protocol
from bench.load.retokenize import Retokenizer
from bench.ports import LoadPlan


def check_plan(plan: LoadPlan) -> None:
    """Refuse what can't be sent, or not be counted, before anything is started. Raises: UsageError, MissingError."""
    case = plan.case
    if case.tokenizer is not None:
        Retokenizer(case.tokenizer)
    protocol = wire_protocol(plan.target.protocol)
    route(plan.target.base_url, os.environ, versioned=protocol.versioned)
    if case.load.kind == "closed" and not (case.load.batch_size or 0) > 0:
        raise UsageError("closed loop needs a batch_size above 0")
    if (
        case.load.kind == "open"
        and case.load.arrivals != "burst"
        and case.load.num_prompts is None
        and not (case.load.request_rate or case.load.stages or case.load.arrivals == "trace")
    ):
        raise UsageError("open loop needs a request_rate", hint="set request_rate, or arrivals: burst with num_prompts")
    if case.load.arrivals == "burst" and case.load.num_prompts is None:
        raise UsageError("a burst needs to know how many requests it has", hint="set num_prompts")
    if case.load.kind == "open" and case.load.arrivals != "trace":
        check_arrivals(case.load, case.warmup_s + case.duration_s + case.grace_s, warmup_s=case.warmup_s)


def settle(plan: LoadPlan) -> LoadPlan:
    """`plan` with its data file read, and the same salt in every trial where prefix caches are to help. Raises: UsageError."""
    case = plan.case if plan.case.data.sha256 is not None else pin(plan.case)
    return replace(plan, case=case, salt=plan.salt if case.data.salt else f"seed {case.seed}")
