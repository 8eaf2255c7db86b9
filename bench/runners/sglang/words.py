"""What SGLang says in its log when it can't start, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "port",
        "a port beside its own was taken by another process",
        "run it again: other free ports are chosen",
        r"Port is already in use\.",
    ),
    words(
        "kv_cache",
        "the weights leave too little memory for the KV cache",
        "raise engine_args.mem_fraction_static, or take more devices or a smaller model",
        r"leave no GPU memory for the KV cache",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
    ),
    words(
        "gpu_memory",
        "the device has too little free memory to capture its CUDA graphs",
        "lower engine_args.mem_fraction_static or cuda_graph_max_bs",
        r"Capture cuda graph failed.{0,80}out of memory",
    ),
    words(
        "context",
        "the cases need more context than the model has",
        "shorten input_tokens and output_tokens",
        r"context_length .{0,40}is greater than the derived context_length",
    ),
    words(
        "driver",
        "sglang finds no device that its build can use",
        "run `bench doctor`; on a CPU set SGLANG_USE_CPU_ENGINE=1",
        r"No accelerator \(CUDA, XPU",
    ),
    words(
        "unsupported",
        "it does not support this quantisation or this device",
        "choose another precision, or weights in another format",
        r"Unknown quantization method",
        r"quantization is currently not\s+supported",
        r"is not supported for the current GPU",
        r"does not match the quantization\s+method specified",
        r"SGLang only supports sm75 and above",
    ),
)
