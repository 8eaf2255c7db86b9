"""What vLLM says in its log when it can't start, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "kv_cache",
        "the KV cache does not hold one request of the length that the cases need",
        "shorten the lengths, or set engine_args.max_model_len, gpu_memory_utilization or kv_cache_dtype",
        r"KV cache is needed, which is larger than the available",
        r"max seq len .{0,40}is larger than the maximum number of tokens that can be stored in KV cache",
    ),
    words(
        "context",
        "the cases need more context than the model has",
        "shorten input_tokens and output_tokens",
        r"User-specified max_model_len .{0,80}is greater than the derived max_model_len",
    ),
    words(
        "memory",
        "the host has too little free memory for what is asked for",
        "free some memory, or lower VLLM_CPU_KVCACHE_SPACE or engine_args.gpu_memory_utilization",
        r"on kv cache\s+allocation is less than requested memory",
        r"is less than desired CPU memory utilization",
    ),
    words(
        "driver",
        "vllm finds no device that its build can use",
        "run `bench doctor --engine vllm`",
        r"Failed to infer device type",
        r"UnspecifiedPlatform",
    ),
    words(
        "module",
        "its torchvision, torchaudio or torchcodec does not fit its torch",
        "pip uninstall -y torchvision torchaudio torchcodec in vllm's environment: no text model needs them",
        r"operator torchvision::nms does not exist",
        r"(torchvision|torchaudio|torchcodec).{0,120}(undefined symbol|cannot open shared object|could not load)",
    ),
    words(
        "arguments",
        "the command `vllm` of this build asks for a package named vllm",
        "start it with `python -m vllm.entrypoints.openai.api_server`, as bench does for vllm-cpu",
        r"No package metadata was found for vllm\b",
    ),
    words(
        "unsupported",
        "it does not support this quantisation on this device",
        "choose another precision, or weights in another format",
        r"quantization is currently not supported in",
        r"Unknown quantization method",
        r"quantization method .{0,60}is not supported",
    ),
    words(
        "model_missing",
        "there are no weights where it was told to look",
        "check the path, or pull the model again with `bench models pull`",
        r"Repo id must be in the form",
    ),
)
