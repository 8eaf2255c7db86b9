"""The clients that `peers.py` runs: the command of each, and where its report holds what we call by our own names.

TTFT [ms]: `median_ttft_ms` and `p99_ttft_ms` of vLLM (its first event with choices), `time_to_first_token` of aiperf,
`time_to_first_token_ms.successful` of guidellm, the first text of the plain loops.
Gaps [ms]: `p99_itl_ms` of vLLM and `inter_chunk_latency` of aiperf are of gaps between events, as ours (ICL) and those of the
plain loops; `inter_token_latency_ms` of guidellm is of the mean gap of each request.

The server sends a token in every chunk and no empty delta, so that events, chunks and tokens are the same here.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._stream_server import MODEL, PROMPT_TOKENS, Schedule

WARM_UP_S = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What each client is to do: `streams` at once, `rounds` requests of each, at a server; `folder` is scratch of its own."""

    url: str
    folder: Path
    streams: int
    rounds: int
    schedule: Schedule

    @property
    def requests(self) -> int:
        return self.streams * self.rounds

    @property
    def seconds(self) -> float:
        """How long all rounds take."""
        return self.rounds * (self.schedule.ttft_ms + (self.schedule.chunks - 1) * self.schedule.gap_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a client reports [ms], None where it does not; `window_ns`: the part of its load that it speaks of, None for all;
    `verdict`: what it says of its own numbers.
    """

    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    gap_p99_ms: float | None
    window_ns: tuple[int, int] | None = None
    verdict: str = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client. `variable` may name its command (with `program` looked for on PATH); without it, it is ours to run."""

    name: str
    command: Callable[[Job], list[str]]
    read: Callable[[Job, str], Seen]
    gap: str = "ICL"
    program: str | None = None
    variable: str | None = None

    def executable(self) -> list[str] | None:
        """The words that start it; None where it is not installed."""
        if self.program is None:
            return [sys.executable]
        words = shlex.split(os.environ.get(self.variable or "") or self.program)
        return words if shutil.which(words[0]) else None


def tokenizer_folder(folder: Path) -> Path:
    """A tokenizer of single bytes and the server's one word: clients want one, and what they would fetch is not here."""
    letters = [chr(code) for code in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    letters += [chr(256 + index) for index in range(256 - len(letters))]
    word = "\u0120token"
    merges = [[word[:end], word[end]] for end in range(1, len(word))]
    vocabulary = letters + [word[: end + 1] for end in range(1, len(word))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {piece: number for number, piece in enumerate(vocabulary)}, "merges": merges}
    whole = {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model}
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 131072}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _ours(job: Job) -> list[str]:
    return [
        *("-m", "bench", "run", "--engine", "openai", "--base-url", job.url, "--model", MODEL, "--results", str(job.folder)),
        *("--batch-size", str(job.streams), "--input-tokens", str(PROMPT_TOKENS), "--output-tokens", str(job.schedule.chunks)),
        *(
            "--warmup",
            f"{WARM_UP_S}s",
            "--duration",
            f"{job.seconds - WARM_UP_S:.1f}s",
            "--repeats",
            "1",
            "--workers",
            "1",
            "--json",
        ),
    ]


def _read_ours(job: Job, printed: str) -> Seen:
    trial = json.loads(printed)["trials"][0]
    ttft, icl, window = trial["metrics"]["ttft_ms"], trial["metrics"]["icl_ms"], trial["window"]
    return Seen(
        ttft_p50_ms=ttft.get("p50"),
        ttft_p99_ms=ttft.get("p99"),
        gap_p99_ms=icl.get("p99"),
        window_ns=(window["t0_ns"], window["t1_ns"]),
        verdict=trial["status"],
    )


def _plain(name: str) -> Callable[[Job], list[str]]:
    return lambda job: ["-m", "bench.lab.reference_client", name, job.url, str(job.streams), f"{job.seconds:.1f}"]


def _read_plain(job: Job, printed: str) -> Seen:
    told = json.loads(printed)
    window_ns = (int(told["t0_ns"]), int(told["t1_ns"]))
    return Seen(
        ttft_p50_ms=told["ttft_p50_ms"], ttft_p99_ms=told["ttft_p99_ms"], gap_p99_ms=told["icl_p99_ms"], window_ns=window_ns
    )  # fmt: skip


def _vllm(job: Job) -> list[str]:
    return [
        *("bench", "serve", "--backend", "openai-chat", "--base-url", job.url, "--endpoint", "/v1/chat/completions"),
        *("--model", MODEL, "--tokenizer", str(tokenizer_folder(job.folder / "tokenizer")), "--dataset-name", "random"),
        *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(job.schedule.chunks), "--ignore-eos"),
        *("--num-prompts", str(job.requests), "--max-concurrency", str(job.streams), "--percentile-metrics", "ttft,itl"),
        *("--metric-percentiles", "99", "--save-result", "--result-dir", str(job.folder), "--result-filename", "vllm.json"),
    ]


