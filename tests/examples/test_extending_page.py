"""`docs/extending.md`: what it says to write is what works. Its commands are run with those of all other pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from bench.catalog.chips import Chip
from bench.records import Status
from tests.examples.conftest import EXAMPLES
from tests.factories import make_metrics, make_record, save_trial

PAGE = (EXAMPLES.parent / "docs" / "extending.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


GROUPS = {group: named for text in blocks("toml") for group, named in tomllib.loads(text)["project"]["entry-points"].items()}


@pytest.mark.parametrize("example", ["engine", "probe"])
def test_an_example_names_itself_as_the_page_says(example: str) -> None:
    project = tomllib.loads((EXAMPLES / example / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((group, named),) = project["entry-points"].items()
    assert GROUPS[group] == named


def export(tmp_path: Path, form: str) -> subprocess.CompletedProcess[str]:
    """`bench export` where the package of the page is installed."""
    (code,) = blocks("python")
    (module,) = {where.partition(":")[0] for where in GROUPS["bench.reports"].values()}
    info = tmp_path / "site" / f"{module}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    named = "".join(f"{name} = {where}\n" for name, where in GROUPS["bench.reports"].items())
    (info / "entry_points.txt").write_text(f"[bench.reports]\n{named}")
    (tmp_path / "site" / f"{module}.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "bench", "export", "--format", form, "--results", str(tmp_path / "results")],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_an_export_from_outside(tmp_path: Path) -> None:
    save_trial(tmp_path / "results", make_record(repeat=1, metrics=make_metrics(j_per_output_tok=None)))
    save_trial(tmp_path / "results", make_record(repeat=2, status=Status.FAILED, error="died"))
    done = export(tmp_path, "acme-lines")
    (line,) = (json.loads(line) for line in done.stdout.splitlines())
    assert line["output_tok_per_s"] == make_record().metrics["output_tok_per_s"].value, done.stderr
    assert line["j_per_output_tok"] is None
    unknown = export(tmp_path, "acme-line")
    assert unknown.returncode == 2
    assert "acme-lines" in unknown.stderr
    assert "csv" in unknown.stderr


def test_the_chip_of_the_page_is_an_entry_of_the_catalogue() -> None:
    (entry,) = (found for text in blocks("yaml") if isinstance(found := yaml.safe_load(text), list))
    (chip,) = msgspec.convert(entry, list[Chip])
    assert chip.calls_itself("acme a1")
    assert chip.may_have(32 << 30)
