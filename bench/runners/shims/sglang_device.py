"""Tells on which device an installed SGLang runs: run by SGLang's own Python.

    python sglang_device.py '{}'

The device is torch's word for what SGLang itself resolves; `hip` says that its CUDA is ROCm. `error` is there instead where
SGLang can't be imported, or finds no device.
"""

from __future__ import annotations

import json
import os


def main() -> None:
    """Answer."""
    try:
        from sglang.srt.utils import get_device
        from torch import version

        found = {"device": str(get_device()).partition(":")[0], "hip": bool(getattr(version, "hip", None))}
    except Exception as error:  # noqa: BLE001 - whatever an import of an engine raises is the answer
        found = {"error": f"{type(error).__name__}: {error}"}
    os.write(1, ("BENCH_ANSWER " + json.dumps(found) + "\n").encode())
    os._exit(0)  # threads and atexit handlers of what was imported have nothing to say


main()
