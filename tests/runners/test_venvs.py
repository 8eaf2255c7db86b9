"""When an environment of a heavy engine is taken as it is, and when it is made anew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runners.vllm_venv import is_whole

WANTED = "engine==1.0"


def made(folder: Path) -> Path:
    """What an installation leaves that came to its end."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "installed").write_text(WANTED)
    return folder


def test_an_environment_that_was_installed_to_its_end_is_taken(tmp_path: Path) -> None:
    assert is_whole(made(tmp_path / "venv"), WANTED)
    assert not is_whole(tmp_path / "none", WANTED)
    assert not is_whole(tmp_path / "venv", "engine==2.0")


def python_gone(folder: Path) -> None:
    """Its Python was a link to one that an upgrade took away."""
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to(folder / "gone")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "installed").unlink(),  # killed while it was installed
        lambda folder: (folder / "installed").write_text(WANTED[:4]),
        lambda folder: (folder / "installed").write_bytes(b"\xff"),
        python_gone,
    ],
    ids=["killed", "cut off", "no text", "python gone"],
)
def test_one_that_is_damaged_is_not(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    damage(made(tmp_path))
    assert not is_whole(tmp_path, WANTED)
