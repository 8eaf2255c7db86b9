"""What the command costs before it does anything: imports, not seconds (machines differ)."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "duckdb", "numpy", "pydantic", "yaml", "rich", "xllamacpp", "pynvml", "amdsmi", "torch", "vllm", "uvloop", "httptools",
    "msgspec", "psutil", "multiprocessing", "asyncio",
}  # fmt: skip


def _imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import bench",
        "import bench.cli.main",
        "import bench.cli.gpustack",
        (
            "from bench.cli.main import cli\nfrom click.testing import CliRunner\n"
            "assert CliRunner().invoke(cli, ['--help']).exit_code == 0"
        ),
    ],
)
def test_nothing_heavy_is_imported_before_a_command_runs(code: str) -> None:
    assert _imported_by(code) & HEAVY == set()


@pytest.mark.parametrize("module", ["bench.cli.run", "bench.runners.llamacpp", "bench.probes.nvidia", "bench.probes.child"])
def test_no_engine_or_vendor_package_is_imported_by_our_modules(module: str) -> None:
    assert _imported_by(f"import {module}") & {"xllamacpp", "pynvml", "amdsmi", "torch", "vllm"} == set()


@pytest.mark.parametrize("module", ["bench.cli.run", "bench.cli.results"])
def test_what_draws_on_a_terminal_is_imported_only_where_there_is_one(module: str) -> None:
    _imported_by(f"import {module}\nassert 'rich.console' not in sys.modules")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
@pytest.mark.parametrize("command", ["run", "table"])
def test_a_command_has_one_thread_and_what_it_starts_is_not_told_to(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    found = _imported_by(
        f"import os\nfrom bench.cli.main import cli\ncli.get_command(None, {command!r})\n"
        "assert len(os.listdir('/proc/self/task')) == 1\nassert 'OPENBLAS_NUM_THREADS' not in os.environ"
    )
    assert "numpy" in found


def test_every_command_has_help() -> None:
    from click.testing import CliRunner

    from bench.cli.main import COMMANDS, cli

    for name in COMMANDS:
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0, result.output
        assert "Usage:" in result.output
