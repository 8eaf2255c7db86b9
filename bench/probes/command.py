"""The output of a vendor's command-line tool. Arguments are a list: nothing passes through a shell."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from bench.probes.values import Unavailable

TIMEOUT_S = 5.0


def output(
    argv: Sequence[str], *, timeout_s: float = TIMEOUT_S, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> str:
    """What `argv` prints to stdout. Raises: Unavailable when it is not there, fails, prints nothing or takes too long."""
    tool = argv[0]
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL, env=env, cwd=cwd, check=False
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{tool} is not installed", lasting=True) from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{tool} did not answer within {timeout_s:g} s", lasting=False) from error
    except OSError as error:
        raise Unavailable(f"{tool} can't be started: {error.strerror}", lasting=True) from error
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise Unavailable(f"{tool} ended with exit status {done.returncode}{_last(done.stderr or done.stdout)}", lasting=False)
    if not text.strip():
        raise Unavailable(f"{tool} printed nothing{_last(done.stderr)}", lasting=False)
    return text


def _last(words: bytes) -> str:
    lines = [line.strip() for line in words.decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
