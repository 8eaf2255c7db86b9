"""`launch`, `image` and `container`: what they make of a case, and what can't be."""

from __future__ import annotations

import pytest

from bench import codec
from bench.errors import SuiteError, UsageError
from bench.identity import case_id
from bench.records import Case, ContainerSpec
from bench.suite.build import load_text
from bench.suite.options import from_options, override

IMAGE = "vllm/vllm-openai:v0.11.0"


def suite(case: str) -> str:
    return f"cases:\n  - {{model: m, engine: vllm, {case}}}\n"


@pytest.mark.parametrize(
    ("written", "container"),
    [
        ("precision: bf16", None),
        ("launch: process", None),
        (f"launch: docker, image: {IMAGE}", ContainerSpec(tool="docker", image=IMAGE)),
        (
            f"launch: podman, image: {IMAGE}, container: {{network: bridge, shm_size: 1g, user: '1000:1000'}}",
            ContainerSpec(tool="podman", image=IMAGE, network="bridge", shm_size="1g", user="1000:1000"),
        ),
    ],
)
def test_the_container_of_a_case(written: str, container: ContainerSpec | None) -> None:
    [case] = load_text(suite(written), "s.yaml").cases
    assert case.container == container
    assert codec.decode(codec.encode(case), Case) == case  # as a run's plan keeps it


def test_a_process_and_a_container_beside_each_other() -> None:
    process, docker = load_text(suite(f"launch: [process, docker], image: {IMAGE}"), "s.yaml").cases
    assert (process.container, docker.container) == (None, ContainerSpec(tool="docker", image=IMAGE))
    assert case_id(process) != case_id(docker)
    [plain] = load_text(suite("precision: null"), "s.yaml").cases
    assert case_id(plain) == case_id(process)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("launch: docker", "need 'image': add the image that has the engine"),
        (f"image: {IMAGE}", "'image' without 'launch': add launch: docker"),
        ("container: {network: host}", "'container' without 'launch'"),
        ("launch: docker, image: vllm/vllm-openai", "has no tag, which means latest: write a version"),
        ("launch: docker, image: 'vllm/vllm-openai:latest'", "has the tag latest, which moves: write a version"),
        ("launch: dockr, image: x:1", "launch must be 'process', 'docker' or 'podman'"),
        (f"launch: docker, image: {IMAGE}, container: {{net: host}}", "unknown key 'net' in container"),
        (f"launch: docker, image: {IMAGE}, container: {{network: none}}", "container.network must be"),
        (f"launch: docker, image: {IMAGE}, container: {{shm_size: lots}}", "container.shm_size must be"),
        (f"launch: docker, image: {IMAGE}, container: {{user: 'a b'}}", "container.user must be"),
        (f"launch: docker, image: {IMAGE}, container: host", "container must be a mapping as in"),
        (f"launch: docker, image: {IMAGE}, engine: mock", "'launch' with engine: mock, which starts no engine of its own"),
    ],
)
def test_what_can_not_be_is_refused_with_the_mend(written: str, words: str) -> None:
    text = suite(written).replace("engine: vllm, ", "") if "engine: mock" in written else suite(written)
    with pytest.raises(SuiteError) as caught:
        load_text(text, "s.yaml")
    assert words in str(caught.value)


def test_flags_say_the_same() -> None:
    [case] = from_options({"model": "m", "engine": "vllm", "launch": "docker", "image": IMAGE})
    assert case.container == ContainerSpec(tool="docker", image=IMAGE)
    found = load_text(suite(f"launch: docker, image: {IMAGE}"), "s.yaml")
    assert override(found, {"launch": "process"}).cases[0].container is None
    assert override(found, {"image": "a/b:2"}).cases[0].container == ContainerSpec(tool="docker", image="a/b:2")
    with pytest.raises(UsageError, match="need 'image'"):  # that of another engine is not taken over
        override(found, {"engine": "sglang"})
