"""What Triton says in the log when it can't start, and what to do about it."""

from __future__ import annotations

from bench.runners.diagnosis import words

WORDS = (
    words(
        "port", "a port was taken by another process", "run it again: another free port is chosen", r"Socket '\S+' already in use"
    ),
    words(
        "backend",
        "this Triton has no backend for the model",
        "take an image that has it, as nvcr.io/nvidia/tritonserver:25.10-vllm-python-py3",
        r"unable to find backend library for backend",
        r"unable to find '?libtriton_\w+\.so",
        r"must have a valid backend|must specify 'platform'|unexpected platform type",
    ),
    words(
        "module",
        "the packages of Triton's OpenAI frontend are not installed",
        "pip install /opt/tritonserver/python/triton*.whl and the requirements.txt beside openai_frontend there, "
        "or write protocol: kserve-generate",
        r"No module named '(tritonserver|tritonfrontend|fastapi|uvicorn|openai)'",
    ),
    words(
        "shared_memory",
        "its backend found too little shared memory in /dev/shm",
        "give the container a larger shm_size, or end other Tritons of this host",
        r"(unable to|failed to) (initialize|increase|create) (the )?shared memory",
    ),
    words(
        "model_missing",
        "its repository does not have this model",
        "look at engine_args.model_repository and model_name",
        r"failed to poll from model repository",
        r"no such file or directory.{0,80}config\.pbtxt",
        r"failed to load '[^']*', no version is available",
        r"Triton model '\S+' not found",
    ),
)
