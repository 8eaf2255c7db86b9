"""What OpenVINO says in the log when a model can't be run, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "unsupported",
        "the device does not compute in this precision",
        "write precision: fp32, or leave it out",
        r"expect kvcache type \w+, current",
        r"Inference precision .{0,40}not supported",
        r"Unsupported inference precision",
    ),
    words(
        "unsupported",
        "OpenVINO's reader of GGUF files does not know this kind of model, or this format of its weights",
        "give an OpenVINO model: a folder with openvino_model.xml, as `optimum-cli export openvino` writes it",
        r"Unsupported model architecture",
        r"Unsupported GGUF (quantization|tensor) type",
        r"\[load_gguf\]",
    ),
    words(
        "model_missing",
        "a part of the OpenVINO model is missing",
        "export it again with its tokenizer, as `optimum-cli export openvino` does",
        r"Could not find a model in the directory",
        r"openvino_(de)?tokenizer\.xml",
        r"(de)?tokenizer model (is not|was not|hasn't been) (loaded|provided|found)",
    ),
    words(
        "gpu_memory",
        "the device has too little free memory",
        "take a smaller model, batch size or context, or lower engine_args.cache_gb",
        r"CL_OUT_OF_(RESOURCES|HOST_MEMORY)",
        r"CL_MEM_OBJECT_ALLOCATION_FAILURE",
        r"\[GPU\].{0,80}(exceeds? (the )?max|out of memory|not enough)",
        r"ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    ),
    words(
        "driver",
        "OpenVINO can't use the device",
        "install Intel's driver for it, and look with `bench doctor --engine openvino`",
        r"Device with \"?\w+\"? name is not registered",
        r"\[GPU\] (Can't get|No) (supported )?(OpenCL )?devices?",
        r"ZE_RESULT_ERROR_(UNINITIALIZED|UNSUPPORTED_VERSION)",
        r"No available devices",
    ),
    words(
        "context",
        "the prompt is longer than what the pipeline was made for",
        "raise engine_args.max_prompt_len, or shorten input_tokens",
        r"larger than the maximum prompt length",
        r"MAX_PROMPT_LEN",
    ),
)
