"""Serves a folder of weights with torch and transformers, one step at a time, over the OpenAI protocol.

    python torch_server.py '{"model": "/models/tiny", "name": "tiny", "port": 8123, "device": "cuda", "slots": 8, ...}'

Run by the Python that has torch. `/health` is good once the model is loaded; `/info` tells what really runs. What goes wrong in a
step ends the process: half a result is none.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import torch
import transformers
from batching import Batcher
from openai_http import RefusedError, Request, Score, listen

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WITH_KV_CACHE = {"full_attention", "sliding_attention", "chunked_attention"}
"""transformers' words for layers that keep nothing else."""


def say(text: str) -> None:
    """A line of log, at once."""
    os.write(1, f"torch_server: {text}\n".encode())


class TorchRows:
    """The running requests as rows of one batch, padded on the left, with one KV cache. Fills `batching.Stepper`."""

    def __init__(self, model: Any, device: str) -> None:
        self._model = model
        self._device = device
        takes = inspect.signature(model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._requests: list[Request] = []
        self._lengths: list[int] = []
        self._cache: Any = None
        self._mask: Any = None
        self._last: Any = None
        self.eos = eos_of(model)

    def join(self, requests: list[Request]) -> list[int]:
        """Prefill in a batch of their own, then stand below the rows that run."""
        lengths = [len(request.ids) for request in requests]
        width = max(lengths)
        ids = self._tensor([[0] * (width - len(request.ids)) + request.ids for request in requests])
        mask = self._tensor([[0] * (width - length) + [1] * length for length in lengths])
        for request in requests:
            if request.echo:
                request.prompt_scores = self._prompt_scores(request)
        cache = transformers.DynamicCache()
        last = self._choose(self._forward(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), cache), requests)
        self._append(cache, mask, last)
        self._requests += requests
        self._lengths += lengths
        return tokens_of(last)

    def step(self) -> list[int]:
        """One token more of every row."""
        positions = self._mask.sum(-1, keepdim=True)
        self._mask = torch.cat([self._mask, torch.ones_like(positions)], dim=-1)
        logits = self._forward(self._last.unsqueeze(-1), self._mask, positions, self._cache)
        self._last = self._choose(logits, self._requests)
        self._lengths = [length + 1 for length in self._lengths]
        return tokens_of(self._last)

    def leave(self, kept: list[int]) -> None:
        """Drop the other rows, and the padding that no row needs any more."""
        self._requests = [self._requests[row] for row in kept]
        if not kept:
            self._cache = self._mask = self._last = None
            self._lengths = []
            return
        self._lengths = [self._lengths[row] for row in kept]
        # the newest tokens, in `_last`, are in neither the mask nor the cache yet: these two are of one width
        spare = self._mask.shape[-1] - max(self._lengths)
        rows = self._tensor(kept)
        self._mask = self._mask.index_select(0, rows)[:, spare:]
        self._last = self._last.index_select(0, rows)
        for layer in self._cache.layers:
            layer.keys = layer.keys.index_select(0, rows)[:, :, spare:]
            layer.values = layer.values.index_select(0, rows)[:, :, spare:]

    def _append(self, cache: Any, mask: Any, last: Any) -> None:
        if self._cache is None:
            self._cache, self._mask, self._last = cache, mask, last
            return
        width = max(self._mask.shape[-1], mask.shape[-1])
        self._mask = torch.cat([widened(self._mask, width, -1), widened(mask, width, -1)])
        self._last = torch.cat([self._last, last])
        for ours, theirs in zip(self._cache.layers, cache.layers, strict=True):
            ours.keys = torch.cat([widened(ours.keys, width, -2), widened(theirs.keys, width, -2)])
            ours.values = torch.cat([widened(ours.values, width, -2), widened(theirs.values, width, -2)])

    def _forward(self, ids: Any, mask: Any, positions: Any, cache: Any) -> Any:
        known = {"attention_mask": mask, "position_ids": positions, "past_key_values": cache, "use_cache": True}
        out = self._model(input_ids=ids, **known, **self._last_only)
        return out.logits[:, -1, :]

    def _prompt_scores(self, request: Request) -> list[Score]:
        """Of each token of a prompt but the first, in a pass of its own."""
        logits = self._model(input_ids=self._tensor([request.ids]), use_cache=False).logits[0, :-1]
        shares = torch.log_softmax(logits.float(), dim=-1)
        return [score_of(row, token, request.logprobs or 1) for row, token in zip(shares, request.ids[1:], strict=True)]

    def _choose(self, logits: Any, requests: list[Request]) -> Any:
        """The next token of each row. Shapes: [rows, vocabulary] to [rows]."""
        logits = logits.float()
        shares = {row: torch.log_softmax(logits[row], dim=-1) for row, one in enumerate(requests) if one.logprobs is not None}
        for row, request in enumerate(requests):
            if request.made < request.min_tokens and not request.ignore_eos:
                logits[row, self.eos] = float("-inf")
        tokens = logits.argmax(-1)
        for row, request in enumerate(requests):
            if request.temperature > 0:
                tokens[row] = sampled(logits[row], request, self._device)
        for row, share in shares.items():
            requests[row].scores.append(score_of(share, int(tokens[row]), requests[row].logprobs or 1))
        return tokens

    def _tensor(self, numbers: list[Any]) -> Any:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)


