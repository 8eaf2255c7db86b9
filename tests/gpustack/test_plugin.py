"""`gpustack benchmark` through the plug-in door of GPUStack, whose package is a stand-in; the contract test has the real one."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

NAME = "bench.lab.gpustack.plugin"


class Plugin:
    """The part of GPUStack's class that a command line meets."""

    @classmethod
    def setup_start_cmd(cls, parser: argparse.ArgumentParser) -> None:
        pass


class OldPlugin:
    """Of a GPUStack that does not ask while it parses."""


def stand_in(monkeypatch: pytest.MonkeyPatch, plugin: type) -> None:
    package, extension = ModuleType("gpustack"), ModuleType("gpustack.extension")
    extension.__dict__["Plugin"] = plugin
    monkeypatch.setitem(sys.modules, "gpustack", package)
    monkeypatch.setitem(sys.modules, "gpustack.extension", extension)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    sys.modules.pop(NAME, None)
    yield
    sys.modules.pop(NAME, None)


@pytest.mark.parametrize(
    ("typed", "replaced"),
    [
        (["benchmark", "--model", "m", "--batch_size", "8"], True),
        (["start", "--port", "80"], False),
        (["version"], False),
        ([], False),
        (["start", "benchmark"], False),
    ],
)
def test_a_benchmark_replaces_the_process_and_nothing_else_does(
    typed: list[str], replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda path, words: ran.append((path, words)))
    monkeypatch.setattr(sys, "argv", ["gpustack", *typed])
    stand_in(monkeypatch, Plugin)
    parser = argparse.ArgumentParser()
    before = parser.format_help()
    importlib.import_module(NAME).BenchmarkPlugin.setup_start_cmd(parser)
    assert ran == ([(sys.executable, [sys.executable, "-m", "bench", "gpustack", *typed])] if replaced else [])
    assert parser.format_help() == before


def test_a_gpustack_without_that_door_is_told_what_works_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, OldPlugin)
    with pytest.raises(ImportError, match="gpustack-benchmark"):
        importlib.import_module(NAME)
