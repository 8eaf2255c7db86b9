"""A scripted Triton: its program, and its OpenAI frontend, over the vLLM backend. Both read the model repository as Triton does.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `dtype` (what vLLM runs in the end) and `backends` (in place of
vLLM's).
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.testing.scripted_engine import SCRIPT, Dialect, Handler, misbehave, say, serve
from tests.runners.dialects.vllm import CONFIG
from tests.runners.flag_files import document, parser_of

VERSION = "2.62.0"
_TABLE = "| server_id                        | triton |\n| server_version                   | {version} |"


class Triton(Dialect):
    """The pages of one of the two frontends."""

    def __init__(self, alias: str, *, kserve: bool, has_vllm_metrics: bool) -> None:
        super().__init__(alias)
        self.kserve = kserve
        self.has_vllm_metrics = has_vllm_metrics

    def pages(self) -> dict[str, Any]:
        if self.kserve:
            return {"/v2/health/ready": None, "/v2": {"name": "triton", "version": VERSION, "extensions": []}}
        listed = {"object": "list", "data": [{"id": self.alias, "object": "model", "owned_by": "Triton Inference Server"}]}
        return {"/health/ready": None, "/v1/models": listed, "/metrics": self.metrics()}

    def metrics(self) -> str:
        label = f'{{model="{self.alias}",version="1"}}'
        lines = {f"nv_inference_request_success{label}": 3, f"nv_inference_pending_request_count{label}": 2}
        if self.has_vllm_metrics:
            lines[f"vllm:prompt_tokens_total{label}"] = self.prompt_tokens
            lines[f"vllm:generation_tokens_total{label}"] = self.generated_tokens
        return "".join(f"{name} {value}\n" for name, value in lines.items())

    def post(self, path: str, body: dict[str, Any]) -> list[Any] | dict[str, Any] | None:
        if not self.kserve:
            return super().post(path, body) if isinstance(body.get("prompt", ""), str) else None
        if path not in (f"/v2/models/{self.alias}/generate", f"/v2/models/{self.alias}/generate_stream"):
            return None
        count = int(body["parameters"]["max_tokens"])
        self.prompt_tokens += len(body["text_input"]) // 4
        self.generated_tokens += count
        events = list(self._events(count))
        return events if path.endswith("_stream") else {**events[-1], "text_output": " token" * count}

    def _events(self, count: int) -> Iterator[dict[str, Any]]:
        for number in range(count):
            reason = "length" if number == count - 1 else ""
            yield {"model_name": self.alias, "text_output": " token", "num_output_tokens": 1, "finish_reason": reason}


def load(repository: Path, name: str) -> bool:
    """As its vLLM backend reads a model; whether it counts for itself. Ends where it can't."""
    config = (repository / name / "config.pbtxt").read_text()
    backend = re.search(r'backend: "(\w+)"', config)
    if backend is None or backend[1] != "vllm":
        return False
    fields = json.loads((repository / name / "1" / "model.json").read_text())
    options = document("vllm-0.32.0")["options"]
    known = {flag[2:].replace("-", "_") for option in options for flag in option.get("flags", ())}
    unknown = set(fields) - known
    if unknown:
        say(f"TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument '{unknown.pop()}'")
        os._exit(1)
    dtype = SCRIPT.get("dtype", fields.get("dtype", "bfloat16"))
    quantization, length = fields.get("quantization"), fields["max_model_len"]
    say(CONFIG.format(pid=1, model=fields["model"], dtype=dtype, length=length, quantization=quantization, alias=name))
    return 'key: "REPORT_CUSTOM_METRICS" value: { string_value: "true" }' in config


def serve_metrics(dialect: Triton, port: int) -> None:
    """On a port of their own."""

    class Page(Handler):
        def do_GET(self) -> None:  # noqa: N802 - http.server's own name
            self._reply(200 if self.path == "/metrics" else 404, dialect.metrics().encode(), "text/plain")

    threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", port), Page).serve_forever, daemon=True).start()


def main() -> None:
    """`tritonserver ...`."""
    args = parser_of(document("tritonserver-5fd6bc48")).parse_args(sys.argv[1:])
    assert args.http_address == args.metrics_address == "127.0.0.1"
    assert args.allow_grpc == "false"
    assert args.model_control_mode == "explicit"
    say(_TABLE.format(version=VERSION))
    counts = load(Path(args.model_repository), args.load_model)
    misbehave()
    dialect = Triton(args.load_model, kserve=True, has_vllm_metrics=counts)
    serve_metrics(dialect, int(args.metrics_port))
    serve(dialect, int(args.http_port))


def main_of_frontend() -> None:
    """`python openai_frontend/main.py ...`."""
    args = parser_of(document("triton-openai-7e31829e")).parse_args(sys.argv[1:])
    assert args.host == "127.0.0.1"
    say(_TABLE.format(version=VERSION))
    repository = Path(args.model_repository)
    (name,) = (folder.name for folder in repository.iterdir())
    counts = load(repository, name)
    say(f"Found model: name='{name}', backend='vllm'")
    misbehave()
    serve(Triton(name, kserve=False, has_vllm_metrics=counts), int(args.openai_port))


def home(folder: Path, python: str, *, version: str | None = VERSION, backends: tuple[str, ...] = ("python", "vllm")) -> str:
    """A folder as NVIDIA's images have it in /opt/tritonserver, whose programs run by `python`."""
    program, frontend = folder / "bin" / "tritonserver", folder / "python/openai/openai_frontend/main.py"
    for path in (program.parent, frontend.parent, *(folder / "backends" / name for name in backends)):
        path.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{python}" -m tests.runners.dialects.triton "$@"\n')
    program.chmod(0o755)
    frontend.write_text("from tests.runners.dialects.triton import main_of_frontend\nmain_of_frontend()\n")
    if version is not None:
        (folder / "TRITON_VERSION").write_text(version + "\n")
    return str(folder)


if __name__ == "__main__":
    main()