def widened(tensor: Any, width: int, dim: int) -> Any:
    """`tensor` padded with zeros on the left of dimension `dim` (-1 or -2) up to `width`."""
    missing = width - tensor.shape[dim]
    return torch.nn.functional.pad(tensor, (missing, 0) if dim == -1 else (0, 0, missing, 0)) if missing else tensor


def tokens_of(tensor: Any) -> list[int]:
    """On the host: waits until the device has them."""
    return [int(token) for token in tensor.tolist()]


def score_of(shares: Any, token: int, best: int) -> Score:
    """What `token` has, and the `best` tokens, by the logarithms of all probabilities. Shape: [vocabulary]."""
    top = shares.topk(best)
    return float(shares[token]), list(zip(tokens_of(top.indices), map(float, top.values), strict=True))


def sampled(logits: Any, request: Request, device: str) -> Any:
    """One token by temperature and nucleus; the same for the same seed, step and logits. Source: Holtzman et al. 2020."""
    shares = torch.softmax(logits / request.temperature, dim=-1)
    ordered, ids = shares.sort(descending=True)
    ordered[ordered.cumsum(-1) - ordered >= request.top_p] = 0.0  # the first always stays
    generator = None
    if request.seed is not None:
        generator = torch.Generator(device=device).manual_seed(request.seed + request.made)
    return ids[torch.multinomial(ordered, 1, generator=generator)][0]


def eos_of(model: Any) -> list[int]:
    """The tokens that end an answer."""
    found = getattr(model.generation_config, "eos_token_id", None)
    found = model.config.eos_token_id if found is None else found
    return [found] if isinstance(found, int) else list(found or [])


class TorchEngine:
    """The model and its tokenizer. Fills `openai_http.Engine`; nothing is loaded before `load`."""

    gives_logprobs = True

    def __init__(self, order: dict[str, Any]) -> None:
        self.name: str = order["name"]
        self.info: dict[str, Any] | None = None
        self.context = 0
        self.vocabulary = 0
        self._order = order
        self._tokenizer: Any = None
        self._lock = threading.Lock()  # a fast tokenizer can't be used by two threads at once
        self._batcher: Any = None

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt, with what the model begins every text with."""
        with self._lock:
            return list(self._tokenizer.encode(text))

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """Tokens of a conversation in the model's own template."""
        if not self._tokenizer.chat_template:
            raise RefusedError("this model has no chat template: use completions (protocol: openai-completions)")
        with self._lock:
            text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        """Their text, without special tokens."""
        with self._lock:
            return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def submit(self, request: Request) -> None:
        """Put it in line."""
        self._batcher.submit(request)

    def counters(self) -> dict[str, float]:
        """What it has done so far."""
        return dict(self._batcher.counters())

    def load(self) -> Batcher:
        """Weights onto the device; what can't be served is refused here."""
        order, began_s = self._order, time.monotonic()
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(order["model"])
        model, device = load_model(order)
        load_s = time.monotonic() - began_s
        self.context = context_of(model, order["context"])
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self._batcher = Batcher(
            TorchRows(model, device),
            slots=order["slots"],
            prefill_tokens=order["prefill_tokens"],
            static=order["static"],
            gather_s=order["gather_ms"] / 1e3,
        )
        sizes = {"slots": order["slots"], "context": self.context, "n_vocab": self.vocabulary}
        self.info = {"engine": "torch_server", "load_s": load_s, **sizes, **told(model, device)}
        say(f"loaded: {json.dumps(self.info)}")
        return self._batcher


