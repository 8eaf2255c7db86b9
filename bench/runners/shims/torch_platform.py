"""Tells on which device an installed torch runs: run by the Python that has it, with a question as JSON.

    python torch_platform.py '{}'

The device is the first accelerator that torch itself says is there, else the CPU. `imports` are packages that bring a vendor's
device into torch. `error` is there instead where torch can't be imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from typing import Any

EXTENSIONS = ("torch_npu", "torch_mlu", "torch_musa", "habana_frameworks.torch")
DEVICES = ("cuda", "npu", "mlu", "musa", "hpu", "xpu", "mps")
"""torch's words, in the order in which they are looked for."""


def extensions() -> list[str]:
    """The vendors' packages that are installed here, imported."""
    found = [name for name in EXTENSIONS if importlib.util.find_spec(name.partition(".")[0]) is not None]
    for name in found:
        importlib.import_module(name)
    return found


def device_of(torch: Any) -> str:
    """torch's word for what it runs on."""
    for word in DEVICES:
        module = getattr(torch.backends if word == "mps" else torch, word, None)
        if module is not None and module.is_available():
            return word
    return "cpu"


def main() -> None:
    """Answer."""
    try:
        import torch

        imports = extensions()
        device = device_of(torch)
        found = {
            "device": device,
            "is_rocm": bool(getattr(torch.version, "hip", None)),
            "build": getattr(torch.version, "git_version", None),
            "imports": imports,
        }
    except Exception as error:  # noqa: BLE001 - whatever an import of an engine raises is the answer
        found = {"error": f"{type(error).__name__}: {error}"}
    os.write(1, ("BENCH_ANSWER " + json.dumps(found) + "\n").encode())
    os._exit(0)  # threads and atexit handlers of what was imported have nothing to say


main()
