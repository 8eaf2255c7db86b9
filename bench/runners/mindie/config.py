"""MindIE's configuration for a case: the installed one, with what the case decides changed. Pure.

Source: MindIE-LLM, `docs/en/user_guide/user_manual/service_parameter_configuration.md` and `src/server/conf/config.json`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from typing import Any

from bench.records import Case, LocalModel
from bench.runners.arguments import whole
from bench.runners.sizing import longest, size_for
from bench.runners.weights import Menu

MENU = Menu(
    engine="mindie",
    plain=dict.fromkeys(("bf16", "fp16"), ()),
    stored=("int8", "w4a16", "int4"),
)
"""It has no option for a number format: it runs weights as their config.json says (`torch_dtype`, `quantize`)."""
_HOST = "127.0.0.1"


def served_name(model: LocalModel) -> str:
    """The model's name in the letters that MindIE takes."""
    return re.sub(r"[^\w.-]", "-", model.name, flags=re.ASCII).strip("-._") or "model"


def config_of(template: dict[str, Any], cases: Iterable[Case], model: LocalModel, port: int) -> dict[str, Any]:
    """The whole document. Its pages for requests, health and metrics share one port."""
    all_cases = tuple(cases)
    document = copy.deepcopy(template)
    document["ServerConfig"] |= {
        **dict.fromkeys(("ipAddress", "managementIpAddress"), _HOST),
        **dict.fromkeys(("port", "managementPort", "metricsPort"), port),
        **dict.fromkeys(("httpsEnabled", "interCommTLSEnabled", "fullTextEnabled"), False),
        "openAiSupport": "vllm",
    }
    backend = document["BackendConfig"]
    boards = all_cases[0].parallel.devices
    backend |= {"npuDeviceIds": [list(range(boards))], "multiNodesInferEnabled": False, "interNodeTLSEnabled": False}
    tokens = _sequence_tokens(all_cases)
    deployed = backend.setdefault("ModelDeployConfig", {})
    deployed |= {"maxSeqLen": tokens, "maxInputTokenLen": tokens, "truncation": False}
    first = (deployed.get("ModelConfig") or [{}])[0]
    deployed["ModelConfig"] = [first | _model_config(all_cases[0], model)]
    backend["ScheduleConfig"] = backend.get("ScheduleConfig", {}) | _schedule_config(all_cases, tokens, backend)
    return document


def _sequence_tokens(cases: tuple[Case, ...]) -> int:
    return whole(cases[0].engine_args, "max_seq_len") or size_for(cases, {}).slot_tokens


def _model_config(case: Case, model: LocalModel) -> dict[str, Any]:
    ranks, args = case.parallel, case.engine_args
    found: dict[str, Any] = {
        "modelName": served_name(model),
        "modelWeightPath": model.path,
        "worldSize": ranks.devices,
        "npuMemSize": -1 if args.get("npu_mem_size") is None else args["npu_mem_size"],
        "trustRemoteCode": bool(args.get("trust_remote_code")),
    }
    if ranks.dp > 1 or ranks.ep > 1:
        found |= {"tp": ranks.tp, "dp": ranks.dp, "moe_ep": ranks.ep, "moe_tp": ranks.tp * ranks.dp // ranks.ep}
    if args.get("prefix_cache"):
        found["plugin_params"] = json.dumps({"plugin_type": "prefix_cache"})
    return found


def _schedule_config(cases: tuple[Case, ...], tokens: int, backend: dict[str, Any]) -> dict[str, Any]:
    """Prefills hold at least one whole request, and outputs may be as long as the cases want them."""
    args, slots = cases[0].engine_args, size_for(cases, {}).slots
    installed = backend.get("ScheduleConfig", {})
    found: dict[str, Any] = {
        "maxPrefillTokens": whole(args, "max_prefill_tokens") or max(installed.get("maxPrefillTokens", 0), tokens),
        "maxBatchSize": whole(args, "max_batch_size") or max(installed.get("maxBatchSize", 0), slots),
        "maxIterTimes": max(longest(case.output_tokens) for case in cases),
    }
    for name, key in (("max_prefill_batch_size", "maxPrefillBatchSize"), ("cache_block_size", "cacheBlockSize")):
        if args.get(name) is not None:
            found[key] = args[name]
    if args.get("prefix_cache") is not None:
        found["enablePrefixCache"] = bool(args["prefix_cache"])
    return found
