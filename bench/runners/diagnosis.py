"""Plain words for why an engine ended, from its exit status and its own last words. Pure.

What any engine may say is here; what only one engine says stands in a table of its own beside its runner, and is looked at first.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A likely cause and the next step. `kind` is for code: `port` is worth another try with another port. `by_own_hand`: an
    engine that says so then kills itself.
    """

    kind: str
    cause: str
    hint: str
    by_own_hand: bool = False


Words = tuple[Diagnosis, re.Pattern[str]]


def words(kind: str, cause: str, hint: str, *any_of: str) -> Words:
    """A row of a table: what to tell where one of the patterns is found in a log (any case, `^` at each line)."""
    pattern = re.compile("|".join(f"(?:{one})" for one in any_of), re.IGNORECASE | re.MULTILINE)
    return Diagnosis(kind=kind, cause=cause, hint=hint), pattern


# The first match wins, so what is specific stands before what is general.
_WORDS = (
    words(
        "port",
        "the port was taken by another process",
        "run it again: another free port is chosen",
        r"address already in use",
        r"couldn't bind HTTP server socket",
        r"EADDRINUSE",
        r"errno 98\b",
        r"port \d+ is (already )?in use",
    ),
    words(
        "gpu_memory",
        "the device has too little free memory",
        "take a smaller model, batch size or context, or free the device (see `bench devices`)",
        r"\b(CUDA|HIP|NPU|device|GPU)\b.{0,40}out of memory",
        r"cudaMalloc failed",
        r"ErrorOutOfDeviceMemory",
        r"No available memory for the cache",
        r"less than desired GPU memory utilization",
    ),
    words(
        "memory",
        "it could not get the memory that it wanted",
        "take a smaller model, batch size or context, or close other programs",
        r"std::bad_alloc",
        r"failed to allocate",
        r"cannot allocate memory",
        r"\bMemoryError\b",
        r"unable to allocate",
        r"\bout of memory\b",
        r"failed to create (llama_)?context",
    ),
    words(
        "gated",
        "the model's files may not be read without its licence accepted, or without a token",
        "accept the licence on the model's page, export HF_TOKEN, and pull it with `bench models pull`",
        r"GatedRepoError",
        r"Access to model .{0,120}is restricted",
        r"You are trying to access a gated repo",
    ),
    words(
        "driver_mismatch",
        "the device's driver and the libraries of the engine do not fit each other",
        "reboot after a driver update, or install the engine's build for this driver (`bench doctor`)",
        r"driver/library version mismatch",
        r"CUDA driver version is insufficient for CUDA runtime version",
        r"The NVIDIA driver on your system is too old",
        r"forward compatibility was attempted on non supported HW",
        r"driver version .{0,60}(does not match|is not compatible)",
    ),
    words(
        "collective",
        "the ranks did not find each other, or one of them hangs",
        "look at the first rank that failed; check the links with the vendor's tool, /dev/shm, and that no firewall is between",
        r"Watchdog caught collective operation timeout",
        r"\bNCCL (error|WARN .{0,80}(timeout|timed out))",
        r"ncclSystemError|ncclInternalError|ncclRemoteError|ncclUnhandledCudaError",
        r"\bHCCL\b.{0,120}(time ?out|timed out|fail)",
        r"\bEI0002\b|\bEI0006\b",
        r"(DistStoreError|TCPStore).{0,120}(Timed out|timeout)",
    ),
    words(
        "driver",
        "the device's driver is missing",
        "run `bench doctor`, which says what is missing",
        r"no (CUDA|ROCm|HIP)-capable",
        r"libcuda\.so",
        r"Found no NVIDIA driver",
        r"hipErrorNoDevice",
        r"failed to initialize (CUDA|NVML)",
    ),
    words(
        "library",
        "a shared library that it needs is missing",
        "install the library named in the log, or reinstall the engine for this system",
        r"error while loading shared libraries",
        r"cannot open shared object file",
        r"Library not loaded",
        r"version `\S+' not found",
    ),
    words(
        "module",
        "a Python package that it needs is missing",
        "install the package named in the log into the engine's environment",
        r"\b(ModuleNotFoundError|ImportError): ",
        r"No module named",
    ),
    words(
        "unsupported",
        "it does not support this model, precision or device",
        "try another precision or a newer version of the engine",
        r"unknown model architecture",
        r"Model architectures? .{0,80}not supported",
        r"unsupported (model|arch|dtype|quant)",
        r"does not support (bfloat16|bf16|fp8|float8)",
        r"Bfloat16 is only supported",
        r"no kernel image is available",
        r"(dtype|quantization).{0,60}not supported",
    ),
    words(
        "model_missing",
        "the model file is not where it was told to look",
        "check the path, or pull the model again with `bench models pull`",
        r"(failed to open GGUF|model|\.gguf|\.safetensors|config\.json).{0,200}(No such file|does not exist|not found)",
    ),
    words(
        "model_corrupt",
        "the model file is damaged, or of a kind that it can't read",
        "pull the model again with `bench models pull`",
        r"invalid magic",
        r"bad GGUF",
        r"not within the file bounds",
        r"corrupted or incomplete",
        r"HeaderTooLarge",
        r"MetadataIncompleteBuffer",
        r"failed to read (header|key|magic)",
        r"failed to load model",
    ),
    words("disk", "the disk is full", "free some space and run it again", r"no space left on device", r"ENOSPC"),
    words("permission", "it lacks a permission", "the log says what it was refused", r"permission denied", r"\bEACCES\b"),
    words(
        "arguments",
        "it did not understand its arguments",
        "compare `engine_args` with what this version of the engine accepts",
        r"unrecognized arguments?",
        r"(unknown|invalid) (argument|option)",
        r"^usage:",
        r"No such option",
    ),
)

_SIGNALS = {
    signal.SIGKILL: Diagnosis(
        kind="killed",
        cause="something killed it: often the kernel's out-of-memory killer",
        hint="look at `dmesg`, and take a smaller model, batch size or context",
    ),
    signal.SIGILL: Diagnosis(
        kind="illegal_instruction",
        cause="it was built for a newer processor than this one",
        hint="install a build of the engine for this processor",
    ),
    signal.SIGSEGV: Diagnosis(
        kind="crash",
        cause="it crashed (bad memory access)",
        hint="try another version of the engine, and report the log to its authors",
    ),
    signal.SIGABRT: Diagnosis(
        kind="crash", cause="it gave up on a failed check of its own", hint="the check is among the last lines of the log"
    ),
    signal.SIGBUS: Diagnosis(
        kind="crash",
        cause="it lost memory it was reading: a model file cut short, or a full /dev/shm",
        hint="pull the model again, or give the container a larger --shm-size",
    ),
}


def diagnose(log: str, status: int | None, own: Sequence[Words] = ()) -> Diagnosis | None:
    """The likely cause, from the log first (it is the more exact), then from the signal (`status` < 0); None if unknown. `own` is
    the engine's own table, looked at before that of all.
    """
    from_log = next((found for found, pattern in (*own, *_WORDS) if pattern.search(log)), None)
    by_signal = None
    if status is not None and status < 0 and -status in _SIGNALS:
        by_signal = _SIGNALS[signal.Signals(-status)]
    # SIGKILL and SIGILL come from outside: older words in the log are not their cause
    from_outside = by_signal is not None and by_signal.kind in ("killed", "illegal_instruction")
    if from_outside and not (from_log and from_log.by_own_hand):
        return by_signal
    return from_log or by_signal


def describe_exit(status: int) -> str:
    """`exit status 1`, or `signal 9 (SIGKILL)` for a negative status."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
    return f"signal {-status} ({name})"
