"""Plain words for real last words."""

from __future__ import annotations

import signal

import pytest

from bench.runners.diagnosis import describe_exit, diagnose

# What engines really print: llama.cpp, xllamacpp, vLLM, SGLang, torch, the dynamic linker, Python.
SAID = [
    ("port", "0.00.002.056 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 60077"),
    ("port", "OSError: [Errno 98] Address already in use"),
    ("port", "[Errno 48] error while attempting to bind on address ('127.0.0.1', 8000): address already in use"),
    ("gpu_memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    (
        "gpu_memory",
        "ggml_backend_cuda_buffer_type_alloc: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
    ),
    ("gpu_memory", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."),
    ("memory", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("memory", "alloc_tensor_range: failed to allocate CPU buffer of size 99999999999"),
    ("memory", "mmap failed: Cannot allocate memory"),
    ("memory", "MemoryError"),
    ("driver", "RuntimeError: Found no NVIDIA driver on your system."),
    ("driver_mismatch", "CUDA driver version is insufficient for CUDA runtime version"),
    ("driver_mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
    ("driver_mismatch", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."),
    (
        "driver_mismatch",
        "RuntimeError: Unexpected error. Error 804: forward compatibility was attempted on non supported HW",
    ),
    ("gated", "huggingface_hub.errors.GatedRepoError: 401 Client Error."),
    ("gated", "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/x/y."),
    ("gated", "Access to model meta-llama/Llama-2-7b-hf is restricted and you are not in the authorized list."),
    (
        "collective",
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600029 milliseconds",
    ),
    ("collective", "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2051, unhandled system error"),
    ("collective", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
    ("collective", "EI0006: 2026-01-01-00:00:00 Getting socket times out. Reason: Remote Rank did not send the data in time."),
    ("collective", "[ERROR] HCCL(1234,python): [Wait][Group]group has been destroyed: wait timeout"),
    ("gpu_memory", "NCCL WARN Cuda failure 2 'out of memory'\ntorch.OutOfMemoryError: CUDA out of memory."),
    (
        "library",
        "llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file: No such file",
    ),
    ("library", "/lib/libc.so.6: version `GLIBC_2.38' not found (required by ./llama-server)"),
    ("module", "ModuleNotFoundError: No module named 'xllamacpp'"),
    ("module", "/usr/bin/python3: No module named bench"),
    ("unsupported", "llama_model_load: error loading model: unknown model architecture: 'future'"),
    ("unsupported", "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0."),
    ("unsupported", "CUDA error: no kernel image is available for execution on the device"),
    ("model_missing", "E gguf_init_from_file: failed to open GGUF file '/tmp/nope.gguf' (No such file or directory)"),
    ("model_missing", "OSError: /models/x does not appear to have a file named config.json: not found"),
    ("model_corrupt", "E gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'"),
    ("model_corrupt", "tensor 'blk.16.ffn_down.weight' data is not within the file bounds, model is corrupted or incomplete"),
    ("model_corrupt", "E gguf_init_from_reader: bad GGUF version: 0"),
    ("model_corrupt", "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
    ("disk", "OSError: [Errno 28] No space left on device"),
    ("permission", "PermissionError: [Errno 13] Permission denied: '/dev/kfd'"),
    ("arguments", "error: unrecognized arguments: --no-such-flag"),
    ("arguments", "error: invalid argument: --no-such-flag"),
    ("arguments", "usage: vllm serve [-h]"),
]


@pytest.mark.parametrize(("kind", "line"), SAID)
def test_last_words_are_understood(kind: str, line: str) -> None:
    found = diagnose(f"starting\n{line}\nRuntimeError: Failed to init server, please check the input params.\n", 1)
    assert found is not None
    assert found.kind == kind
    assert found.cause
    assert found.hint


@pytest.mark.parametrize(
    "log", ["", "main: server is listening on http://127.0.0.1:8080\n", "loading weights 3/4\nwarning: deprecated flag\n"]
)
def test_ordinary_words_are_no_cause(log: str) -> None:
    assert diagnose(log, 1) is None
    assert diagnose(log, None) is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (signal.SIGKILL, "killed"),
        (signal.SIGILL, "illegal_instruction"),
        (signal.SIGSEGV, "crash"),
        (signal.SIGABRT, "crash"),
        (signal.SIGBUS, "crash"),
    ],
)
def test_signals_have_causes(number: signal.Signals, kind: str) -> None:
    found = diagnose("all is well", -number)
    assert found is not None
    assert found.kind == kind


def test_a_kill_from_outside_is_not_blamed_on_older_words() -> None:
    found = diagnose("warning: permission denied for huge pages", -signal.SIGKILL)
    assert found is not None
    assert found.kind == "killed"


def test_a_crash_is_explained_by_its_log_where_that_says_more() -> None:
    found = diagnose("ggml: failed to allocate buffer\nGGML_ASSERT", -signal.SIGABRT)
    assert found is not None
    assert found.kind == "memory"


def test_an_unknown_signal_has_no_cause() -> None:
    assert diagnose("", -signal.SIGUSR1) is None


@pytest.mark.parametrize(
    ("status", "words"), [(0, "exit status 0"), (3, "exit status 3"), (-9, "signal 9 (SIGKILL)"), (-250, "signal 250")]
)
def test_exits_are_described(status: int, words: str) -> None:
    assert describe_exit(status) == words
