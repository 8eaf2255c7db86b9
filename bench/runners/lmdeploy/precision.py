"""LMDeploy's engines and the project's precisions as its flags, and its words back. Pure.

Source: LMDeploy, `messages.py` (dtypes, `model_format`), `turbomind/converter.py`, `pytorch/config.py`, `pytorch/nn/linear`.
"""

from __future__ import annotations

import re

from bench.errors import UsageError
from bench.precision import read_back
from bench.records import Case
from bench.runners.checkpoint import Checkpoint
from bench.runners.lmdeploy.facts import LMDeploy
from bench.runners.weights import Menu

TURBOMIND, PYTORCH = "turbomind", "pytorch"
_PLAIN = {"bf16": ("--dtype", "bfloat16"), "fp16": ("--dtype", "float16")}
_STORED = {
    TURBOMIND: ("fp8", "w4a16", "awq", "gptq", "int4", "fp4", "mxfp4"),
    PYTORCH: ("fp8", "int8", "w4a16", "awq", "int4"),
}
_DOWNGRADED = "data type downgraded to float16"
_CONFIGURED = re.compile(r"updated backend_config=\w+\(dtype='(float16|bfloat16)'")


def device_of(found: LMDeploy, case: Case) -> str:
    """The `--device` of a case: the one that is installed, unless it is given."""
    return str(case.engine_args.get("device") or found.device)


def backend_of(found: LMDeploy, case: Case) -> str:
    """Which of LMDeploy's engines is asked for: `backend` of the engine arguments, else turbomind where it exists.

    Raises: UsageError for turbomind where it does not.
    """
    device, asked = device_of(found, case), case.engine_args.get("backend")
    if asked == TURBOMIND and device != "cuda":
        raise UsageError(f"lmdeploy's turbomind runs on cuda only, and the device is {device}", hint="write backend: pytorch")
    return str(asked) if asked else TURBOMIND if device == "cuda" else PYTORCH


def menu(found: LMDeploy, case: Case) -> Menu:
    """What the engine of a case runs."""
    backend = backend_of(found, case)
    makes_fp8 = backend == PYTORCH and device_of(found, case) == "cuda"
    fp8 = tuple(found.flags.known("--model-format", "fp8")) if makes_fp8 else ()
    return Menu(engine=f"lmdeploy's {backend}", plain=_PLAIN, made={"fp8": fp8} if fp8 else {}, stored=_STORED.get(backend, ()))


def format_flags(found: LMDeploy, case: Case, weights: Checkpoint) -> list[str]:
    """How turbomind is told what quantised weights are; older versions do not find it out."""
    told_apart = weights.method is not None and backend_of(found, case) == TURBOMIND
    return found.flags.known("--model-format", str(weights.method)) if told_apart else []


def told(log: str, asked: str | None, weights: Checkpoint) -> str | None:
    """The precision that runs, where the log tells it: a warning of turbomind's, or its configuration (`log_level: INFO`)."""
    if _DOWNGRADED in log:
        return read_back(asked, "fp16")
    configured = _CONFIGURED.search(log)
    return read_back(asked, configured[1]) if configured is not None and weights.quantisation is None else None
