"""What each engine calls the project's counters in its Prometheus text. One table an engine.

Sources: the engines' own metrics modules (vLLM `v1/metrics/loggers.py`, SGLang `observability/metrics_collector.py`, LMDeploy
`metrics/loggers.py`, TensorRT-LLM `metrics/collector.py`, Triton's backends `utils/metrics.py` and `custom_metrics_reporter.cc`,
MindIE `prometheus_metrics.cpp`, llama.cpp `tools/server`), and what running ones answered.
"""

from __future__ import annotations

from collections.abc import Mapping

Names = Mapping[str, tuple[str, ...]]
"""The project's name to the engine's names, newest first: the first that is there counts. `a + b` adds two of them, where the
second may be missing; `a & b` is `a` on a page that also has `b`;
`a{label=value}` is those of `a` with that label.
"""
SHARES = frozenset({"kv_cache_util"})
"""Counters in [0, 1], which are averaged over ranks; all others are added up."""

VLLM: Names = {
    "prompt_tokens_total": ("vllm:prompt_tokens_total",),
    "prompt_tokens_cached_total": (
        "vllm:prompt_tokens_cached_total",
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
    ),
    "generation_tokens_total": ("vllm:generation_tokens_total",),
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
    "preemptions_total": ("vllm:num_preemptions_total",),
    "kv_cache_util": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
SGLANG: Names = {
    "prompt_tokens_total": ("sglang:prompt_tokens_total",),
    "prompt_tokens_cached_total": ("sglang:cached_tokens_total",),
    "generation_tokens_total": ("sglang:generation_tokens_total",),
    "requests_running": ("sglang:num_running_reqs",),
    "requests_waiting": ("sglang:num_queue_reqs",),
    "preemptions_total": ("sglang:num_retracted_requests_total",),
    "kv_cache_util": ("sglang:token_usage",),
}
LMDEPLOY: Names = {
    "prompt_tokens_total": ("lmdeploy:prompt_tokens_total",),
    "prompt_tokens_cached_total": ("lmdeploy:cached_tokens_total",),
    "generation_tokens_total": ("lmdeploy:generation_tokens_total",),
    "requests_running": ("lmdeploy:num_requests_running",),
    "requests_waiting": ("lmdeploy:num_requests_waiting + lmdeploy:num_api_requests_waiting",),
    "kv_cache_util": ("lmdeploy:gpu_cache_usage_perc",),
}
TENSORRT_LLM: Names = {
    "prompt_tokens_total": ("trtllm_prompt_tokens_total",),
    "prompt_tokens_cached_total": ("trtllm_prompt_cached_tokens_total",),
    "generation_tokens_total": ("trtllm_generation_tokens_total",),
    "requests_running": ("trtllm_num_requests_running",),
    "requests_waiting": ("trtllm_num_requests_waiting",),
    "kv_cache_util": ("trtllm_kv_cache_utilization",),
}
_OF_TRITON = {
    "requests_running": ("nv_trt_llm_request_metrics{request_type=scheduled}",),
    "requests_waiting": ("nv_trt_llm_request_metrics{request_type=waiting}", "nv_inference_pending_request_count"),
    "kv_cache_util": ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",),
}
TRITON: Names = {name: (*sources, *_OF_TRITON.get(name, ())) for name, sources in VLLM.items()}
"""On its page its backends have their own names, vLLM's and TensorRT-LLM's, beside what Triton counts itself."""
_OF_MINDIE = " & npu_cache_usage_perc"
"""Its names have no prefix: only a page that has this one too is its."""
MINDIE: Names = {
    "prompt_tokens_total": (f"prompt_tokens_total{_OF_MINDIE}",),
    "generation_tokens_total": (f"generation_tokens_total{_OF_MINDIE}",),
    "requests_running": (f"num_requests_running{_OF_MINDIE}",),
    "requests_waiting": (f"num_requests_waiting{_OF_MINDIE}",),
    "preemptions_total": (f"num_preemptions_total{_OF_MINDIE}",),
}
"""`npu_cache_usage_perc` is left out: a share by its own description, and percent in answers of Huawei's manuals."""
LLAMACPP: Names = {
    "prompt_tokens_total": ("llamacpp:prompt_tokens_total + llamacpp:prompt_tokens_cached_total",),
    "prompt_tokens_cached_total": ("llamacpp:prompt_tokens_cached_total",),
    "generation_tokens_total": ("llamacpp:tokens_predicted_total",),
    "requests_running": ("llamacpp:requests_processing",),
    "requests_waiting": ("llamacpp:requests_deferred",),
    "kv_cache_util": ("llamacpp:kv_cache_usage_ratio",),
}
MOCK: Names = {
    name: (f"mock:{name}",)
    for name in (
        "prompt_tokens_total",
        "prompt_tokens_cached_total",
        "generation_tokens_total",
        "requests_running",
        "requests_waiting",
    )
}
_OF_LIBRARIES = ("prompt_tokens_total", "generation_tokens_total", "requests_running", "requests_waiting")
TORCH: Names = {name: (f"torch_server:{name}",) for name in _OF_LIBRARIES}
OPENVINO: Names = {name: (f"openvino_server:{name}",) for name in (*_OF_LIBRARIES, "kv_cache_util")}
ENGINES: dict[str, Names] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "lmdeploy": LMDEPLOY,
    "tensorrt-llm": TENSORRT_LLM,
    "triton": TRITON,
    "mindie": MINDIE,
    "llamacpp": LLAMACPP,
    "torch": TORCH,
    "openvino": OPENVINO,
    "mock": MOCK,
}
"""By the runner's name; an attached endpoint may be any of them."""
