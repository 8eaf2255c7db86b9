"""`vllm bench serve` and we in turns on one vLLM server: `python benchmarks/beside_vllm.py URL MODEL [--rounds 5]`.

Both ask the same server for the same jobs (a fixed number of requests of 64 prompt and 32 output tokens, 1, 8 and 32 at once,
greedy, the length forced), in turns A B, B A, ... so that what ails an hour ails both. For each number: the ratio ours / theirs
with Student's 95% interval over the pairs. Each job is its client's own; no prompt comes twice, so no cache knows it.

Numbers and their definitions: output tokens/s is all output tokens over the time from the first request to the last token (ours
with `--num-prompts`; theirs adds what its own loop takes to notice); TTFT is from sending to the first text, of every request;
TPOT is (end - first text) / (tokens - 1) of every request. Means are compared, as a mean has no rank to disagree about.

The server runs already (`--served-model-name beside`, no prefix caching); MODEL is the folder of its weights, for the tokenizer.
`vllm bench serve` is that of the command in PEER_VLLM, else of `vllm` on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.analysis.compare import paired_ratio

BATCHES = (1, 8, 32)
INPUT_TOKENS, OUTPUT_TOKENS = 64, 32
SERVED = "beside"
NUMBERS = ("output tok/s", "TTFT [ms]", "TPOT [ms]")


def requests_of(batch: int) -> int:
    """Whole batches, and no more than takes a slow machine half a minute."""
    return batch * max(2, 6 // batch) if batch < 32 else batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Both clients of one server."""

    url: str
    vllm: list[str]
    model: Path
    folder: Path

    def ours(self, batch: int, seed: int) -> tuple[float, ...]:
        """One job with `bench run`: the three numbers."""
        command = [
            *(sys.executable, "-m", "bench", "run", "--engine", "openai", "--base-url", self.url, "--model", SERVED, "--json"),
            *("--protocol", "openai-completions", "--batch-size", str(batch), "--num-prompts", str(requests_of(batch))),
            *("--input-tokens", str(INPUT_TOKENS), "--output-tokens", str(OUTPUT_TOKENS), "--seed", str(seed), "--repeats", "1"),
            *("--warmup", "0s", "--idle", "0s", "--results", str(self.folder)),
        ]
        trial = json.loads(subprocess.run(command, capture_output=True, check=False, timeout=600).stdout)["trials"][0]
        found = trial["metrics"]
        if found["output_tok_per_s"]["value"] is None:
            raise RuntimeError(f"bench measured nothing: {trial['reasons']}")
        return found["output_tok_per_s"]["value"], found["ttft_ms"]["mean"], found["tpot_ms"]["mean"]

    def theirs(self, batch: int, seed: int) -> tuple[float, ...]:
        """The same job with `vllm bench serve`."""
        command = [
            *(*self.vllm, "bench", "serve", "--backend", "openai", "--base-url", self.url, "--endpoint", "/v1/completions"),
            *(
                "--model",
                SERVED,
                "--tokenizer",
                str(self.model),
                "--dataset-name",
                "random",
                "--ignore-eos",
                "--temperature",
                "0",
            ),
            *("--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS), "--seed", str(seed)),
            *("--num-prompts", str(requests_of(batch)), "--max-concurrency", str(batch), "--ready-check-timeout-sec", "0"),
            *("--save-result", "--result-dir", str(self.folder), "--result-filename", "vllm.json", "--disable-tqdm"),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-2000:])
        told = json.loads((self.folder / "vllm.json").read_text(encoding="utf-8"))
        if told["completed"] != requests_of(batch):
            raise RuntimeError(f"{told['completed']} of {requests_of(batch)} requests completed")
        return told["output_throughput"], told["mean_ttft_ms"], told["mean_tpot_ms"]

    def pairs(self, batch: int, rounds: int) -> tuple[list[tuple[float, ...]], list[tuple[float, ...]]]:
        """(theirs, ours), in turns. Every job of the benchmark has a seed of its own."""
        found: dict[Callable[[int, int], tuple[float, ...]], list[tuple[float, ...]]] = {self.theirs: [], self.ours: []}
        for turn in range(rounds):
            for place, side in enumerate(found if turn % 2 else reversed(found)):
                found[side].append(side(batch, 1000 * batch + 2 * turn + place))
        return found[self.theirs], found[self.ours]


def main() -> None:
    """Parse flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="where the server listens, such as http://127.0.0.1:8000")
    parser.add_argument("model", type=Path, help="a folder with safetensors and a tokenizer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="requests at once")
    flags = parser.parse_args()
    vllm = shlex.split(os.environ.get("PEER_VLLM") or "vllm")
    with tempfile.TemporaryDirectory() as scratch:
        rivals = Rivals(url=flags.url, vllm=vllm, model=flags.model.resolve(), folder=Path(scratch))
        rivals.ours(1, 1)  # the server's first requests pay for what is compiled then
        for batch in flags.batches:
            theirs, ours = rivals.pairs(batch, flags.rounds)
            for index, name in enumerate(NUMBERS):
                sys.stdout.write(_line(batch, name, [job[index] for job in theirs], [job[index] for job in ours]))
                sys.stdout.flush()


def _line(batch: int, name: str, theirs: list[float], ours: list[float]) -> str:
    ratio = paired_ratio(theirs, ours)
    if ratio.low is None or ratio.high is None:
        raise SystemExit("one round has no interval: give --rounds 2 or more")
    verdict = "agree" if ratio.low <= 1.0 <= ratio.high else "DIFFER"
    between = f"{ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f})"
    return (
        f"batch {batch:2d}  {name:13s} ours {fmean(ours):9.2f}  theirs {fmean(theirs):9.2f}  ours/theirs {between}  {verdict}\n"
    )


if __name__ == "__main__":
    main()
