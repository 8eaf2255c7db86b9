"""Published figures that can or can't be true together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.claims import Claim, Judgement, judge
from bench.analysis.claims_text import figure, named_model, read
from bench.errors import UsageError
from bench.reports.claim import claim_json, claim_text


def judged(text: str) -> Judgement:
    return judge(read(text).claim())


CIRCULATING = (
    ("4xH100 142 QPS, 78% memory, 3.2 J/token", "at most 6.2 output tokens", "2,800 W / 3.2 J/token = at most 875"),
    ("2xH100+2xMI300X 168 QPS, 91%, 2.7 J", "at most 6.4 output tokens", "2,900 W / 2.7 J/token = at most 1,074"),
    ("4xAscend 910B 89 QPS, 85%, 4.1 J", "at most 4.4 output tokens", "1,600 W / 4.1 J/token = at most 390"),
)
"""LLaMA2-13B fp16, batch 128, 300 s: rows that many pages repeat. By hand: 4 * 700 / 3.2 / 142 = 6.16;
(2 * 700 + 2 * 750) / 2.7 / 168 = 6.39; 4 * 400 / 4.1 / 89 = 4.38.
"""


@pytest.mark.parametrize(("row", "verdict", "arithmetic"), CIRCULATING)
@pytest.mark.parametrize("setting", ["", ", LLaMA2-13B fp16, batch 128, 300 s"])
def test_three_rows_in_circulation(row: str, verdict: str, arithmetic: str, setting: str) -> None:
    found = judged(row + setting)
    assert found.verdict == "only_if"
    text = claim_text(found)
    assert f"can be true together only if a query gets {verdict}" in text
    assert arithmetic in text


@pytest.mark.parametrize(("row", "tokens"), [(CIRCULATING[0][0], 6), (CIRCULATING[1][0], 6), (CIRCULATING[2][0], 4)])
def test_they_can_be_true_of_answers_as_short_as_that_and_of_no_longer_ones(row: str, tokens: int) -> None:
    assert judged(f"{row}, {tokens} tokens per query").verdict == "can"
    assert judged(f"{row}, {tokens + 2} tokens per query").verdict == "only_if"
    assert judged(f"{row}, {tokens + 2} tokens per query, GPUs only").verdict == "cannot"
    assert judged(f"{row}, {3 * tokens} tokens per query").verdict == "cannot"


MLPERF = "8x B200, llama2-70b nvfp4, 102,909 tok/s, 0.1011 J/token"
"""MLPerf Inference v5.1: joules of the whole server, which draws 10,401 W; the chips are rated at 8,000 W."""


def test_a_row_of_mlperf_that_does_not_say_whose_joules_they_are() -> None:
    found = judged(MLPERF)
    assert found.verdict == "only_if"
    (energy,) = [step for step in found.steps if step.title == "Energy"]
    assert energy.state == "needs"
    assert energy.says == "the joules are of the server (or more), not of the devices: they take at least 10,399 W"
    assert "a whole server is taken to draw up to 2 times that power" in energy.lines


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("GPUs only", "cannot"),
        ("chips alone", "cannot"),
        ("device-only", "cannot"),
        ("at the wall", "can"),
        ("of the whole server", "can"),
        ("(server)", "can"),
        ("node power", "can"),
    ],
)
def test_whose_joules_they_are_can_be_said(said: str, verdict: str) -> None:
    assert judged(f"{MLPERF} {said}").verdict == verdict


@pytest.mark.parametrize(
    ("times", "said", "verdict"),
    [
        (0.99, "", "can"),
        (1.05, "", "only_if"),
        (1.95, "", "only_if"),
        (2.05, "", "cannot"),
        (1.05, "GPUs only", "cannot"),
        (1.95, "server", "can"),
        (2.05, "server", "cannot"),
    ],
)
def test_how_far_above_the_rating_joules_may_be(times: float, said: str, verdict: str) -> None:
    """1.0000 J/token on an H100, which is rated at 700 W."""
    assert judged(f"1x H100 SXM, 1.0000 J/token {said}, {700 * times:.1f} tok/s").verdict == verdict


def test_without_a_length_the_limit_of_a_server_is_told_too() -> None:
    row = CIRCULATING[0][0]
    assert "only if a query gets at most 6.2 output tokens, or 12 if the joules are of the whole server" in claim_text(
        judged(row)
    )
    assert claim_text(judged(f"{row}, GPUs only")).startswith(
        "These figures can be true together only if a query gets at most 6.2 output tokens."
    )
    assert "at most 12 output tokens." in claim_text(judged(f"{row} at the wall"))


@pytest.mark.parametrize(
    ("stated", "state"),
    [
        ("7,900 W", "holds"),
        ("10,401 W", "needs"),
        ("10,401 W, GPUs only", "breaks"),
        ("10,401 W at the wall", "holds"),
        ("30 kW at the wall", "breaks"),
        ("30 kW", "breaks"),
    ],
)
def test_a_stated_power_beside_the_rating(stated: str, state: str) -> None:
    (power,) = [step for step in judged(f"8x B200, {stated}").steps if step.title == "Power"]
    assert power.state == state


def test_boards_come_with_a_limit_above_the_rating() -> None:
    """H20: rated at 400 W, and with limits of 500 W; 480 W are more than the one and less than the other."""
    found = judged("1x H20, GPU only, 3.000 J/token, 160 tok/s")
    assert found.verdict == "only_if"
    assert "the boards' power limits are above the rating (some come with 500 W in all)" in claim_text(found)
    assert judged("1x H20, GPU only, 3.000 J/token, 170 tok/s").verdict == "cannot"
    assert judged("1x H20, GPU only, 480 W, 3 J/token, 160 tok/s").verdict == "only_if"
    assert "or the joules are of the server" in claim_text(judged("1x H20, 3.000 J/token, 160 tok/s"))


def test_devices_and_server_at_once_are_two_claims() -> None:
    with pytest.raises(UsageError, match="about the devices alone and about the server"):
        read("1x H100 SXM, 1 J/token, GPUs only, at the wall")


def test_few_weights_may_come_out_of_a_cache() -> None:
    """0.27 GB at 3.35 TB/s are 12,450 steps a second; from a cache there may be more, and arithmetic allows 3.7 million."""
    found = judged("1x H100 SXM, smollm2-135m-instruct bf16, batch 1, 30,000 tok/s")
    assert found.verdict == "only_if"
    assert "only if its weights come out of caches, or a step gives several tokens" in claim_text(found)
    assert "caches" not in claim_text(judged("1x H100 SXM, llama2-13b fp16, batch 1, 200 tok/s"))


def test_the_one_that_adds_up() -> None:
    """MLPerf Inference v5.1: 8 B200, 102,909 tok/s at 10,401 W of the whole server, 0.1011 J/token."""
    found = judged("8x B200, llama2-70b nvfp4, 102,909 tok/s, 0.1011 J/token, 10,401 W")
    assert found.verdict == "only_if"
    assert {step.title: step.state for step in found.steps} == {
        "Power": "needs",
        "Energy": "holds",
        "Power is J/token times tok/s": "holds",
        "Roofline": "holds",
    }
    assert "such as the whole server" in claim_text(found)


def test_what_is_left_open_is_compared_with_usual_answers() -> None:
    (step,) = [step for step in judged(CIRCULATING[0][0]).steps if "294" in step.title]
    assert step.state == "open"
    assert "142 QPS * 294 tokens = 41,748 tok/s" in step.lines
    assert step.says == "of such answers the figures are 48 times apart"


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("1x H100 SXM, 2 J/token, 500 W, 400 tok/s", {"Energy", "Power is J/token times tok/s"}),
        ("1x H100 SXM, 2 J/token, 500 W, 100 tok/s", {"Power is J/token times tok/s"}),
        ("1x H100 SXM, 2 J/token, 700 W each, 3.00 qps, 200 tokens per query", {"Energy", "Power is J/token times tok/s"}),
        ("1x H100 SXM, llama2-70b fp16, 60% memory, 10 tok/s", {"Memory", "Roofline"}),
        ("2x H100 SXM, llama2-70b fp16, 130% memory, 10 tok/s", {"Memory"}),
        ("2x H100 SXM, 130% memory", {"Memory"}),
        ("2x H100 SXM, 10 qps, 100 tokens per query, 900 tok/s", {"tok/s is QPS times tokens a query"}),
        ("8x H100 SXM, llama2-70b fp8, 400,000 tok/s", {"Roofline"}),
        ("1x H100 SXM, llama2-13b fp16, batch 1, 60,000 tok/s", {"Roofline"}),
    ],
)
def test_each_thing_that_can_break(text: str, breaks: set[str]) -> None:
    found = judged(text)
    assert found.verdict == "cannot"
    assert {step.title for step in found.steps if step.state == "breaks"} == breaks
    assert all(title.lower() in claim_text(found).splitlines()[0] for title in breaks)


@pytest.mark.parametrize(
    "text",
    [
        "1x H100 SXM, 2 J/token, 500 W, 250 tok/s",
        "2x H100 SXM, 10 qps, 100 tokens per query, 1000 tok/s",
        "1x H100 SXM, llama2-13b fp16, batch 1, 120 tok/s",
        "2x H100 SXM, llama2-70b fp16, 90% memory, 10 tok/s",
        "2x H100 SXM, llama2-70b fp16, 85% memory, 10 tok/s",
        "1x H100 SXM, llama2-13b fp16, batch 8, 3 qps, 294 tokens per query",
    ],
)
def test_what_can_be(text: str) -> None:
    assert judged(text).verdict == "can"


@pytest.mark.parametrize(
    "text",
    [
        "8x H200 SXM, llama-3.1-405b-instruct fp8, batch 1, 108 tok/s",
        "1x H100 SXM, llama2-13b fp16, batch 1, 200 tok/s",
        "1x H100 SXM, llama2-13b fp16, batch 8, 7 qps, 294 tokens per query",
    ],
)
def test_more_tokens_than_steps_take_speculation(text: str) -> None:
    """The first is what NVIDIA tells of Medusa on HGX H200: 38.4 TB/s read 406 GB 95 times a second."""
    found = judged(text)
    assert found.verdict == "only_if"
    assert "only if a step gives several tokens of a query (speculative decoding)" in claim_text(found)


def test_rounding_is_in_the_claim_s_favour() -> None:
    """700 W / 3.0 J are 233.3 tok/s; of 2.95 J they are 237.3."""
    assert judged("1x H100 SXM, GPU only, 3.0 J/token, 237 tok/s").verdict == "can"
    assert judged("1x H100 SXM, GPU only, 3.00 J/token, 237 tok/s").verdict == "cannot"
    assert judged("1x H100 SXM, GPU only, 3.0 J/token, 240 tok/s").verdict == "cannot"


def test_a_chip_without_a_rating_sets_no_limit() -> None:
    found = judged("8x Ascend 910C, 100 QPS, 3 J/token")
    assert found.verdict == "can"
    assert found.steps[0].state == "open"
    assert "no rated power of Ascend 910C" in found.steps[0].lines[0]


def test_a_stated_power_takes_the_rating_s_place() -> None:
    found = judged("8x Ascend 910C, 100 QPS, 3 J/token, 3 kW")
    assert "a query gets at most 10 output tokens" in claim_text(found)


@given(st.floats(0.01, 100), st.floats(0.1, 10_000), st.integers(1, 64))
def test_the_limit_is_power_over_energy_over_queries(joules: float, qps: float, count: int) -> None:
    text = f"{count}x H100 SXM, {qps:.4f} QPS, {joules:.4f} J/token, GPUs only"
    limit = count * 700 / float(f"{joules:.4f}") / float(f"{qps:.4f}")
    assert judged(f"{text}, {limit * 1.02 + 0.01:.6f} tokens per query").verdict == ("cannot" if _tight(joules, qps) else "can")
    assert judged(f"{text}, {max(limit * 0.99, 1e-6):.6f} tokens per query").verdict == "can"


def _tight(joules: float, qps: float) -> bool:
    """Whether how the figures are rounded is far less than the 2% by which the limit is passed."""
    return (1 + 0.00005 / joules) * (1 + 0.00005 / qps) < 1.015


# --- reading ------------------------------------------------------------------------------------------------------------


def spoken(text: str) -> dict[str, object]:
    claim: Claim = read(text).claim()
    figures = {name: getattr(claim, name) for name in ("qps", "j_per_token", "power_w", "memory", "tokens", "tok_per_s")}
    told: dict[str, object] = {name: round(one.value, 9) for name, one in figures.items() if one is not None}
    told["chips"] = [chip.name for chip in claim.chips]
    extra = {"scope": claim.scope, "batch": claim.batch, "model": claim.model and claim.model.name, "precision": claim.precision}
    return told | {name: value for name, value in extra.items() if value is not None}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("4x H100 SXM, 142 QPS", {"chips": ["H100 SXM"] * 4, "qps": 142.0}),
        ("4 H100 SXM at 142 queries/s", {"chips": ["H100 SXM"] * 4, "qps": 142.0}),
        ("2\u00d7MI300X; 5 requests per second", {"chips": ["MI300X"] * 2, "qps": 5.0}),
        ("1xH200 + 1xMI300X 3.5 rps", {"chips": ["H200 SXM", "MI300X"], "qps": 3.5}),
        ("B200 24,525 tok/s", {"chips": ["B200"], "tok_per_s": 24525.0}),
        ("B200 30k tok/s", {"chips": ["B200"], "tok_per_s": 30000.0}),
        ("B200 1.5 ktokens/s, 2K qps", {"chips": ["B200"], "tok_per_s": 1500.0, "qps": 2000.0}),
        ("B200, Llama 3.1 405B Instruct fp8", {"chips": ["B200"], "model": "llama-3.1-405b-instruct", "precision": "fp8"}),
        ("B200, llama 2 13b, fp8", {"chips": ["B200"], "model": "llama2-13b", "precision": "fp8"}),
        ("B200, 2.5 tokens/s", {"chips": ["B200"], "tok_per_s": 2.5}),
        ("B200: 200 output tokens per query", {"chips": ["B200"], "tokens": 200.0}),
        ("B200, 64 tokens/request, 0.5 joules per output token", {"chips": ["B200"], "tokens": 64.0, "j_per_token": 0.5}),
        ("B200, 250 mJ/token", {"chips": ["B200"], "j_per_token": 0.25}),
        ("2x B200, 1.9 kW", {"chips": ["B200"] * 2, "power_w": 1900.0}),
        ("2x B200, 900 W each", {"chips": ["B200"] * 2, "power_w": 1800.0}),
        ("2x B200, 1.9 kW at the wall", {"chips": ["B200"] * 2, "power_w": 1900.0, "scope": "server"}),
        ("4x H100 SXM GPU server, 142 QPS", {"chips": ["H100 SXM"] * 4, "qps": 142.0}),
        ("2x B200 node, 1.9 kW", {"chips": ["B200"] * 2, "power_w": 1900.0}),
        ("2x B200, 1.9 kW, server", {"chips": ["B200"] * 2, "power_w": 1900.0, "scope": "server"}),
        ("2x B200, 1.9 kW of the server", {"chips": ["B200"] * 2, "power_w": 1900.0, "scope": "server"}),
        ("2x B200, 1.9 kW (server)", {"chips": ["B200"] * 2, "power_w": 1900.0, "scope": "server"}),
        ("2x B200 system, 1.9 kW system power", {"chips": ["B200"] * 2, "power_w": 1900.0, "scope": "server"}),
        ("2x B200, 0.5 J/token, whole machine", {"chips": ["B200"] * 2, "j_per_token": 0.5, "scope": "server"}),
        ("2x B200, 0.5 J/token (GPUs only)", {"chips": ["B200"] * 2, "j_per_token": 0.5, "scope": "devices"}),
        ("B200 78% of GPU memory used", {"chips": ["B200"], "memory": 0.78}),
        ("B200, batch_size=128, LLaMA-2-13B FP16", {"chips": ["B200"], "batch": 128, "model": "llama2-13b", "precision": "fp16"}),
        ("8x NVIDIA H100 80GB HBM3s 1 qps", {"chips": ["H100 SXM"] * 8, "qps": 1.0}),
        ("4x H100 SXM GPUs, 142 QPS", {"chips": ["H100 SXM"] * 4, "qps": 142.0}),
        ("2x B200 accelerators, 0.5 J/token, GPUs only", {"chips": ["B200"] * 2, "j_per_token": 0.5, "scope": "devices"}),
    ],
)
def test_ways_to_say_it(text: str, told: dict[str, object]) -> None:
    assert spoken(text) == told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("142 QPS, 3.2 J/token", "names no chip"),
        ("", "names no chip"),
        ("4x H100, 5 bananas", "'5' in the claim says nothing"),
        ("4x H100, pretty fast", "'pretty' in the claim says nothing"),
        ("4x H900, 142 QPS", "no chip 'H900'"),
        ("1x H1000, 142 QPS", "no chip 'H1000'"),
        ("1 H1000, 142 QPS", "no chip 'H1000'"),
        ("142 QPS, H1000", "'H1000' is no chip, model or precision"),
        ("4x H100, fp17", "'fp17' is no chip, model or precision"),
        ("4x H100, Llama 3.3 405B, 142 QPS", "no model 'Llama 3.3 405B'"),
        ("4x H100, llama-99b fp8, 142 QPS", "no model 'llama-99b'"),
        ("4x H100, max 142 QPS", "'max' in the claim says nothing"),
        ("4 GPUs of H100 SXM, 142 QPS", "'4' in the claim says nothing"),
        ("4x H100, 142 QPS, 99 QPS", "gives that figure twice"),
        ("700 W each, H100, 400 W each", "gives that figure twice"),
        ("700 W each, H100, 5000 W", "gives that figure twice"),
        ("H100, 5000 W, 700 W each", "gives that figure twice"),
        ("H100, batch 8, batch 9", "gives that figure twice"),
        ("H100, llama2-13b, llama2-7b", "gives that figure twice"),
        ("H100, fp16, fp8", "gives that figure twice"),
        (f"H100, batch {'9' * 5000}", "is no whole number above zero"),
        (f"{'9' * 5000}x H100, 1 QPS", "is no number of chips"),
        (f"H100, 0.{'0' * 400}1 J/token", "is no number above zero"),
        (f"H100, 0.{'0' * 20}1 QPS", "is no number above zero"),
        ("0x H100, 142 QPS", "0 is no number of chips"),
        ("999999999x H100, 142 QPS", "is no number of chips"),
        ("4x H100, 0 QPS", "no number above zero"),
        *(
            (f"4x H100, {number} QPS", "a comma that parts no thousands")
            for number in ("3,2", "1,42", "1,4200", "1420,500", "1,,420")
        ),
        ("4x H100, 142 QPS, <script>", "'<script>' in the claim says nothing"),
        ("4x H100, 1" + "0" * 400 + " QPS", "no number above zero"),
    ],
)
def test_what_can_t_be_read_is_named(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text).claim()
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1x H1000, 142 QPS", "H100"),
        ("142 QPS, H1000", "H100"),
        ("4x H100, fp17", "fp16"),
        ("4x H100, Llama 3.1 405B, 142 QPS", "llama-3.1-405b-instruct"),
    ],
)
def test_what_was_meant_is_guessed(text: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert caught.value.hint == f"did you mean {meant!r}?"


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        claim = read(text).claim()
    except UsageError:
        return
    assert claim.chips, "what is read names a chip"
    assert judge(claim).verdict in ("can", "only_if", "cannot")


@pytest.mark.parametrize(
    ("text", "low", "high"), [("142", 141.5, 142.5), ("3.2", 3.15, 3.25), ("3.20", 3.195, 3.205), ("10,401", 10400.5, 10401.5)]
)
def test_a_figure_is_as_exact_as_it_is_written(text: str, low: float, high: float) -> None:
    found = figure(text, "x")
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)


def test_a_loose_name_is_read_in_the_claim_s_favour_and_said() -> None:
    claim = read("4xH100, 1 qps").claim()
    assert claim.chips[0].name == "H100 SXM"
    assert claim.assumed == ("H100 is read as H100 SXM, which allows more than H100 PCIe and H100 NVL",)


def test_models_are_found_whatever_their_hyphens() -> None:
    assert {model.name for name in ("LLaMA2-13B", "llama-2-13b", "Llama 2 13b") if (model := named_model(name))} == {"llama2-13b"}
    assert named_model("gpt-9") is None


def test_json_has_it_all() -> None:
    found = claim_json(judged(CIRCULATING[0][0]))
    assert found["verdict"] == "only_if"
    assert found["claim"]["qps"] == {"value": 142.0, "low": 141.5, "high": 142.5}
    assert found["claim"]["chips"] == [{"name": "H100 SXM", "count": 4, "source": "NVIDIA H100 data sheet"}]
    assert [step["state"] for step in found["steps"]] == ["needs", "open"]
