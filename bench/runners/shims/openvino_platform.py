"""Tells what an installed OpenVINO finds on this host: run by an engine's own Python. Standard library and that engine only.

The answer is one line of JSON: `build`, and for each of OpenVINO's devices (`CPU`, `GPU`, `GPU.1`, `NPU`) its full name and what
it computes in (`FP32`, `BF16`, ...); or `error`.
"""

from __future__ import annotations

import json
import os


def main() -> None:
    """Answer."""
    try:
        import openvino
        import openvino_genai

        core = openvino.Core()
        found = {
            "build": openvino_genai.__version__,
            "devices": {
                device: {
                    "name": str(core.get_property(device, "FULL_DEVICE_NAME")).strip(),
                    "computes": sorted(core.get_property(device, "OPTIMIZATION_CAPABILITIES")),
                }
                for device in core.available_devices
            },
        }
    except Exception as error:  # noqa: BLE001 - whatever an import of an engine raises is the answer
        found = {"error": f"{type(error).__name__}: {error}"}
    os.write(1, ("BENCH_ANSWER " + json.dumps(found) + "\n").encode())
    os._exit(0)  # threads and atexit handlers of what was imported have nothing to say


main()
