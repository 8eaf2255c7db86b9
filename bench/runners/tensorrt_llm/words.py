"""What TensorRT-LLM says in its log when it can't start, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "driver",
        "tensorrt-llm finds no NVIDIA board",
        "run `bench doctor`, and look at CUDA_VISIBLE_DEVICES",
        r"No GPU devices found on the node",
    ),
    words(
        "library",
        "OpenMPI is missing",
        "apt-get install libopenmpi-dev",
        r"libmpi\S*\.so\S*: cannot open shared object",
        r"cannot load MPI library",
    ),
    words(
        "unsupported",
        "its pytorch backend does not know this model",
        "take a newer version of tensorrt-llm, or another engine",
        r"Unknown architecture for AutoModelForCausalLM",
    ),
    words(
        "unsupported",
        "it does not run weights of this format, or not on this board",
        "choose weights in another format",
        r"unsupported quant mode",
        r"Pre-quantized checkpoint must have quant_algo",
        r"conflicting with quant_algo",
    ),
    words(
        "arguments",
        "it does not know an option of its file",
        "compare engine_args.config with the LLM API of this version",
        r"Extra inputs are not permitted",
        r"Error: No such option",
    ),
)
