"""Tells on which platform an installed vLLM runs: run by vLLM's own Python.

    python vllm_platform.py '{"variables": ["VLLM_FLOAT32_MATMUL_PRECISION"], "optional": ["torchvision"]}'

The platform is what vLLM itself resolves: by its build and the driver, or by a plugin. `error` is there instead where vLLM can't
be imported, or a package of `optional` that is installed: transformers imports those too. `quantisations` are the methods that
`--quantization` takes; `variables` are those of the question that this version knows.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any


def platform() -> dict[str, Any]:
    """What `current_platform` says of itself."""
    from vllm.platforms import current_platform as found

    kind = type(found)
    return {
        "enum": getattr(getattr(found, "_enum", None), "name", str(getattr(found, "_enum", ""))),
        "device_name": str(getattr(found, "device_name", "") or ""),
        "device_type": str(getattr(found, "device_type", "") or ""),
        "provided_by": kind.__module__.partition(".")[0],
        "supported": [str(name) for name in getattr(found, "supported_quantization", None) or ()],
    }


def quantisations() -> list[str]:
    """Every method by name; none where this version keeps them elsewhere."""
    try:
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS as METHODS
    except ImportError:
        return []
    return [str(name) for name in METHODS]


def main() -> None:
    """Answer the question in the first argument."""
    question = json.loads(sys.argv[1])
    try:
        for name in question["optional"]:
            if importlib.util.find_spec(name):
                importlib.import_module(name)
        from vllm import envs

        known = getattr(envs, "environment_variables", {})
        found = {
            **platform(),
            "quantisations": quantisations(),
            "variables": [name for name in question["variables"] if name in known],
        }
    except Exception as error:  # noqa: BLE001 - whatever an import of an engine raises is the answer
        found = {"error": f"{type(error).__name__}: {error}"}
    os.write(1, ("BENCH_ANSWER " + json.dumps(found) + "\n").encode())
    os._exit(0)  # threads and atexit handlers of what was imported have nothing to say


main()
