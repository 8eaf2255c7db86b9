"""Where MindIE is installed: its daemon, and the configuration that came with it, of which ours is a copy with changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import EngineMissing, UsageError
from bench.records import Scalar
from bench.runners.arguments import Argument

NAME = "mindie"
HOME_VARIABLE = "MIES_INSTALL_PATH"
_DAEMON = "bin/mindieservice_daemon"
_ON_PATH = ("mindie_llm_server", "mindieservice_daemon")
_USUAL_HOME = "/usr/local/Ascend/mindie/latest/mindie-service"
INSTALL = (
    "run bench in Huawei's MindIE container, with its set_env.sh sourced; "
    f"or give engine_args.install_path (also {HOME_VARIABLE}), the folder that has {_DAEMON} and conf/config.json"
)
ARGUMENTS = {
    "install_path": Argument(kind="text", about="the folder that has bin/mindieservice_daemon and conf/config.json"),
    "config": Argument(kind="text", about="a config.json to begin with, in place of the installed one"),
    "max_seq_len": Argument(kind="int", low=1, about="tokens of a request, input and output"),
    "max_batch_size": Argument(kind="int", low=1, about="requests that decode at a time"),
    "max_prefill_batch_size": Argument(kind="int", low=1, about="requests that prefill at a time"),
    "max_prefill_tokens": Argument(kind="int", low=1, about="tokens of one prefill"),
    "cache_block_size": Argument(kind="int", low=1, about="tokens of a block of the KV cache"),
    "npu_mem_size": Argument(kind="int", low=-1, about="the KV cache of a board [GB]; -1: what is free"),
    "prefix_cache": Argument(kind="bool", about="reuse the KV cache between prompts"),
    "trust_remote_code": Argument(kind="bool", about="run Python code that comes with the weights"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MindIE:
    """An installed MindIE: the `program` to start, its `home` where it has one, and its configuration as it came."""

    program: str
    home: str | None
    template: dict[str, Any]


def find_mindie(args: Mapping[str, Scalar]) -> MindIE:
    """The MindIE of `engine_args`: `install_path`, else the variable, else PATH, else where its installer puts it.

    Raises: EngineMissing, UsageError (a configuration that can't be read).
    """
    named = str(args.get("install_path") or os.environ.get(HOME_VARIABLE) or "")
    on_path = next((found for name in _ON_PATH if (found := shutil.which(name))), None)
    home = Path(named or _USUAL_HOME)
    program = home / _DAEMON
    if os.access(program, os.X_OK):
        return MindIE(program=str(program), home=str(home), template=_template(args.get("config"), home))
    if named or on_path is None:
        raise EngineMissing(f"mindie was not found: no program {program}", hint=INSTALL)
    beside = Path(on_path).resolve().parent.parent
    return MindIE(program=on_path, home=None, template=_template(args.get("config"), beside))


def _template(named: Scalar, home: Path) -> dict[str, Any]:
    path = Path(str(named)) if named else home / "conf" / "config.json"
    hint = "give the path of MindIE's own conf/config.json in engine_args.config"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineMissing(f"mindie's configuration {path} can't be read: {error.strerror}", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"mindie's configuration {path} is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict) or not {"ServerConfig", "BackendConfig"} <= found.keys():
        raise UsageError(f"{path} is no configuration of mindie's: it has no ServerConfig and BackendConfig", hint=hint)
    return found
