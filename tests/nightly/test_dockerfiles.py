"""The container images: pinned, small, not root, and made of what a clean environment can install."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from bench.image_name import check_pinned
from tests.nightly.linters import linter

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("Dockerfile.*"))
EXTRAS = {"cpu": {"llamacpp"}, "cuda": {"llamacpp", "nvidia"}, "rocm": {"llamacpp", "amd"}, "ascend": {"llamacpp"}}
"""What the runners and probes of each kind of host need; the probe of Ascend needs no package."""


def instructions(path: Path) -> list[tuple[str, str]]:
    """(word, arguments) of each instruction, comments and line ends taken out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


def all_of(path: Path, word: str) -> list[str]:
    return [rest for found, rest in instructions(path) if found == word]


def install(path: Path) -> str:
    """The one line that installs the lab."""
    (line,) = [run for run in all_of(path, "RUN") if "/src[" in run or "'/src'" in run]
    return line


def of_a_host(path: Path) -> bool:
    return path.suffix[1:] in EXTRAS


HOSTS = [path for path in FILES if of_a_host(path)]


def test_there_is_one_for_each_kind_of_host() -> None:
    assert {path.suffix[1:] for path in HOSTS} == set(EXTRAS)


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.name)
def test_hadolint_finds_nothing(path: Path) -> None:
    done = subprocess.run([linter("hadolint"), str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.name)
def test_nothing_in_it_moves(path: Path) -> None:
    for image in all_of(path, "FROM"):
        check_pinned(image.split()[0])
    for run in all_of(path, "RUN"):
        for package in re.findall(r"apt-get install ([^&]*)", run):
            names = [word for word in package.split() if not word.startswith("-")]
            assert all("=" in name for name in names), names
    assert "--constraint /src/constraints.txt" in install(path)


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.name)
def test_it_is_not_root_and_leaves_nothing_behind(path: Path) -> None:
    assert all_of(path, "USER") == ["10001"]
    words = [word for word, _ in instructions(path)]
    assert words.index("USER") > max(number for number, word in enumerate(words) if word == "RUN")
    assert not {"COPY", "ADD"} & set(words)  # the source is mounted while it is installed
    assert install(path).startswith("--mount=type=bind,target=/src")
    assert "--no-cache-dir" in install(path)
    assert all("rm -rf /var/lib/apt/lists/*" in run for run in all_of(path, "RUN") if "apt-get" in run)
    assert all_of(path, "ENTRYPOINT") == ['["bench"]']


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.name)
def test_it_installs_what_its_host_needs(path: Path) -> None:
    found = re.search(r"'/src\[([\w,]+)\]'", install(path))
    assert found is not None
    assert set(found[1].split(",")) == EXTRAS[path.suffix[1:]]


def test_every_package_that_an_image_gets_has_its_version() -> None:
    """Also what those need: the file is what an installation gave."""
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in set().union(*EXTRAS.values()) for one in extras[name])]
    assert {re.split(r"[^\w.-]", one)[0].lower() for one in wanted} <= pinned


def test_the_source_without_its_results_goes_into_an_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv*", "results"} <= set(ignored)


def python_of(path: Path) -> str:
    """A Python of the version that the image has; the test is skipped where there is none here."""
    found = re.search(r"python(?::|3=)(3\.\d+)", path.read_text(encoding="utf-8"))
    assert found is not None
    program = shutil.which(f"python{found[1]}")
    if program is None or subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no Python {found[1]} here")
    return program


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_its_packages_install_and_run_in_a_clean_environment(path: Path, tmp_path: Path) -> None:
    """As far as a machine without containers can: the same pip line in a new environment of its Python, what the image runs
    by itself, and every package of the version that the constraints name.
    """
    programs = tmp_path / "venv" / "bin"
    subprocess.run([python_of(path), "-m", "venv", str(tmp_path / "venv")], check=True)
    line = install(path).rpartition("pip ")[2].replace("/src", str(ROOT))
    subprocess.run(["bash", "-c", f"'{programs}/pip' {line}"], check=True, capture_output=True)
    ran = subprocess.run([str(programs / "bench"), "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("bench, version")
    (entry,), (arguments,) = all_of(path, "ENTRYPOINT"), all_of(path, "CMD")
    words: list[str] = [*json.loads(entry), *json.loads(arguments)][1:]
    own = subprocess.run([str(programs / "bench"), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert own.returncode == 0, own.stdout + own.stderr
    frozen = subprocess.run([str(programs / "pip"), "freeze"], capture_output=True, text=True, check=True).stdout
    assert not _versions(frozen) - _versions((ROOT / "constraints.txt").read_text(encoding="utf-8"))


def _versions(text: str) -> set[str]:
    """`NAME==VERSION` of each package, however its name is written."""
    return {line.lower().replace("_", "-") for line in text.splitlines() if "==" in line}
