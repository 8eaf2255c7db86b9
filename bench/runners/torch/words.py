"""What torch, transformers and our server say in the log when a model can't be run, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "context",
        "the cases need more context than the model has",
        "shorten input_tokens and output_tokens",
        r"torch_server: the cases need a context of",
    ),
    words(
        "unsupported",
        "requests of this model can't be stepped as rows of one batch",
        "run this model with another engine, as vllm",
        r"torch_server: unsupported model",
    ),
    words(
        "unsupported",
        "this version of transformers does not know the model",
        "install a newer transformers into the engine's environment",
        r"does not recognize this architecture",
        r"Unrecognized configuration class",
        r"requires you to execute the (configuration|modeling) file",
    ),
    words(
        "unsupported",
        "this attention can't be had for the model, the device or the packages that are there",
        "leave engine_args.attention out, or write eager or sdpa",
        r"FlashAttention.{0,20} (has been toggled on|only support)",
        r"does not support an attention implementation",
        r"attn_implementation",
    ),
    words(
        "module",
        "the package that reads this quantised format is missing",
        "install the package named in the log into the engine's environment",
        r"Loading an? \S+ quantized model requires",
        r"Using `bitsandbytes`.{0,60}requires",
        r"`?compressed.tensors`? .{0,60}(requires|install)",
    ),
    words(
        "gpu_memory",
        "the device has too little free memory",
        "take a smaller model, batch size or context, or lower engine_args.prefill_tokens",
        r"torch\.(cuda\.|npu\.|mlu\.|musa\.|xpu\.)?OutOfMemoryError",
        r"(MPS|XPU|MUSA|MLU) (backend )?out of memory",
    ),
    words(
        "driver",
        "torch can't use the device",
        "run `bench doctor --engine torch`",
        r"Torch not compiled with CUDA enabled",
        r"PyTorch is not linked with support for \S+ devices",
    ),
    words(
        "model_missing",
        "there are no weights that it can load where it was told to look",
        "check the path, or pull the model again with `bench models pull`",
        r"Error no file named .{0,80} found in directory",
        r"is not a local folder",
        r"Repo id must be in the form",
    ),
)
