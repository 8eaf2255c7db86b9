"""Serves one GGUF file with llama.cpp through `xllamacpp`, in a process and, if wanted, an environment of its own.

    python xllamacpp_server.py '{"model": "m.gguf", "alias": "m", "slots": 4, "context": 2048, "status_file": "ready.json"}'

Nothing but the standard library and `xllamacpp`, and nothing of `bench`: it also runs in the engine's own Python. Once it
serves, it writes `status_file` (renamed into place): address, version, devices. It ends on SIGTERM.
"""

import json
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

FLASH = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def params_of(order: dict[str, Any], engine: Any) -> Any:
    """`CommonParams` as the order says; what it does not name stays as the engine has it."""
    params = engine.CommonParams()
    params.model.path = order["model"]
    params.model_alias = {order["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = order["slots"]
    params.n_ctx = order["context"]
    params.endpoint_metrics = True
    params.ui = False
    params.cache_prompt = order["prompt_cache"]
    if not order["prompt_cache"]:
        params.cache_ram_mib = 0
    for name in ("n_gpu_layers", "n_batch", "n_ubatch"):
        if order.get(name) is not None:
            setattr(params, name, order[name])
    if order.get("threads") is not None:
        params.cpuparams.n_threads = order["threads"]
    if order.get("flash_attn") is not None:
        flash = engine.llama_flash_attn_type
        params.flash_attn_type = getattr(flash, "LLAMA_FLASH_ATTN_TYPE_" + FLASH[order["flash_attn"]])
    for name in ("cache_type_k", "cache_type_v"):
        if order.get(name) is not None:
            setattr(params, name, getattr(engine.ggml_type, "GGML_TYPE_" + order[name].upper()))
    return params


def write_status(path: Path, status: dict[str, Any]) -> None:
    """All of the file or nothing of it: the harness may look at any time."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(status))
    part.replace(path)


def main() -> None:
    """Serve until SIGTERM."""
    order = json.loads(sys.argv[1])
    import xllamacpp

    server = xllamacpp.Server(params_of(order, xllamacpp))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    write_status(
        Path(order["status_file"]),
        {
            "address": server.listening_address,
            "version": version("xllamacpp"),
            "compiler": xllamacpp.BUILD_INFO.get("compiler"),
            "devices": [device["description"] for device in xllamacpp.get_device_info()],
        },
    )
    stop.wait()
    del server


if __name__ == "__main__":
    main()
