"""Packages from outside that are not what they say: one clear message, and nothing else suffers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import plugins
from bench.errors import MissingError, UsageError
from tests.conftest import BenchCommand
from tests.factories import make_record, save_trial

BROKEN = {
    "no-module": "acme_gone:thing",
    "no-attribute": "acme_here:thing",
    "no-python": "acme_broken:thing",
    "raises": "acme_raises:thing",
    "no-callable": "acme_here:NUMBER",
}
PROGRAMS = {
    "acme_here": "NUMBER = 5\ndef text(records):\n    print('hello')\n    return 'text'\n"
    "def fails(records):\n    raise OSError('\\x1b[2J gone')\ndef nothing():\n    return b''\n",
    "acme_broken": "def (\n",
    "acme_raises": "raise ZeroDivisionError('at import')\n",
}
WORKING = "is-text = acme_here:text\nfails = acme_here:fails\nno-argument = acme_here:nothing\n"
GROUPS = ("bench.runners", "bench.probes", "bench.reports")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose entry points lead nowhere, in every group."""
    info = tmp_path / "site" / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    lines = "".join(f"{name} = {where}\n" for name, where in BROKEN.items())
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{lines}" for group in GROUPS) + WORKING)
    for name, text in PROGRAMS.items():
        (tmp_path / "site" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", BROKEN)
def test_an_entry_point_that_leads_nowhere_is_named_with_its_package(group: str, name: str) -> None:
    with pytest.raises(MissingError, match=rf"'{name}' \({group}, {BROKEN[name]}\) can't be loaded: ") as caught:
        plugins.load(group, name)
    assert caught.value.hint == "mend or remove its package: pip show acme"


@pytest.mark.parametrize("group", GROUPS)
def test_a_name_that_nothing_has_is_told_the_nearest(group: str) -> None:
    with pytest.raises(UsageError, match="Did you mean 'no-module'"):
        plugins.load(group, "no-modul")


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("no-module", 4, "'no-module' (bench.reports, acme_gone:thing) can't be loaded: No module named 'acme_gone'"),
        ("no-python", 4, "'no-python' (bench.reports, acme_broken:thing) can't be loaded: "),
        ("raises", 4, "can't be loaded: at import"),
        ("no-callable", 4, "can't be loaded: int can't be called"),
        ("is-text", 2, "the report 'is-text' gave str, not bytes"),
        ("fails", 2, "the report 'fails' failed: OSError: "),
        ("no-argument", 2, "the report 'no-argument' failed: TypeError: "),
    ],
)
def test_an_export_says_what_is_wrong_with_it(bench_here: BenchCommand, tmp_path: Path, name: str, code: int, says: str) -> None:
    save_trial(tmp_path / "results", make_record())
    ran = bench_here("export", "--format", name)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert says in ran.stderr
    assert "\x1b" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_doctor_tells_of_a_broken_engine_and_goes_on(bench_here: BenchCommand) -> None:
    ran = bench_here("doctor")
    assert "no-module: 'no-module' (bench.runners, acme_gone:thing) can't be loaded" in ran.stdout
    assert "mock: " in ran.stdout
    assert bench_here("doctor", "--engine", "no-module").returncode == 4
