"""A scripted TensorRT-LLM: its click command (the options that its source declares), its pages, its metrics, its log.

Besides what any scripted engine does, `SCRIPTED_ENGINE` may say `quant_algo` (what the checkpoint was quantised to).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import yaml

from bench.testing.scripted_engine import SCRIPT, Dialect, misbehave, say, serve
from tests.runners.flag_files import document


class TensorRTLLM(Dialect):
    """`trtllm-serve`. Its Prometheus page is there only where its options file says so."""

    def __init__(self, alias: str, options: dict[str, Any]) -> None:
        super().__init__(alias)
        self.options = options

    def pages(self) -> dict[str, Any]:
        label = '{engine_type="trtllm",model_name="tiny"}'
        metrics = {
            "trtllm_prompt_tokens_total": self.prompt_tokens,
            "trtllm_generation_tokens_total": self.generated_tokens,
            "trtllm_prompt_cached_tokens_total": 0,
        }
        pages: dict[str, Any] = {
            "/health": None,
            "/version": {"version": "1.2.1"},
            "/v1/models": {"object": "list", "data": [{"id": self.alias, "object": "model", "owned_by": "tensorrt_llm"}]},
            "/metrics": [],
        }
        if self.options.get("return_perf_metrics"):
            pages["/prometheus/metrics"] = "".join(f"{name}{label} {float(value)}\n" for name, value in metrics.items())
        return pages


def command(sample: dict[str, Any]) -> click.Group:
    """`trtllm-serve`, whose subcommand `serve` has the options of a sample."""
    parameters: list[click.Parameter] = []
    for option in sample["options"]:
        if "positional" in option:
            parameters.append(click.Argument([option["positional"]]))
        else:
            kind = click.Choice(option["choices"]) if option["choices"] else None
            parameters.append(click.Option(option["flags"], is_flag=option["nargs"] == 0, type=kind))
    return click.Group(commands={"serve": click.Command("serve", params=parameters, callback=run)})


def run(**values: Any) -> None:
    """Serve the model under the name of its folder."""
    options = yaml.safe_load(Path(values["config"]).read_text())
    if "quant_algo" in SCRIPT:
        say(f"[11/30/2026-20:34:58] [TRT-LLM] [I] Setting quant_algo={SCRIPT['quant_algo']} form HF quant config.")
    misbehave()
    serve(TensorRTLLM(Path(values["model"]).name, options), int(values["port"]))


def main() -> None:
    """`trtllm-serve serve MODEL ...`."""
    command(document(SCRIPT.get("flags", "tensorrt-llm-00209af1"))).main(sys.argv[1:])


MODULES = {"tensorrt_llm.commands.serve": "from tests.runners.dialects.tensorrt_llm import main\nmain()\n"}
