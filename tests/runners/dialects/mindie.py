"""A scripted MindIE: reads its configuration as the daemon does, with its pages, its metrics, its log.

The configuration that it is installed with (`mindie_config.json`) has the sections and the defaults of the one in MindIE-LLM.
Like the daemon it refuses a file that others may read, and kills itself with SIGKILL after it has said that it can't start.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from pathlib import Path
from typing import Any

from bench.testing.scripted_engine import Dialect, misbehave, say, serve

TEMPLATE = Path(__file__).with_name("mindie_config.json")
_NAME = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)


class MindIE(Dialect):
    """MindIE's endpoint, with all pages on one port."""

    def pages(self) -> dict[str, Any]:
        label = f'{{model_name="{self.alias}"}}'
        metrics = {
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generated_tokens,
            "num_requests_running": 1,
            "num_requests_waiting": 2,
            "num_preemptions_total": 0,
            "npu_cache_usage_perc": 30,
        }
        pages: dict[str, Any] = {
            "/v2/health/ready": None,
            "/v2": {"name": "MindIE Server", "version": "2.3.0", "extensions": {"max_iter_times": 512}},
            "/v1/models": {"object": "list", "data": [{"id": self.alias, "object": "model", "owned_by": "MindIE Server"}]},
        }
        if os.environ.get("MIES_SERVICE_MONITOR_MODE") == "1":
            pages["/metrics"] = "".join(f"# TYPE {name} gauge\n{name}{label} {float(value)}\n" for name, value in metrics.items())
        return pages

    def post(self, path: str, body: dict[str, Any]) -> list[Any] | dict[str, Any] | None:
        return super().post(path, body) if isinstance(body.get("prompt", ""), str) else None


def problem_of(document: dict[str, Any]) -> str | None:
    """What the daemon would not take."""
    server, backend = document["ServerConfig"], document["BackendConfig"]
    model, schedule = backend["ModelDeployConfig"]["ModelConfig"][0], backend["ScheduleConfig"]
    boards = backend["npuDeviceIds"]
    checks = {
        "httpsEnabled": server["httpsEnabled"] is False,  # there are no certificates here
        "ipAddress": server["ipAddress"] == server["managementIpAddress"] == "127.0.0.1",
        "port": server["port"] == server["managementPort"] == server["metricsPort"] and 1024 <= server["port"] <= 65535,
        "npuDeviceIds": len(boards) == 1 and len(set(boards[0])) == model["worldSize"],
        "modelName": _NAME.fullmatch(model["modelName"]) is not None,
        "tp": model.get("tp", model["worldSize"]) * model.get("dp", 1) == model["worldSize"],
        "moe_ep": model.get("moe_ep", 1) * model.get("moe_tp", model["worldSize"]) == model["worldSize"],
        "maxPrefillTokens": schedule["maxPrefillTokens"] >= backend["ModelDeployConfig"]["maxInputTokenLen"],
        "npuMemSize": model["npuMemSize"] == -1 or model["npuMemSize"] > 0,
    }
    return next((name for name, fine in checks.items() if not fine), None)


def refuse(why: str) -> None:
    """As the daemon ends where it can't start."""
    say(why)
    say("Failed to init endpoint! Please check the service log or console output.")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """`mindieservice_daemon`."""
    assert not sys.argv[1:]
    path = Path(os.environ["MIES_CONFIG_JSON_PATH"])
    if stat.S_IMODE(path.stat().st_mode) & ~0o640:
        refuse(f"The file {path} permission should be no more than 0640")
    document = json.loads(path.read_text())
    if (problem := problem_of(document)) is not None:
        refuse(f"parameter {problem} is invalid")
    misbehave()
    say("Daemon start success!")
    name = document["BackendConfig"]["ModelDeployConfig"]["ModelConfig"][0]["modelName"]
    serve(MindIE(name), document["ServerConfig"]["port"])


if __name__ == "__main__":
    main()