def load_model(order: dict[str, Any]) -> tuple[Any, str]:
    """The model on its device, ready to be stepped."""
    if order.get("threads"):
        torch.set_num_threads(order["threads"])
    if order.get("precision") == "tf32":
        torch.set_float32_matmul_precision("high")
    device = order["device"] if order["device"] in ("cpu", "mps") else f"{order['device']}:0"
    asked: dict[str, Any] = {"dtype": DTYPES.get(order.get("precision") or "", "auto")}
    if order.get("attention"):
        asked["attn_implementation"] = order["attention"]
    if order["device"] != "cpu" and importlib.util.find_spec("accelerate") is not None:
        asked["device_map"] = {"": device}  # straight to the device, which quantised weights need
    model = transformers.AutoModelForCausalLM.from_pretrained(order["model"], **asked)
    refuse_unsteppable(model)
    if "device_map" not in asked:
        model = model.to(device)
    return model.eval(), device


def refuse_unsteppable(model: Any) -> None:
    """End the start where rows of a model can't be joined, padded and parted: its KV cache alone may know earlier tokens."""
    layers = set(getattr(model.config.get_text_config(), "layer_types", None) or ())
    if getattr(model, "_is_stateful", False) or layers - WITH_KV_CACHE:
        raise SystemExit(f"torch_server: unsupported model: {type(model).__name__} keeps a state other than a KV cache")
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise SystemExit(f"torch_server: unsupported model: {type(model).__name__} can't be told the positions of padded rows")


def context_of(model: Any, needed: int) -> int:
    """The model's own limit [tokens]; what `needed` goes beyond it ends the start."""
    config = model.config.get_text_config()
    limit = int(getattr(config, "max_position_embeddings", None) or needed)
    if needed > limit:
        raise SystemExit(f"torch_server: the cases need a context of {needed} tokens, and the model has {limit}")
    return limit


def told(model: Any, device: str) -> dict[str, Any]:
    """What runs: by the tensors of the loaded model and by torch, not by what was asked for."""
    backend: Any = getattr(torch, device.partition(":")[0], None)
    name = None
    with contextlib.suppress(AttributeError, RuntimeError, AssertionError):
        name = backend.get_device_name(0)
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": str(next(model.parameters()).device),
        "device_name": name,
        "dtype": main_dtype(model),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "attention": getattr(model.config, "_attn_implementation", None),
        "architecture": type(model).__name__,
        "threads": torch.get_num_threads(),
    }


def main_dtype(model: Any) -> str:
    """The type that most bytes of the weights have, embeddings left out: quantisers leave those alone."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    skipped = {id(tensor) for module in ends if module is not None for tensor in module.parameters()}
    sizes_b: dict[str, int] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in skipped:
            name = str(tensor.dtype).partition("torch.")[2]
            sizes_b[name] = sizes_b.get(name, 0) + tensor.numel() * tensor.element_size()
    return max(sizes_b, key=lambda name: sizes_b[name])


def main() -> None:
    """Serve until SIGTERM."""
    order = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for name in order["imports"]:
        importlib.import_module(name)
    engine = TorchEngine(order)
    listen(engine, order["port"])
    batcher = engine.load()
    with torch.inference_mode():
        while True:
            batcher.turn()


if __name__ == "__main__":
    main()
