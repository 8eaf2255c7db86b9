"""Every command in the README and in docs/ is run, or, where this machine can't, parsed.

A fenced `bash` block is run as a whole, in the order of its file, in one scratch folder a page; of a `console` block, the lines
that begin with `$ `. An HTML comment on the line before a block says otherwise:
  <!-- run: engine -->        needs a real model and engine: run by `make engines`
  <!-- run: parse REASON -->  can't run here (REASON): every `bench` line in it must parse
  <!-- file: NAME -->         the block is the content of that file in the scratch folder
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from bench.cli.main import COMMANDS, cli
from bench.reports.advice import ONLY_BUSY

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")])
_BLOCK = re.compile(
    r"(?:<!-- (?:run: (?P<how>\w+)[^>]*|file: (?P<file>\S+)) -->\n)?^```(?P<lang>\w*)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    how: str
    text: str
    file: str | None = None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line, lang, body = text.count("\n", 0, match.start()) + 1, match["lang"], match["text"]
        if match["file"]:
            found.append(Block(page.name, line, "file", body, match["file"]))
        elif lang in ("bash", "sh", "console"):
            commands = "".join(f"{row[2:]}\n" for row in body.splitlines() if row.startswith("$ ")) if lang == "console" else body
            found.append(Block(page.name, line, match["how"] or "run", commands))
    return found


_A_DAY = "2026-12-01"
"""What the variable NIGHT holds, as far as a parser is concerned."""
ALL = [block for page in PAGES for block in blocks(page)]


def _run(page: Path, how: tuple[str, ...], scratch: Path) -> None:
    (scratch / "suites").symlink_to(ROOT / "suites")
    env = {**os.environ, "BENCH_RESULTS": str(scratch / "results")}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    for block in blocks(page):
        if block.file:
            (scratch / block.file).write_text(block.text, encoding="utf-8")
        elif block.how in how and not _is_make(block):
            done = subprocess.run(
                ["bash", "-uo", "pipefail", "-c", f"{_ON_ERROR}\n{block.text}:"],
                cwd=scratch,
                env=env,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            told = f"{block.page}:{block.line}\n{block.text}\n{done.stdout}\n{done.stderr}"
            if any(other.file and other.file in block.text for other in blocks(page)):
                assert "would fail here" not in done.stdout, told  # a suite that a page shows is one that runs
            assert done.returncode == 0, told
            assert "Traceback" not in done.stderr, told
            assert "error:" not in done.stderr or ONLY_BUSY in done.stderr, told  # of such trials there is nothing to compare


# 1 says that a trial is invalid, which a busy machine can make of any: the commands are what is tested here.
_ON_ERROR = "trap 'code=$?; [ $code -eq 1 ] || exit $code' ERR"


def _is_make(block: Block) -> bool:
    """Set-up lines, which are how this very test was started."""
    return bool(re.match(r"\s*(make|git clone|pip install|python3? -m)\b", block.text))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.how == "run" and not _is_make(b) for b in blocks(p))], ids=lambda p: p.name
)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    _run(page, ("run",), tmp_path)


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.how == "engine" and not _is_make(b) for b in blocks(p))], ids=lambda p: p.name
)
def test_commands_that_need_an_engine_run(page: Path, tmp_path: Path) -> None:
    _run(page, ("run", "engine"), tmp_path)


def _bench_lines() -> list[tuple[str, str]]:
    lines = []
    for block in ALL:
        joined = block.text.replace("\\\n", " ")
        lines += [
            (f"{block.page}:{block.line}", line.strip()) for line in joined.splitlines() if line.strip().startswith("bench ")
        ]
    return lines


@pytest.mark.parametrize(("where", "line"), _bench_lines(), ids=lambda text: text if ":" in str(text) else "")
def test_every_bench_line_parses(where: str, line: str) -> None:
    words = [_A_DAY if word == "$NIGHT" else word for word in shlex.split(line, comments=True)[1:]]
    words = words[: next((i for i, word in enumerate(words) if word in ("|", ">", "&", "&&", ";", "2>")), len(words))]
    command: click.Command = cli
    context = click.Context(cli, info_name="bench")
    while isinstance(command, click.Group):
        if not words or words[0] in ("--help", "--version", "-h"):
            return
        if words[0].startswith("-") and command.invoke_without_command:
            break
        found = command.get_command(context, words[0])
        assert found is not None, f"{where}: no command {words[0]!r} in {line!r}"
        command, words = found, words[1:]
    if "--help" not in words:
        command.make_context(command.name, words, parent=context)


def test_every_command_is_documented() -> None:
    told = " ".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in COMMANDS if f"bench {name}" not in told]
    assert missing == []


def test_links_between_pages_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_tables_are_whole() -> None:
    """A line of something else ends a table, and what follows is shown as it was typed."""
    for page in PAGES:
        plain = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in (part.strip().splitlines() for part in plain.split("\n\n") if "\n|-" in part):
            assert [line for line in table if not line.startswith(("|", "<!--"))] == [], page.name


def test_the_readme_says_the_same_in_both_languages() -> None:
    """Its blocks, which the tests above run, and its links."""
    one, other = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
    assert [match[0] for match in _BLOCK.finditer(one)] == [match[0] for match in _BLOCK.finditer(other)]
    links = [set(re.findall(r"\]\((docs/[^)]+)\)", text)) for text in (one, other)]
    assert links[0] == links[1]
    assert re.findall(r"`(make [^`]+|python3 -m [^`]+)`", one) == re.findall(r"`(make [^`]+|python3 -m [^`]+)`", other)
