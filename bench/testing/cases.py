"""Cases and requests for tests of runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.ports import StartRequest
from bench.records import Case, LengthSpec, LoadSpec, LocalModel, ModelShape, Placement, Profile


def case(**changes: Any) -> Case:
    """A small case with `changes`."""
    fields: dict[str, Any] = {
        "name": "case",
        "suite": "test",
        "model": "tiny",
        "model_source": None,
        "precision": None,
        "engine": "llamacpp",
        "load": LoadSpec(kind="closed", batch_size=2),
        "input_tokens": LengthSpec(mean=64),
        "output_tokens": LengthSpec(mean=32),
        "duration_s": 1.0,
        "warmup_s": 0.5,
        "grace_s": 1.0,
        "request_timeout_s": 10.0,
        "idle_s": 0.0,
        "repeats": 1,
        "profile": Profile.SMOKE,
    }
    return Case(**(fields | changes))


def gguf(path: Path | str = "/models/tiny.gguf", **changes: Any) -> LocalModel:
    """Weights as a GGUF file."""
    fields: dict[str, Any] = {
        "name": "tiny",
        "source": "path",
        "path": str(path),
        "format": "gguf",
        "size_b": 1,
        "weights_sha256": None,
    }
    return LocalModel(**(fields | changes))


def safetensors(path: Path | str = "/models/tiny", **changes: Any) -> LocalModel:
    """Weights as a folder of safetensors, of a model with a small vocabulary."""
    shape = ModelShape(layers=2, heads=4, kv_heads=2, head_dim=16, hidden=64, vocab=1000)
    return gguf(path, **{"format": "safetensors", "shape": shape} | changes)


def request(
    work_dir: Path, *cases: Case, model: LocalModel | None = None, timeout_s: float = 60.0, env: dict[str, str] | None = None
) -> StartRequest:
    """What a runner is handed."""
    return StartRequest(
        cases=cases,
        model=model,
        placement=Placement(visibility_env=env or {}),
        work_dir=work_dir,
        start_timeout_s=timeout_s,
    )
