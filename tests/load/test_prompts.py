from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.load import draw_lengths, synthetic_hash
from bench.load.address import parse_address
from bench.load.prompts import Calibration, PromptPool
from bench.load.protocols import wire_protocol
from bench.load.vocabulary import WORDS
from bench.records import LengthSpec, Sampling
from tests.load.scripted import make_case, make_target


def make_pool(
    *, salt: str = "s", key: str | None = None, target: dict[str, Any] | None = None, wanted: int = 16, **over: Any
) -> PromptPool:
    case_over = {k: v for k, v in over.items() if k not in ("worker", "workers", "calibration")}
    pool_over = {k: v for k, v in over.items() if k in ("worker", "workers", "calibration")}
    where = make_target("http://127.0.0.1:8000", **(target or {}))
    values: dict[str, Any] = {"calibration": Calibration()} | pool_over
    return PromptPool(
        case=make_case(**case_over), target=where, protocol=wire_protocol(where.protocol), address=parse_address(where.base_url),
        key=key, salt=salt, wanted=wanted, **values,
    )  # fmt: skip


def bodies(pool: PromptPool, count: int) -> list[dict[str, Any]]:
    found = []
    for number in range(count):
        head, _, body = pool.take(number)[0].partition(b"\r\n\r\n")
        assert int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]) == len(body)
        found.append(json.loads(body))
    return found


def words(body: dict[str, Any]) -> list[str]:
    content = body["messages"][0]["content"]
    assert isinstance(content, str)
    return content.split(" ")


IDS = {"protocol": "openai-completions", "token_ids": True, "vocab_size": 49152}


def test_the_words_are_alike_in_width_and_all_different() -> None:
    assert {len(word) for word in WORDS} == {4}
    assert len(set(WORDS)) == len(WORDS)


def test_chat_request() -> None:
    (body,) = bodies(make_pool(input_tokens=LengthSpec(mean=20), output_tokens=LengthSpec(mean=7), exact_lengths=True), 1)
    assert len(words(body)) == 20
    del body["messages"]
    assert body == {
        "model": "tiny", "max_tokens": 7, "min_tokens": 7, "temperature": 0.0, "top_p": 1.0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_fields_that_strict_servers_refuse_are_sent_only_when_wanted() -> None:
    (body,) = bodies(make_pool(sampling=Sampling(ignore_eos=False, temperature=0.7)), 1)
    assert "ignore_eos" not in body
    assert "min_tokens" not in body
    assert body["temperature"] == 0.7


def test_many_more_prompts_than_the_pool_holds_are_all_different_from_the_first_words_on() -> None:
    pool = make_pool(input_tokens=LengthSpec(mean=12), wanted=8)
    leads = [tuple(words(body)[:4]) for body in bodies(pool, 3000)]
    assert len(set(leads)) == 3000
    assert not pool.recycled


def test_neighbours_differ_in_their_first_word() -> None:
    pool = make_pool(input_tokens=LengthSpec(mean=12))
    first = [words(body)[0] for body in bodies(pool, 200)]
    assert all(a != b for a, b in pairwise(first))


def test_short_prompts_run_out_and_say_so() -> None:
    pool = make_pool(input_tokens=LengthSpec(mean=1))
    bodies(pool, len(WORDS))
    assert not pool.recycled
    pool.take(len(WORDS))
    assert pool.recycled


def test_the_salt_changes_prompts_but_not_lengths() -> None:
    spec = LengthSpec(dist="uniform", mean=30, spread=0.5)
    one, two, again = (bodies(make_pool(salt=s, input_tokens=spec, output_tokens=spec), 16) for s in ("a", "b", "a"))
    assert one == again
    assert [len(words(b)) for b in one] == [len(words(b)) for b in two]
    assert [b["max_tokens"] for b in one] == [b["max_tokens"] for b in two]
    assert len({len(words(b)) for b in one}) > 5
    assert not {tuple(words(b)[:4]) for b in one} & {tuple(words(b)[:4]) for b in two}


def test_token_ids_are_exact_and_from_the_middle_of_the_vocabulary() -> None:
    pool = make_pool(target=IDS, input_tokens=LengthSpec(mean=33))
    prompts = [body["prompt"] for body in bodies(pool, 500)]
    assert {len(p) for p in prompts} == {33}
    assert all(1000 <= i < 49152 * 0.9 for p in prompts for i in p)
    assert len({tuple(p[:4]) for p in prompts}) == 500


@pytest.mark.parametrize("vocab", [8, 100, 1500, 2_000_000])
def test_token_ids_of_any_vocabulary(vocab: int) -> None:
    pool = make_pool(target={**IDS, "vocab_size": vocab})
    assert all(0 <= i < vocab for body in bodies(pool, 20) for i in body["prompt"])


def test_chat_never_takes_token_ids() -> None:
    assert make_pool(target={"token_ids": True, "vocab_size": 49152}).ids is None


def test_calibration_takes_off_the_template_and_divides() -> None:
    pool = make_pool(input_tokens=LengthSpec(mean=100), calibration=Calibration(overhead_tokens=20, tokens_per_word=1.25))
    assert len(words(bodies(pool, 1)[0])) == 64
    assert Calibration(overhead_tokens=50).words(8) == 1


@given(st.integers(1, 5), st.integers(0, 60))
def test_workers_take_disjoint_prompts(workers: int, count: int) -> None:
    spec = LengthSpec(mean=6)
    pools = [make_pool(worker=w, workers=workers, input_tokens=spec, wanted=4) for w in range(workers)]
    leads = [pool.lead(w + workers * i, 4) for w, pool in enumerate(pools) for i in range(count)]
    assert len(set(leads)) == len(leads)


def test_the_key_goes_into_the_header() -> None:
    assert b"\r\nAuthorization: Bearer sk-1\r\n" in make_pool(key="sk-1").take(0)[0]
    assert b"Authorization" not in make_pool().take(0)[0]


def test_the_hash_names_the_workload_not_the_salt() -> None:
    assert synthetic_hash(make_case()) == synthetic_hash(make_case(model="other"))
    assert synthetic_hash(make_case()) != synthetic_hash(make_case(seed=1))


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "header"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1", 8000, "/v1", "127.0.0.1:8000"),
        ("http://localhost:8000/v1/", "localhost", 8000, "/v1", "localhost:8000"),
        ("https://api.example.com/v1", "api.example.com", 443, "/v1", "api.example.com"),
        ("https://example.com/openai/", "example.com", 443, "/openai/v1", "example.com"),
        ("http://example.com/api/v3", "example.com", 80, "/api/v3", "example.com"),
        ("http://[::1]:9", "::1", 9, "/v1", "[::1]:9"),
    ],
)
def test_addresses(url: str, host: str, port: int, path: str, header: str) -> None:
    address = parse_address(url)
    assert (address.host, address.port, address.path, address.host_header) == (host, port, path, header)


