"""A model repository for Triton's vLLM backend: what vLLM is told, in `model.json`, and what Triton is, in `config.pbtxt`.

Source: Triton's vLLM backend, its samples and `src/model.py` (every key of model.json is a field of vLLM's `AsyncEngineArgs`;
with its metrics switched on the engine has no process of its own).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.ports import StartRequest
from bench.records import Case, LocalModel, Scalar
from bench.runners.checkpoint import Checkpoint
from bench.runners.sizing import size_for
from bench.runners.vllm.facts import Vllm
from bench.runners.vllm.precision import Asked
from bench.runners.vllm.precision import ask_for as ask_vllm
from bench.runners.vllm.runner import OURS as VLLMS
from bench.runners.vllm.runner import ranks_of

OWN = frozenset({"home", "model_repository", "model_name", "tokenizer", "vllm_metrics"})
"""Engine arguments that are Triton's; all others are vLLM's."""
_CONFIG = """backend: "vllm"
instance_group [ {{ count: 1 kind: KIND_MODEL }} ]
parameters: {{ key: "REPORT_CUSTOM_METRICS" value: {{ string_value: "{metrics}" }} }}
"""


def served_name(model: LocalModel) -> str:
    """The model's name as that of a folder."""
    return re.sub(r"[^\w.-]", "-", model.name, flags=re.ASCII).strip("-.") or "model"


def vllm_args(case: Case) -> dict[str, Scalar]:
    """The engine arguments that are vLLM's."""
    return {name.replace("-", "_"): value for name, value in case.engine_args.items() if name not in OWN}


def asked_of_vllm(case: Case, weights: Checkpoint, vllm: Vllm) -> Asked:
    """How the precision is asked for. Raises: UsageError."""
    return ask_vllm(case.precision, weights, vllm.platform)


def model_json(vllm: Vllm, request: StartRequest, model: LocalModel, weights: Checkpoint) -> dict[str, Scalar]:
    """What vLLM is told. Raises: UsageError (an option that it does not have, a precision), EngineMissing (one that we need)."""
    case, args = request.case, vllm_args(request.case)
    vllm.flags.passed(args, VLLMS)
    asked = [*ranks_of(vllm, case), *asked_of_vllm(case, weights, vllm).flags, *vllm.flags.known("--disable-log-requests")]
    known: dict[str, Scalar] = {"model": str(Path(model.path).absolute())}
    if "max_model_len" not in args:
        known["max_model_len"] = size_for(request.cases, {}).slot_tokens
    return known | as_fields(asked) | {name: value for name, value in args.items() if value is not None}


def as_fields(line: Sequence[str]) -> dict[str, Scalar]:
    """Flags of a command line as fields: `--tensor-parallel-size 2 --x` as `{"tensor_parallel_size": 2, "x": true}`."""
    found: dict[str, Scalar] = {}
    name = ""
    for word in line:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[name] = True
        else:
            found[name] = int(word) if word.isdigit() else word
    return found


def write_repository(folder: Path, name: str, fields: Mapping[str, Scalar], *, metrics: bool) -> None:
    """A repository of one model in `folder`."""
    version = folder / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.json").write_text(json.dumps(dict(fields), indent=1), encoding="utf-8")
    (folder / name / "config.pbtxt").write_text(_CONFIG.format(metrics=str(metrics).lower()), encoding="utf-8")
