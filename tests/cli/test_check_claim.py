"""`bench check-claim`."""

from __future__ import annotations

import json

import pytest

from tests.in_process import run_here


def test_the_claim_everybody_copies(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capsys, "check-claim", "4x H100 SXM, 142 QPS, 3.2 J/token, 78% memory")
    assert ran.code == 0
    assert ran.out.startswith("These figures can be true together only if a query gets at most 6.2 output tokens, or 12 if ")
    assert "875 tok/s / 142 QPS = at most 6.2 output tokens a query" in ran.out


def test_flags_say_the_same_and_more(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--chip", "H100 SXM", "--count", "4", "--qps", "142", "--j-per-token", "3.2", "--memory", "78%")
    by_text = run_here(capsys, "check-claim", "4x H100 SXM, 142 QPS, 3.2 J/token, 78% memory", "--json")
    by_flags = run_here(capsys, "check-claim", *flags, "--json")
    assert json.loads(by_flags.out) == json.loads(by_text.out)
    more = ("--model", "llama2-13b", "--precision", "fp16", "--batch-size", "128", "--tokens-per-query", "100")
    ran = run_here(capsys, "check-claim", *flags, *more)
    assert ran.code == 1
    assert "can't be true together: energy: 100 output tokens a query are stated, 6.2 is the most" in ran.out
    assert "Memory: ok" in ran.out
    assert "Roofline: ok" in ran.out


def test_thousands_may_be_k(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("4x H100 SXM, 3.2 J/token", "--tok-per-s", "30k", "--json")
    assert json.loads(run_here(capsys, "check-claim", *flags).out)["claim"]["tok_per_s"] == {
        "value": 30000.0,
        "low": 29500.0,
        "high": 30500.0,
    }
    assert "comma that parts no thousands" in run_here(capsys, "check-claim", "H100", "--qps", "1,2k").err
    assert run_here(capsys, "check-claim", "H100", "--j-per-token", "3k").code == 2


def test_a_flag_replaces_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = "4x H100 SXM, 142 QPS, 3.2 J/token"
    assert "at most 12 output tokens" in run_here(capsys, "check-claim", text, "--power", "5600").out
    assert "at most 1.5 output tokens" in run_here(capsys, "check-claim", text, "--chip", "H100 SXM").out
    assert json.loads(run_here(capsys, "check-claim", text, "--tok-per-s", "875", "--json").out)["verdict"] == "can"


def test_whose_joules_they_are_is_a_flag_too(capsys: pytest.CaptureFixture[str]) -> None:
    text = "8x B200, llama2-70b nvfp4, 102,909 tok/s, 0.1011 J/token at the wall"
    ran = run_here(capsys, "check-claim", text, "--json")
    assert (ran.code, json.loads(ran.out)["verdict"], json.loads(ran.out)["claim"]["scope"]) == (0, "can", "server")
    assert run_here(capsys, "check-claim", text, "--scope", "devices").code == 1
    assert "--scope server" in run_here(capsys, "check-claim", text.removesuffix(" at the wall")).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "names no chip"),
        (("pretty fast",), "'pretty' in the claim says nothing"),
        (("4x H100",), "no two figures that depend on each other"),
        (("2x H100, LLaMA2-13B, 5000 tok/s, batch 128",), "--precision"),
        (("2x H100, fp16, 5000 tok/s, batch 128",), "--model"),
        (("--chip", "H900", "--qps", "1"), "did you mean"),
        (("--count", "4"), "--count goes with --chip"),
        (("--chip", "H100 SXM", "--count", "-1"), "no whole number above zero"),
        (("H100 SXM", "--qps", "nan"), "no number above zero"),
        (("H100 SXM", "--j-per-token", "1e400"), "no number above zero"),
        (("H100 SXM", "--qps", "142", "--j-per-token", "3,2"), "comma"),
        (("H100 SXM", "--model", "llama2-14b"), "did you mean 'llama2-13b'?"),
        (("H100 SXM", "--precision", "fp17"), "did you mean"),
        (("H100 SXM", "--batch-size", "2.5"), "no whole number above zero"),
        (("H100 SXM", "--qps", "1", "--scope", "rack"), "'devices', 'server'"),
    ],
)
def test_bad_input_is_named(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    ran = run_here(capsys, "check-claim", *words)
    assert ran.code == 2
    assert says in ran.err
    assert ran.out == ""
