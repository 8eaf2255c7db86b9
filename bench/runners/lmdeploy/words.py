"""What LMDeploy says in its log when it can't start, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "kv_cache",
        "the weights leave too little memory for the KV cache",
        "take more devices, a smaller model or session_len, or set engine_args.cache_max_entry_count",
        r"No enough gpu memory for kv cache",
    ),
    words(
        "gpu_memory",
        "the device has too little free memory for its work space",
        "lower engine_args.cache_max_entry_count or max_prefill_token_num",
        r"No enough gpu memory for runtime",
    ),
    words(
        "module",
        "expert parallelism of its pytorch engine needs DeepEP and DeepGEMM",
        "install both into LMDeploy's environment, or leave ep out",
        r"ep>1 requires install DeepEP",
    ),
    words(
        "module",
        "its kernels for this device (dlinfer) are missing or do not fit",
        "install the dlinfer package of this device, as in pip install dlinfer-ascend",
        r"\bdlinfer\b.{0,200}(No module named|cannot open|undefined symbol)",
        r"No module named '?dlinfer",
    ),
    words(
        "unsupported",
        "it does not support this device or this kind of weights",
        "choose another precision, weights in another format, or backend: pytorch",
        r"no executable data type for this device",
        r"no GEMM kernel family for this component",
        r"Unsupported group_size=",
        r"Unsupported weight quantization method",
        r"unknown model_format",
    ),
    words(
        "environment",
        "its own check of its environment failed",
        "the line below `check failed!` in the log says what is missing",
        r"check failed!",
    ),
)
