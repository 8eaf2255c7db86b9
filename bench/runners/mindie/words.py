"""What MindIE says in its log when it can't start, and what to do about it. It then kills itself with SIGKILL."""

from __future__ import annotations

from dataclasses import replace

from bench.runners.diagnosis import words

_ROWS = (
    words(
        "port",
        "the port was taken by another process",
        "run it again: another free port is chosen",
        r"address already in use",
        r"port.{0,40}(is occupied|already in use)",
    ),
    words(
        "gpu_memory",
        "the boards have too little free memory",
        "take more devices or shorter lengths, lower engine_args.max_prefill_tokens, or set NPU_MEMORY_FRACTION",
        r"NPU out of memory",
        r"npuMemSize.{0,80}(too small|not enough|insufficient)",
    ),
    words(
        "library",
        "its libraries are not in the environment",
        "source MindIE's set_env.sh (and those of CANN, nnal/atb and atb-models) before bench",
        r"error while loading shared libraries",
        r"cannot open shared object file",
    ),
    words(
        "permission",
        "it refuses files with too wide permissions, or of another owner",
        "chmod -R o-rwx the weights, give them to the user who runs bench, or set MINDIE_CHECK_INPUTFILES_PERMISSION=0",
        r"permission.{0,80}(not|should|must|invalid|denied)",
        r"owner.{0,40}(not|differ|inconsistent)",
    ),
    words(
        "arguments",
        "it can't start with this configuration",
        "the lines before it in the log name the parameter; the configuration is mindie.json in the run's work folder",
        r"Failed to init endpoint!",
        r"Init(ialize)? config.{0,40}fail",
    ),
)
WORDS = tuple((replace(found, by_own_hand=True), pattern) for found, pattern in _ROWS)
