"""The real OpenVINO GenAI, in an environment of its own inside the checkout.

    python -m tests.runners.openvino_venv

`make engines-heavy` runs it, and so does the first test that needs it.
"""

from __future__ import annotations

import platform
import subprocess
import sys

from tests.runners.vllm_venv import FOLDER as BESIDE
from tests.runners.vllm_venv import made

FOLDER = BESIDE.with_name(".venv-openvino")
PINS = ("openvino-genai==2026.4.1.0", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0", "numpy==2.4.6")


def has_build() -> bool:
    """Whether there is a wheel for this platform."""
    return (sys.platform, platform.machine()) in {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")}


def ensure() -> str:
    """The Python of an environment that has it, installed if need be (a minute, 300 MB). Raises: CalledProcessError."""
    return made(FOLDER, " ".join(PINS), _install)


def _install(pip: list[str]) -> None:
    subprocess.run([*pip, "install", *PINS], check=True)


if __name__ == "__main__" and has_build():
    ensure()