@pytest.mark.parametrize(
    ("url", "unix_path", "path", "unversioned"),
    [
        ("unix:/run/llm.sock", "/run/llm.sock", "/v1", ""),
        ("unix:/run/llm.sock:/v1", "/run/llm.sock", "/v1", ""),
        ("unix:/run/llm.sock:/openai/", "/run/llm.sock", "/openai/v1", "/openai"),
        ("unix:///run/a%3Ab.sock:/api/v3", "/run/a:b.sock", "/api/v3", "/api"),
    ],
)
def test_addresses_of_sockets(url: str, unix_path: str, path: str, unversioned: str) -> None:
    address = parse_address(url)
    assert (address.unix_path, address.path, address.host_header) == (unix_path, path, "localhost")
    assert parse_address(url, versioned=False).path == unversioned


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "unix:", "unix:x.sock", "http://u:p@x", "http://x/?k=1"]
)
def test_wrong_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_address(url)


@given(
    st.builds(
        LengthSpec,
        dist=st.sampled_from(["fixed", "uniform", "normal", "lognormal"]),
        mean=st.integers(1, 5000),
        spread=st.floats(0, 0.9),
    ),
    st.integers(0, 2**32),
)
def test_lengths_are_whole_positive_and_seeded(spec: LengthSpec, seed: int) -> None:
    one, two = (draw_lengths(spec, 50, np.random.default_rng(seed)) for _ in range(2))
    assert np.array_equal(one, two)
    assert one.min() >= 1
    if spec.dist == "fixed":
        assert set(one) == {spec.mean}
    if spec.dist == "uniform":
        assert one.max() <= spec.mean * (1 + spec.spread) + 1e-9


@pytest.mark.parametrize("dist", ["uniform", "normal", "lognormal"])
def test_lengths_have_the_mean_and_spread_asked_for(dist: str) -> None:
    drawn = draw_lengths(LengthSpec(dist=dist, mean=1000, spread=0.3), 100_000, np.random.default_rng(1))  # type: ignore[arg-type]
    assert drawn.mean() == pytest.approx(1000, rel=0.01)
    expected = 300 if dist != "uniform" else 600 / 12**0.5
    assert drawn.std() == pytest.approx(expected, rel=0.02)
