"""MindIE on Ascend boards: writes its configuration, then starts its daemon."""

from __future__ import annotations

import json
import re

from bench.errors import UsageError
from bench.ports import StartRequest
from bench.records import Case, LocalModel
from bench.runners.arguments import check_arguments
from bench.runners.checkpoint import Checkpoint, read_checkpoint
from bench.runners.containers.place import refuse_container
from bench.runners.counters import prometheus_counters
from bench.runners.first_token import completion
from bench.runners.launched import LaunchedEngine
from bench.runners.metric_names import MINDIE
from bench.runners.mindie.config import MENU, config_of, served_name
from bench.runners.mindie.daemon import ARGUMENTS, HOME_VARIABLE, NAME, MindIE, find_mindie
from bench.runners.mindie.words import WORDS
from bench.runners.parallel import check_parallel, check_placement
from bench.runners.process import stopped_on_error
from bench.runners.served import first_served, version_at
from bench.runners.serving import Habits, Launch, ReadBack, Serving, hand_over, inherited, serve, visible
from bench.runners.weights import check_as_stored, safetensors_of

CONFIG_VARIABLE = "MIES_CONFIG_JSON_PATH"
_FILE = "mindie.json"
_FILE_MODE = 0o640
"""It refuses a file that others may read."""
_LONGEST_VARIABLE = 255
HABITS = Habits(name=NAME, health="/v2/health/ready", question=completion, words=WORDS)


class MindIERunner:
    """Serves a folder of safetensors with MindIE on 127.0.0.1."""

    name = NAME
    reads = ("safetensors",)

    def check(self, case: Case) -> None:
        check_arguments(self.name, case.engine_args, ARGUMENTS)
        check_parallel(self.name, case, ("tp", "dp", "ep"))
        refuse_container(case, "run bench in MindIE's own container, or start that yourself and take engine: openai")
        MENU.check(case.precision)
        find_mindie(case.engine_args)

    def about(self, case: Case) -> str:
        return find_mindie(case.engine_args).program

    def start(self, request: StartRequest) -> LaunchedEngine:
        self.check(request.case)
        check_placement(request.case, request.placement)
        model = safetensors_of(request)
        found = find_mindie(request.case.engine_args)
        weights = read_checkpoint(model.path)
        check_as_stored(MENU, request.case.precision, weights)

        def launch(port: int) -> Launch:
            write_config(found, request, model, port)
            return self.launch_for(request, port)

        serving = serve(request, HABITS, launch, served_name(model))
        with stopped_on_error(serving.process):
            told_back = _read_back(request, model, weights, serving)
            return hand_over(request, serving, told_back, prometheus_counters(serving.base_url, MINDIE))

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: UsageError, EngineMissing."""
        del port  # it is in the configuration
        return launch_of(find_mindie(request.case.engine_args), request)


def write_config(found: MindIE, request: StartRequest, model: LocalModel, port: int) -> None:
    """The configuration file, in the work folder, as MindIE takes it."""
    path = request.work_dir / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config_of(found.template, request.cases, model, port), indent=1), encoding="utf-8")
    path.chmod(_FILE_MODE)


def launch_of(found: MindIE, request: StartRequest) -> Launch:
    """The exact command line and environment. Raises: UsageError (a work folder with too long a name)."""
    path = str((request.work_dir / _FILE).absolute())
    if len(path) > _LONGEST_VARIABLE:
        raise UsageError(
            f"mindie reads paths of up to {_LONGEST_VARIABLE} characters: {path}", hint="use a shorter results folder"
        )
    env = {
        **visible(request),
        CONFIG_VARIABLE: path,
        **dict.fromkeys(("MIES_CONTAINER_IP", "MIES_CONTAINER_MANAGEMENT_IP"), "127.0.0.1"),  # they overrule the file
        "MIES_SERVICE_MONITOR_MODE": "1",  # without it there are no counters
        **dict.fromkeys(("MINDIE_LOG_TO_STDOUT", "MINDIE_LLM_LOG_TO_STDOUT"), "1"),
    }
    return Launch(argv=(found.program,), env=env | ({HOME_VARIABLE: found.home} if found.home else {}))


def _read_back(request: StartRequest, model: LocalModel, weights: Checkpoint, serving: Serving) -> ReadBack:
    log = serving.process.log_tail(4000)
    model_told = first_served(serving.base_url)
    in_log = re.search(r"/mindie/([\d.]+\w*)/", log)
    return ReadBack(
        version=version_at(serving.base_url + "/v2") or (in_log[1] if in_log else None),
        build=None,
        precision=None,  # nothing that it says tells it
        model=model_told.name if model_told else served_name(model),
        vocab_size=None,  # prompts go as text
        settings={
            **(model_told.settings() if model_told else {}),
            **({"weights": weights.precision} if weights.precision else {}),
            "config": (request.work_dir / _FILE).read_text(encoding="utf-8"),
            **inherited(("MIES_", "MINDIE_", "ATB_", "HCCL_", "NPU_MEMORY_FRACTION", "TASK_QUEUE_ENABLE")),
        },
    )