def _read_vllm(job: Job, printed: str) -> Seen:
    told = json.loads((job.folder / "vllm.json").read_text(encoding="utf-8"))
    return Seen(ttft_p50_ms=told["median_ttft_ms"], ttft_p99_ms=told["p99_ttft_ms"], gap_p99_ms=told["p99_itl_ms"])


def _aiperf(job: Job) -> list[str]:
    return [
        *("profile", "--model", MODEL, "--url", job.url, "--endpoint-type", "chat", "--streaming", "--ui", "none"),
        *("--tokenizer", str(tokenizer_folder(job.folder / "tokenizer")), "--isl", str(PROMPT_TOKENS)),
        *("--osl", str(job.schedule.chunks), "--concurrency", str(job.streams), "--request-count", str(job.requests)),
        *("--output-artifact-dir", str(job.folder / "aiperf")),
    ]


def _read_aiperf(job: Job, printed: str) -> Seen:
    told = json.loads((job.folder / "aiperf" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    ttft, gap = told["time_to_first_token"], told.get("inter_chunk_latency")
    return Seen(ttft_p50_ms=ttft["p50"], ttft_p99_ms=ttft["p99"], gap_p99_ms=gap["p99"] if gap else None)


def _guidellm(job: Job) -> list[str]:
    prompts = job.folder / "prompts.jsonl"
    rows = [json.dumps({"prompt": f"{index} " + "hello " * PROMPT_TOKENS}) for index in range(job.requests)]
    prompts.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return [
        *("run", "--backend", f"kind=openai_http,target={job.url},model={MODEL}", "--disable-console"),
        *("--profile", f"kind=concurrent,streams={job.streams}", "--constraint", f"kind=max_requests,count={job.requests}"),
        *("--data", f"kind=json_file,path={prompts}", "--output", f"kind=json,path={job.folder / 'guidellm.json'}"),
    ]


def _read_guidellm(job: Job, printed: str) -> Seen:
    told: dict[str, Any] = json.loads((job.folder / "guidellm.json").read_text(encoding="utf-8"))["benchmarks"][0]["metrics"]
    ttft, gap = (told[name]["successful"]["percentiles"] for name in ("time_to_first_token_ms", "inter_token_latency_ms"))
    return Seen(ttft_p50_ms=ttft["p50"], ttft_p99_ms=ttft["p99"], gap_p99_ms=gap["p99"])


CLIENTS = (
    Client(name="bench", command=_ours, read=_read_ours),
    Client(name="aiohttp loop", command=_plain("aiohttp"), read=_read_plain),
    Client(name="httpx loop", command=_plain("httpx"), read=_read_plain),
    Client(name="vllm", program="vllm", variable="PEER_VLLM", command=_vllm, read=_read_vllm),
    Client(name="aiperf", program="aiperf", variable="PEER_AIPERF", command=_aiperf, read=_read_aiperf),
    Client(
        name="guidellm",
        program="guidellm",
        variable="PEER_GUIDELLM",
        command=_guidellm,
        read=_read_guidellm,
        gap="means",
    ),
)
