"""What other tools say of our metrics: each entry says something, of a metric that we have, with its source."""

from __future__ import annotations

from bench.catalog.peers import peer_metrics
from bench.timing import SPECS


def test_entries_are_of_our_metrics_and_say_something() -> None:
    assert set(peer_metrics()) <= set(SPECS)
    for name, peers in peer_metrics().items():
        assert len({peer.tool for peer in peers}) == len(peers), name
        for peer in peers:
            assert peer.called or peer.says, f"{name}: {peer.tool}"
            assert len(peer.source) > 10


def test_the_big_six_are_there_for_the_headline_metrics() -> None:
    six = {"vLLM bench serve", "SGLang bench_serving", "GuideLLM", "AIPerf", "GPUStack", "MLPerf Inference"}
    for name in ("ttft_ms", "output_tok_per_s", "requests_per_s"):
        tools = {peer.tool for peer in peer_metrics()[name]}
        assert six <= tools, name


def test_nobody_is_quoted_twice_with_one_name_for_two_things() -> None:
    """A name that a tool uses for one thing must not be given to two of our metrics, or `did you mean` would guess."""
    seen: dict[tuple[str, str], str] = {}
    for name, peers in peer_metrics().items():
        for peer in peers:
            if peer.called:
                assert seen.setdefault((peer.tool, peer.called), name) == name
