"""`Dockerfile.gpustack-runner`: its entry point takes what GPUStack appends, and nothing in it moves."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from bench.cli.main import cli
from bench.image_name import check_pinned
from tests.gpustack.test_arguments import SAMPLES
from tests.nightly.test_dockerfiles import all_of, install

FILE = Path(__file__).parents[2] / "Dockerfile.gpustack-runner"


def test_base_and_packages_are_pinned_and_tokenizers_are_there() -> None:
    [image] = all_of(FILE, "FROM")
    check_pinned(image)
    assert "--constraint /src/constraints.txt" in install(FILE)
    assert "'/src[tokenizer]'" in install(FILE)


@pytest.mark.parametrize("kind", ["concurrency", "stages", "slo"])
def test_the_entry_point_and_the_worker_s_arguments_make_a_command(kind: str) -> None:
    [entry] = all_of(FILE, "ENTRYPOINT")
    program, *words = json.loads(entry)
    assert program == "bench"
    command: click.Command = cli
    context = click.Context(cli, info_name="bench")
    words += SAMPLES[kind]
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    assert command.make_context("run", words, parent=context).params["target"] == "http://127.0.0.1:8000"
